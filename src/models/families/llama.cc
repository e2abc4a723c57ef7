// Llama 1, 2, 3 and relatives of the same wiring (SmolLM2, TinyLlama; in GGUF files Mistral and Mixtral, too): arXiv:2302.13971.
// GGUF files of this architecture store q and k with each head's halves interleaved.
#include "models/families/families.h"
#include "models/gated_decoder.h"

namespace tidemill {

Result<ModelSettings> ReadLlamaSettings(const SettingsReader& reader) {
  TIDEMILL_TRY(settings, ReadDecoderSettings(reader, {}));
  TIDEMILL_TRY_VOID(CheckBias(reader, "attention_bias", false, ".self_attn.q_proj.bias"));
  TIDEMILL_TRY_VOID(CheckBias(reader, "mlp_bias", false, ".mlp.up_proj.bias"));
  if (!reader.gguf()) return settings;
  TIDEMILL_TRY_VOID(ReadSlidingWindow(reader, settings));
  TIDEMILL_TRY_VOID(ReadExpertSettings(reader, settings));
  return settings;
}

Result<std::unique_ptr<LanguageModel>> LoadLlama(const ModelSettings& settings, WeightLoader& weights) {
  return LoadGatedDecoder(
      settings,
      {.qkv_bias = Bias::kOptional, .o_bias = Bias::kOptional, .mlp_bias = Bias::kOptional, .interleaved_heads = true},
      weights);
}

}  // namespace tidemill
