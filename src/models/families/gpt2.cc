// GPT-2: layer norms, learned positions, one matrix for q, k and v, no gates, biases everywhere. Checkpoints hold matrices as [in, out].
#include <cmath>

#include "models/families/families.h"
#include "models/gated_decoder.h"

namespace tidemill {

Result<ModelSettings> ReadGpt2Settings(const SettingsReader& reader) {
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    TIDEMILL_TRY(set, reader.BoolOr({key, ""}, false));
    if (set) return reader.Wrong({key, ""}, "false", "true", ErrorCode::kUnsupported);
  }
  TIDEMILL_TRY(scaled, reader.BoolOr({"scale_attn_weights", ""}, true));
  if (!scaled) return reader.Wrong({"scale_attn_weights", ""}, "true", "false", ErrorCode::kUnsupported);
  return ReadDecoderSettings(reader, {.hidden_size = "n_embd",
                                      .intermediate_size = "n_inner",
                                      .num_hidden_layers = "n_layer",
                                      .num_attention_heads = "n_head",
                                      .max_position_embeddings = "n_positions",
                                      .norm_eps = {"layer_norm_epsilon", "attention.layer_norm_epsilon"},
                                      .default_norm_eps = 1e-5,
                                      .hidden_act = "activation_function",
                                      .default_hidden_act = "gelu_new",
                                      .rotary = false,
                                      .tied_by_default = true});
}

Result<std::unique_ptr<LanguageModel>> LoadGpt2(const ModelSettings& s, WeightLoader& weights) {
  const size_t hidden = s.hidden_size, ffn = s.intermediate_size;
  // Checkpoints of the bare transformer lack the prefix.
  const std::string root = weights.gguf() || weights.Has({"transformer.wte", ""}) ? "transformer." : "";
  auto model = std::make_unique<LanguageModel>();
  model->settings = s;
  TIDEMILL_TRY(activation, ActivationOf(s.hidden_act));
  TIDEMILL_TRY(embedding, weights.Matrix({root + "wte", "token_embd"}, s.vocab_size, hidden));
  TIDEMILL_TRY(positions, weights.Matrix({root + "wpe", "position_embd"}, s.max_position_embeddings, hidden));
  TIDEMILL_TRY(final_norm, weights.LayerNorm({root + "ln_f", "output_norm"}, hidden, s.norm_eps));
  model->embedding = std::move(embedding);
  model->position_embedding = std::move(positions);
  model->final_norm = std::move(final_norm);
  if (!s.tie_word_embeddings) {
    TIDEMILL_TRY(head, weights.Layer({"lm_head", "output"}, s.vocab_size, hidden, Bias::kNone));
    model->head = std::move(head);
  }
  const bool transposed = !weights.gguf();
  for (size_t i = 0; i < s.num_hidden_layers; ++i) {
    const auto name = [&](const char* checkpoint, const char* gguf) {
      return WeightName{root + "h." + std::to_string(i) + "." + checkpoint, "blk." + std::to_string(i) + "." + gguf};
    };
    const auto part = [&](size_t index) {
      return weights.Layer(name("attn.c_attn", "attn_qkv"), hidden, hidden, Bias::kRequired,
                           {.transposed = transposed, .parts = 3, .part = index});
    };
    DecoderLayer layer;
    TIDEMILL_TRY(attention_norm, weights.LayerNorm(name("ln_1", "attn_norm"), hidden, s.norm_eps));
    TIDEMILL_TRY(mlp_norm, weights.LayerNorm(name("ln_2", "ffn_norm"), hidden, s.norm_eps));
    TIDEMILL_TRY(q, part(0));
    TIDEMILL_TRY(k, part(1));
    TIDEMILL_TRY(v, part(2));
    TIDEMILL_TRY(o, weights.Layer(name("attn.c_proj", "attn_output"), hidden, hidden, Bias::kRequired,
                                  {.transposed = transposed}));
    TIDEMILL_TRY(up,
                 weights.Layer(name("mlp.c_fc", "ffn_up"), ffn, hidden, Bias::kRequired, {.transposed = transposed}));
    TIDEMILL_TRY(
        down, weights.Layer(name("mlp.c_proj", "ffn_down"), hidden, ffn, Bias::kRequired, {.transposed = transposed}));
    layer.attention_norm = std::move(attention_norm);
    layer.mlp_norm = std::move(mlp_norm);
    layer.attention = {.q = std::move(q),
                       .k = std::move(k),
                       .v = std::move(v),
                       .o = std::move(o),
                       .heads = s.num_attention_heads,
                       .kv_heads = s.num_attention_heads,
                       .head_dim = s.head_dim,
                       .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim))),
                       .rope = AttentionLayer::kNoRope};
    layer.mlp = {.activation = activation, .up = std::move(up), .down = std::move(down)};
    model->layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace tidemill
