// EAGLE's draft head (arXiv:2401.15077; EAGLE-2 drafts other trees with the same heads): a token beside the feature in front of it, both
// through one product, then layers of Llama of which the first has no norm in front. Its output is the next feature, as the target's head
// reads features; so there is no final norm, and head and embedding are the target's.
#include <utility>

#include "models/families/families.h"
#include "models/gated_decoder.h"

namespace tidemill {

Result<std::unique_ptr<LanguageModel>> LoadEagle(const ModelSettings& s, const SettingsReader& reader,
                                                 const LanguageModel& target, WeightLoader& weights) {
  const size_t hidden = s.hidden_size;
  if (hidden != target.settings.hidden_size) {
    return reader.Wrong({"hidden_size", ""}, "the target's " + std::to_string(target.settings.hidden_size),
                        std::to_string(hidden), ErrorCode::kInvalidArgument);
  }
  // Files without the key are of both kinds.
  Bias bias = Bias::kOptional;
  if (const SettingKey key{"bias", ""}; reader.Has(key)) {
    TIDEMILL_TRY(has_bias, reader.BoolOr(key, true));
    bias = has_bias ? Bias::kRequired : Bias::kNone;
  }
  auto head = std::make_unique<LanguageModel>();
  head->settings = s;
  TIDEMILL_TRY(fuse, weights.Layer({"fc", ""}, hidden, 2 * hidden, bias));
  head->features.fuse = std::move(fuse);
  head->features.fuses_tokens = true;
  head->features.width = hidden;
  head->features.target_taps = {target.layers.size() + 1};  // after the final norm
  head->features.own_tap = s.num_hidden_layers;
  if (const WeightName name{"embed_tokens", ""}; weights.Has(name)) {  // heads are published with it
    TIDEMILL_TRY(embedding, weights.MatrixUnless(target.embedding, name, s.vocab_size, hidden));
    head->embedding = std::move(embedding);
  }
  head->ropes.push_back(MakeRopeTable(s.rope, s.rotary_dim));
  for (size_t i = 0; i < s.num_hidden_layers; ++i) {
    TIDEMILL_TRY(layer, LoadGatedLayer(s,
                                       {.qkv_bias = Bias::kOptional,
                                        .layer_prefix = "layers." + std::to_string(i) + ".",
                                        .attention_norm = i == 0 ? "" : "input_layernorm"},
                                       i, weights));
    head->layers.push_back(std::move(layer));
  }
  return head;
}

}  // namespace tidemill
