// Gemma 3, text (arXiv:2503.19786): layers with a window and a rope base of their own between layers that see everything; norms before
// and after each branch, stored as w of (1 + w); norms of each query and key head; a scaled embedding.
#include <cmath>

#include "models/families/families.h"
#include "models/gated_decoder.h"
#include "models/rope_settings.h"

namespace tidemill {
namespace {

// Where neither layer_types nor a pattern is there, every sixth layer sees everything.
constexpr uint64_t kPattern = 6;

// A GGUF file without a window has none in any layer.
Result<void> ReadWindows(const SettingsReader& reader, ModelSettings& s) {
  TIDEMILL_TRY(window, reader.UintOr({"sliding_window", "attention.sliding_window"}, reader.gguf() ? 0 : 4096, 1,
                                     uint64_t{1} << 30));
  if (reader.Has({"layer_types", ""})) return ReadLayerWindows(reader, s);
  TIDEMILL_TRY(old_pattern,
               reader.UintOr({"sliding_window_pattern", "attention.sliding_window_pattern"}, kPattern, 1, 4096));
  TIDEMILL_TRY(pattern, reader.UintOr({"_sliding_window_pattern", ""}, old_pattern, 1, 4096));
  s.windows.resize(s.num_hidden_layers);
  for (size_t i = 0; i < s.windows.size(); ++i) s.windows[i] = (i + 1) % pattern == 0 ? 0 : window;
  return {};
}

// One rope for layers without a window, one for those with. A rope_scaling concerns the first and joins what rope_parameters says of it.
Result<void> ReadRopes(const SettingsReader& reader, ModelSettings& s) {
  const SettingKey local_key{"rope_local_base_freq", "rope.freq_base_swa"};
  if (reader.gguf()) {
    TIDEMILL_TRY(theta, reader.FloatWithin(local_key, 10000, kMinRopeTheta, kMaxRopeTheta));
    s.local_rope.theta = theta;
    return {};
  }
  const JsonValue& config = reader.config();
  const std::string full = "rope_parameters.full_attention", sliding = "rope_parameters.sliding_attention";
  if (config.Has("rope_parameters")) {
    TIDEMILL_TRY(both, config.GetObject("rope_parameters"));
    if (both.size() != 0 && !config.Has(full) && !config.Has(sliding)) {
      return reader.Wrong({"rope_parameters", ""}, "full_attention and sliding_attention in it", "neither",
                          ErrorCode::kUnsupported);
    }
  }
  if (config.Has("rope_scaling")) TIDEMILL_TRY_VOID(config.GetObject("rope_scaling"));
  // transformers looks at rope_type alone here, and would not scale.
  if (config.Has("rope_scaling.type") && !config.Has("rope_scaling.rope_type"))
    return reader.Wrong({"rope_scaling.type", ""}, "rope_type in its place", "type", ErrorCode::kUnsupported);
  const RopePlace place{.at = full,
                        .before = "rope_scaling",
                        .theta = {"rope_theta", ""},
                        .default_theta = 1e6,
                        .is_for_all_layers = false};
  const RopePlace local_place{
      .at = sliding, .before = "", .theta = local_key, .default_theta = 10000, .is_for_all_layers = false};
  TIDEMILL_TRY(rope, ReadRopeSettings(reader, place, s.max_position_embeddings));
  TIDEMILL_TRY(local, ReadRopeSettings(reader, local_place, s.max_position_embeddings));
  s.rope = rope;
  s.local_rope = local;
  return {};
}

// 0: none.
Result<double> ReadCap(const SettingsReader& reader, const SettingKey& key) {
  TIDEMILL_TRY(cap, reader.FloatOr(key, 0));
  if (!(cap >= 0 && cap < 1e12)) return reader.Wrong(key, "a cap from 0 to 1e12", std::to_string(cap));
  return cap;
}

}  // namespace

Result<ModelSettings> ReadGemma3Settings(const SettingsReader& reader) {
  TIDEMILL_TRY(s, ReadDecoderSettings(reader, {.default_rope_theta = 1e6,
                                               .hidden_act = "hidden_activation",
                                               .default_hidden_act = "gelu_pytorch_tanh",
                                               .rope_by_layer_type = true,
                                               .tied_by_default = true}));
  TIDEMILL_TRY_VOID(CheckBias(reader, "attention_bias", false, ".self_attn.q_proj.bias"));
  TIDEMILL_TRY_VOID(ReadRopes(reader, s));
  TIDEMILL_TRY_VOID(ReadWindows(reader, s));
  // llama.cpp computes the scale from the size of the model: 27B is the only one whose query_pre_attn_scalar is not head_dim.
  const double usual = reader.gguf() && s.num_hidden_layers == 62
                           ? static_cast<double>(s.hidden_size / s.num_attention_heads)
                           : static_cast<double>(reader.gguf() ? s.head_dim : 256);
  TIDEMILL_TRY(scalar, reader.FloatWithin({"query_pre_attn_scalar", ""}, usual, 0, 1e12));
  s.attention_scale = 1 / std::sqrt(scalar);
  TIDEMILL_TRY(attention_cap, ReadCap(reader, {"attn_logit_softcapping", "attn_logit_softcapping"}));
  TIDEMILL_TRY(final_cap, ReadCap(reader, {"final_logit_softcapping", "final_logit_softcapping"}));
  s.attn_logit_softcapping = attention_cap;
  s.final_logit_softcapping = final_cap;
  TIDEMILL_TRY(bidirectional, reader.BoolOr({"use_bidirectional_attention", ""}, false));
  if (bidirectional)
    return reader.Wrong({"use_bidirectional_attention", ""}, "false", "true: that is no causal model",
                        ErrorCode::kUnsupported);
  return s;
}

Result<std::unique_ptr<LanguageModel>> LoadGemma3(const ModelSettings& settings, WeightLoader& weights) {
  return LoadGatedDecoder(settings,
                          {.qkv_bias = Bias::kOptional,
                           .o_bias = Bias::kOptional,
                           .qk_norm = true,
                           .branch_norms = true,
                           .norm_one_plus = true,
                           .scaled_embedding = true,
                           .local_rope = true},
                          weights);
}

}  // namespace tidemill
