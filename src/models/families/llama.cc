// Llama 1, 2 and relatives of the same wiring (SmolLM2, TinyLlama, Mistral without a window): arXiv:2302.13971.
// Names are llama.cpp's; files of this architecture store q and k with each head's halves interleaved.
#include <cmath>
#include <string>

#include "kernels/rope.h"
#include "models/registry.h"

namespace tidemill {

Result<std::unique_ptr<LanguageModel>> LoadLlama(const ModelSettings& settings, WeightLoader& weights) {
  const size_t hidden = settings.hidden_size, ffn = settings.intermediate_size, head_dim = settings.head_dim;
  const size_t q_dim = settings.num_attention_heads * head_dim, kv_dim = settings.num_key_value_heads * head_dim;
  if (settings.rotary_dim != head_dim) {
    return Error(ErrorCode::kUnsupported,
                 "metadata: \"llama.rope.dimension_count\": " + std::to_string(settings.rotary_dim) + " of " +
                     std::to_string(head_dim) + ": a partial rotation is not supported for llama");
  }
  auto model = std::make_unique<LanguageModel>();
  model->settings = settings;
  model->inv_freq = RopeInverseFrequencies(settings.rotary_dim, settings.rope_theta);
  TIDEMILL_TRY(embedding, weights.Matrix("token_embd.weight", settings.vocab_size, hidden));
  model->embedding = std::move(embedding);
  if (!settings.tie_word_embeddings) {
    TIDEMILL_TRY(head, weights.Matrix("output.weight", settings.vocab_size, hidden));
    model->head = std::move(head);
  }
  TIDEMILL_TRY(final_norm, weights.Vector("output_norm.weight", hidden));
  model->final_norm = std::move(final_norm);

  const RowOrder interleaved{.interleaved_head_dim = head_dim};
  for (size_t i = 0; i < settings.num_hidden_layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    for (const char* bias : {"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias", "ffn_gate.bias"}) {
      if (weights.Has(prefix + bias)) {
        return Error(ErrorCode::kUnsupported, "tensor \"" + prefix + bias + "\": biases are not supported for llama");
      }
    }
    TIDEMILL_TRY(attn_norm, weights.Vector(prefix + "attn_norm.weight", hidden));
    TIDEMILL_TRY(q, weights.Matrix(prefix + "attn_q.weight", q_dim, hidden, interleaved));
    TIDEMILL_TRY(k, weights.Matrix(prefix + "attn_k.weight", kv_dim, hidden, interleaved));
    TIDEMILL_TRY(v, weights.Matrix(prefix + "attn_v.weight", kv_dim, hidden));
    TIDEMILL_TRY(o, weights.Matrix(prefix + "attn_output.weight", hidden, q_dim));
    TIDEMILL_TRY(ffn_norm, weights.Vector(prefix + "ffn_norm.weight", hidden));
    TIDEMILL_TRY(gate, weights.Matrix(prefix + "ffn_gate.weight", ffn, hidden));
    TIDEMILL_TRY(up, weights.Matrix(prefix + "ffn_up.weight", ffn, hidden));
    TIDEMILL_TRY(down, weights.Matrix(prefix + "ffn_down.weight", hidden, ffn));
    DecoderLayer layer;
    layer.norm_eps = static_cast<float>(settings.rms_norm_eps);
    layer.attention = {.norm = std::move(attn_norm),
                       .q = std::move(q),
                       .k = std::move(k),
                       .v = std::move(v),
                       .o = std::move(o),
                       .heads = settings.num_attention_heads,
                       .kv_heads = settings.num_key_value_heads,
                       .head_dim = head_dim,
                       .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))};
    layer.mlp = {.norm = std::move(ffn_norm), .gate = std::move(gate), .up = std::move(up), .down = std::move(down)};
    model->layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace tidemill
