// GPT-NeoX and Pythia (arXiv:2204.06745): layer norms, rotary positions on a part of each head, both branches side by side. Checkpoints
// hold q, k and v of each head behind each other; GGUF files hold all q, then all k, then all v.
#include <cmath>

#include "models/families/families.h"
#include "models/gated_decoder.h"

namespace tidemill {

Result<ModelSettings> ReadGptNeoxSettings(const SettingsReader& reader) {
  TIDEMILL_TRY(settings, ReadDecoderSettings(reader, {.norm_eps = {"layer_norm_eps", "attention.layer_norm_epsilon"},
                                                      .default_norm_eps = 1e-5,
                                                      .default_hidden_act = "gelu",
                                                      .default_partial_rotary_factor = 0.25}));
  TIDEMILL_TRY(parallel, reader.BoolOr({"use_parallel_residual", "use_parallel_residual"}, true));
  settings.use_parallel_residual = parallel;
  return settings;
}

Result<std::unique_ptr<LanguageModel>> LoadGptNeox(const ModelSettings& s, WeightLoader& weights) {
  const size_t hidden = s.hidden_size, ffn = s.intermediate_size;
  auto model = std::make_unique<LanguageModel>();
  model->settings = s;
  TIDEMILL_TRY(activation, ActivationOf(s.hidden_act));
  TIDEMILL_TRY(embedding, weights.Matrix({"gpt_neox.embed_in", "token_embd"}, s.vocab_size, hidden));
  TIDEMILL_TRY(final_norm, weights.LayerNorm({"gpt_neox.final_layer_norm", "output_norm"}, hidden, s.norm_eps));
  model->embedding = std::move(embedding);
  model->final_norm = std::move(final_norm);
  model->ropes.push_back(MakeRopeTable(s.rope, s.rotary_dim));
  if (!s.tie_word_embeddings) {
    TIDEMILL_TRY(head, weights.Layer({"embed_out", "output"}, s.vocab_size, hidden, Bias::kNone));
    model->head = std::move(head);
  }
  for (size_t i = 0; i < s.num_hidden_layers; ++i) {
    const auto name = [&](const char* checkpoint, const char* gguf) {
      return WeightName{"gpt_neox.layers." + std::to_string(i) + "." + checkpoint,
                        "blk." + std::to_string(i) + "." + gguf};
    };
    const auto part = [&](size_t index) {
      return weights.Layer(name("attention.query_key_value", "attn_qkv"), hidden, hidden, Bias::kOptional,
                           {.parts = 3, .part = index, .part_rows = weights.gguf() ? 0 : s.head_dim});
    };
    DecoderLayer layer;
    layer.residual = s.use_parallel_residual ? Residual::kParallel : Residual::kSequential;
    TIDEMILL_TRY(attention_norm, weights.LayerNorm(name("input_layernorm", "attn_norm"), hidden, s.norm_eps));
    TIDEMILL_TRY(mlp_norm, weights.LayerNorm(name("post_attention_layernorm", "ffn_norm"), hidden, s.norm_eps));
    TIDEMILL_TRY(q, part(0));
    TIDEMILL_TRY(k, part(1));
    TIDEMILL_TRY(v, part(2));
    TIDEMILL_TRY(o, weights.Layer(name("attention.dense", "attn_output"), hidden, hidden, Bias::kOptional));
    TIDEMILL_TRY(up, weights.Layer(name("mlp.dense_h_to_4h", "ffn_up"), ffn, hidden, Bias::kRequired));
    TIDEMILL_TRY(down, weights.Layer(name("mlp.dense_4h_to_h", "ffn_down"), hidden, ffn, Bias::kRequired));
    layer.attention_norm = std::move(attention_norm);
    layer.mlp_norm = std::move(mlp_norm);
    layer.attention = {.q = std::move(q),
                       .k = std::move(k),
                       .v = std::move(v),
                       .o = std::move(o),
                       .heads = s.num_attention_heads,
                       .kv_heads = s.num_attention_heads,
                       .head_dim = s.head_dim,
                       .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)))};
    layer.mlp = {.activation = activation, .up = std::move(up), .down = std::move(down)};
    model->layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace tidemill
