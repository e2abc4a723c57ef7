// Qwen2 and Qwen2.5 (arXiv:2407.10671): Llama's wiring with biases of q, k and v. Qwen3 (arXiv:2505.09388): without them, with norms of
// each query and key head; Qwen3-MoE: with mixtures of experts.
#include <algorithm>

#include "models/families/families.h"
#include "models/gated_decoder.h"

namespace tidemill {

namespace {

// use_sliding_window decides about the other keys of windows.
Result<bool> ReadUseOfWindows(const SettingsReader& reader) {
  TIDEMILL_TRY(used, reader.BoolOr({"use_sliding_window", ""}, false));
  if (reader.gguf()) return used;
  for (const char* key : {"sliding_window", "max_window_layers"}) reader.Take(key);
  const SettingKey types_key{"layer_types", ""};
  if (used || !reader.Has(types_key)) return used;
  TIDEMILL_TRY(types, reader.config().GetStrings(types_key.config));
  if (std::find(types.begin(), types.end(), "sliding_attention") != types.end()) {
    return reader.Wrong(types_key, "full_attention alone, since use_sliding_window is false", "sliding_attention",
                        ErrorCode::kUnsupported);
  }
  return used;
}

}  // namespace

// use_sliding_window puts a window into the layers from max_window_layers on, unless layer_types names them.
Result<ModelSettings> ReadQwenSettings(const SettingsReader& reader) {
  TIDEMILL_TRY(settings, ReadDecoderSettings(reader, {}));
  if (reader.architecture() == "qwen3")
    TIDEMILL_TRY_VOID(CheckBias(reader, "attention_bias", false, ".self_attn.q_proj.bias"));
  TIDEMILL_TRY(used, ReadUseOfWindows(reader));
  if (used) TIDEMILL_TRY_VOID(ReadLayerWindows(reader, settings));
  return settings;
}

// Here it puts a window into every layer.
Result<ModelSettings> ReadQwenMoeSettings(const SettingsReader& reader) {
  TIDEMILL_TRY(settings, ReadDecoderSettings(reader, {}));
  TIDEMILL_TRY_VOID(CheckBias(reader, "attention_bias", false, ".self_attn.q_proj.bias"));
  TIDEMILL_TRY(used, ReadUseOfWindows(reader));
  if (used) TIDEMILL_TRY_VOID(ReadSlidingWindow(reader, settings, 4096));
  TIDEMILL_TRY_VOID(ReadExpertSettings(reader, settings));
  TIDEMILL_TRY(normalised, reader.BoolOr({"norm_topk_prob", ""}, reader.gguf()));
  settings.norm_topk_prob = normalised;
  TIDEMILL_TRY_VOID(ReadDenseLayers(reader, settings));
  return settings;
}

Result<std::unique_ptr<LanguageModel>> LoadQwen2(const ModelSettings& settings, WeightLoader& weights) {
  return LoadGatedDecoder(settings, {.qkv_bias = Bias::kRequired}, weights);
}

Result<std::unique_ptr<LanguageModel>> LoadQwen3(const ModelSettings& settings, WeightLoader& weights) {
  return LoadGatedDecoder(settings, {.qkv_bias = Bias::kOptional, .o_bias = Bias::kOptional, .qk_norm = true}, weights);
}

}  // namespace tidemill
