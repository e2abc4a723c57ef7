#include "models/language_model.h"

#include <algorithm>

#include "kernels/matmul.h"
#include "state/kv_cache.h"

namespace tidemill {

StepShape LanguageModel::step_shape() const {
  const size_t heads = settings.num_attention_heads, kv_heads = settings.num_key_value_heads;
  return {.hidden = settings.hidden_size,
          .q_dim = heads * settings.head_dim,
          .kv_dim = kv_heads * settings.head_dim,
          .ffn = settings.intermediate_size,
          .rotary_dim = settings.rotary_dim};
}

uint64_t LanguageModel::resident_bytes() const {
  uint64_t bytes = embedding.resident_bytes() + head.resident_bytes() + final_norm.size() * sizeof(float);
  for (const DecoderLayer& layer : layers) {
    for (const WeightMatrix* weight : layer.matrices()) bytes += weight->resident_bytes();
    bytes += (layer.attention.norm.size() + layer.mlp.norm.size()) * sizeof(float);
  }
  return bytes;
}

size_t LanguageModel::scratch_bytes() const {
  size_t bytes = std::max(MatMulScratchBytes(embedding), MatMulScratchBytes(head));
  for (const DecoderLayer& layer : layers) bytes = std::max(bytes, DecoderLayerScratchBytes(layer));
  return bytes;
}

std::unique_ptr<SequenceState> LanguageModel::MakeState(const StateOptions& options) const {
  return std::make_unique<KvCache>(
      KvShape{.layers = std::vector<KvLayerShape>(
                  layers.size(), {.kv_heads = settings.num_key_value_heads, .head_dim = settings.head_dim}),
              .dtype = options.kv_dtype,
              .max_length = options.max_length,
              .model = id,
              .numeric_class = options.numeric_class});
}

}  // namespace tidemill
