// Mistral: Llama's wiring with a sliding window in every layer (arXiv:2310.06825), and Mixtral: with mixtures of experts, too
// (arXiv:2401.04088). GGUF files call both "llama".
#include "models/families/families.h"
#include "models/gated_decoder.h"

namespace tidemill {

Result<ModelSettings> ReadMistralSettings(const SettingsReader& reader) {
  TIDEMILL_TRY(settings, ReadDecoderSettings(reader, {}));
  TIDEMILL_TRY_VOID(ReadSlidingWindow(reader, settings, 4096));
  return settings;
}

Result<std::unique_ptr<LanguageModel>> LoadMistral(const ModelSettings& settings, WeightLoader& weights) {
  return LoadGatedDecoder(settings, {}, weights);
}

Result<ModelSettings> ReadMixtralSettings(const SettingsReader& reader) {
  TIDEMILL_TRY(settings, ReadDecoderSettings(reader, {.default_norm_eps = 1e-5, .default_rope_theta = 1e6}));
  TIDEMILL_TRY_VOID(ReadSlidingWindow(reader, settings));
  TIDEMILL_TRY_VOID(ReadExpertSettings(reader, settings));
  return settings;
}

Result<std::unique_ptr<LanguageModel>> LoadMixtral(const ModelSettings& settings, WeightLoader& weights) {
  return LoadGatedDecoder(
      settings, {.mixture = "block_sparse_moe", .expert_gate = "w1", .expert_up = "w3", .expert_down = "w2"}, weights);
}

}  // namespace tidemill
