// EAGLE-3's draft head (arXiv:2503.01840): features of three of the target's layers through one product, or after them the head's own
// output; then one layer of Llama whose attention reads the token beside that. A head of its own drafts the more frequent ids alone:
// d2t[i] is the distance from draft id i to the target's, t2d says which ids those are.
#include <string>
#include <utility>

#include "models/families/families.h"
#include "models/gated_decoder.h"

namespace tidemill {
namespace {

Error WrongMap(const std::string& name, const std::string& what) {
  return Error(ErrorCode::kCorruptFile, "tensor \"" + name + "\": expected " + what);
}

// The target's id of each draft id.
Result<std::vector<int32_t>> ReadTargetIds(WeightLoader& weights, size_t draft_vocab, size_t vocab) {
  TIDEMILL_TRY(distances, weights.Integers("d2t", draft_vocab));
  std::vector<int32_t> ids(draft_vocab);
  std::vector<bool> drafted(vocab);
  for (size_t i = 0; i < draft_vocab; ++i) {
    const auto first = -static_cast<int64_t>(i), last = static_cast<int64_t>(vocab - 1 - i);
    if (distances[i] < first || distances[i] > last) {
      return WrongMap("d2t", "distances to ids from 0 to " + std::to_string(vocab - 1) + ", from draft id " +
                                 std::to_string(i) + " found " + std::to_string(distances[i]));
    }
    const auto id = static_cast<size_t>(distances[i] - first);
    if (drafted[id])
      return WrongMap("d2t",
                      "each id at most once, found " + std::to_string(id) + " again for draft id " + std::to_string(i));
    drafted[id] = true;
    ids[i] = static_cast<int32_t>(id);
  }
  if (!weights.HasTensor("t2d")) return ids;
  TIDEMILL_TRY(marks, weights.Integers("t2d", vocab));
  for (size_t id = 0; id < vocab; ++id) {
    if ((marks[id] != 0) == drafted[id]) continue;
    return WrongMap("t2d", std::string(drafted[id] ? "1" : "0") + " for id " + std::to_string(id) +
                               ", as d2t has it, found " + std::to_string(marks[id]));
  }
  return ids;
}

}  // namespace

Result<std::unique_ptr<LanguageModel>> LoadEagle3(const ModelSettings& s, const SettingsReader& reader,
                                                  const LanguageModel& target, WeightLoader& weights) {
  constexpr size_t kFeatures = 3;
  const size_t hidden = s.hidden_size, layers = target.layers.size();
  const auto wrong = [&](const char* key, const std::string& expected, size_t found) {
    return reader.Wrong({key, ""}, expected, std::to_string(found), ErrorCode::kUnsupported);
  };
  // Tools that serve such heads disagree about what the numbers count from.
  for (const char* key : {"eagle_aux_hidden_state_layer_ids", "eagle_config.eagle_aux_hidden_state_layer_ids"}) {
    if (reader.Has({key, ""})) {
      return reader.Wrong({key, ""}, "no such key: features are taken as the authors take them", "one",
                          ErrorCode::kUnsupported);
    }
  }
  if (s.num_hidden_layers != 1) return wrong("num_hidden_layers", "1 layer in a head of EAGLE-3", s.num_hidden_layers);
  if (layers < 7) {  // 2 < layers / 2 < layers - 3
    return Error(ErrorCode::kUnsupported,
                 "draft head: expected a target of at least 7 layers, of which EAGLE-3 reads three, found " +
                     std::to_string(layers));
  }
  TIDEMILL_TRY(draft_vocab, reader.Uint({"draft_vocab_size", ""}, 1, s.vocab_size));
  TIDEMILL_TRY(target_hidden, reader.UintOr({"target_hidden_size", ""}, hidden, 1, uint64_t{1} << 20));
  if (target_hidden != target.settings.hidden_size) {
    const SettingKey key{reader.Has({"target_hidden_size", ""}) ? "target_hidden_size" : "hidden_size", ""};
    return reader.Wrong(key, "the target's " + std::to_string(target.settings.hidden_size),
                        std::to_string(target_hidden), ErrorCode::kInvalidArgument);
  }
  const size_t width = kFeatures * target_hidden;
  if (hidden == width)
    return wrong("hidden_size", "another width than that of the target's features, " + std::to_string(width), hidden);

  auto head = std::make_unique<LanguageModel>();
  head->settings = s;
  FeatureInput& features = head->features;
  TIDEMILL_TRY(fuse, weights.Layer({"fc", ""}, hidden, width, Bias::kNone));
  TIDEMILL_TRY(token_norm, weights.Rms({"midlayer.input_layernorm", ""}, hidden, s.norm_eps));
  features.fuse = std::move(fuse);
  features.token_norm = std::move(token_norm);
  features.width = width;
  features.target_taps = {2, layers / 2, layers - 3};
  features.own_tap = 1;  // in front of the final norm
  if (draft_vocab != s.vocab_size || weights.HasTensor("d2t")) {
    TIDEMILL_TRY(ids, ReadTargetIds(weights, draft_vocab, s.vocab_size));
    features.target_ids = std::move(ids);
  }
  if (const WeightName name{"embed_tokens", ""}; weights.Has(name) || hidden != target.embedding.cols()) {
    TIDEMILL_TRY(embedding, weights.MatrixUnless(target.embedding, name, s.vocab_size, hidden));
    head->embedding = std::move(embedding);
  }
  TIDEMILL_TRY(logits, weights.Layer({"lm_head", ""}, draft_vocab, hidden, Bias::kNone));
  TIDEMILL_TRY(final_norm, weights.Rms({"norm", ""}, hidden, s.norm_eps));
  head->head = std::move(logits);
  head->final_norm = std::move(final_norm);
  head->ropes.push_back(MakeRopeTable(s.rope, s.rotary_dim));
  TIDEMILL_TRY(layer, LoadGatedLayer(s,
                                     {.qkv_bias = Bias::kOptional,
                                      .layer_prefix = "midlayer.",
                                      .attention_norm = "hidden_norm",
                                      .reads_tokens = true},
                                     0, weights));
  head->layers.push_back(std::move(layer));
  return head;
}

}  // namespace tidemill
