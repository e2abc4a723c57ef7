// GPT-NeoX and Pythia (arXiv:2204.06745): layer norms, rotary positions on a part of each head, both branches side by side. Checkpoints
// hold q, k and v of each head behind each other; GGUF files hold all q, then all k, then all v.
#include "models/families/families.h"
#include "models/plain_layer.h"

namespace tidemill {

Result<ModelSettings> ReadGptNeoxSettings(const SettingsReader& reader) {
  TIDEMILL_TRY(settings, ReadDecoderSettings(reader, {.norm_eps = {"layer_norm_eps", "attention.layer_norm_epsilon"},
                                                      .default_norm_eps = 1e-5,
                                                      .rope_theta = "rotary_emb_base",
                                                      .default_hidden_act = "gelu",
                                                      .partial_rotary_factor = "rotary_pct",
                                                      .default_partial_rotary_factor = 0.25}));
  TIDEMILL_TRY(parallel, reader.BoolOr({"use_parallel_residual", "use_parallel_residual"}, true));
  settings.use_parallel_residual = parallel;
  TIDEMILL_TRY_VOID(CheckBias(reader, "attention_bias", true, ".attention.dense.bias"));
  return settings;
}

Result<std::unique_ptr<LanguageModel>> LoadGptNeox(const ModelSettings& s, WeightLoader& weights) {
  const size_t hidden = s.hidden_size;
  auto model = std::make_unique<LanguageModel>();
  model->settings = s;
  const WeightName embedding_name{"gpt_neox.embed_in", "token_embd"};
  TIDEMILL_TRY(embedding, weights.Matrix(embedding_name, s.vocab_size, hidden));
  TIDEMILL_TRY(head,
               weights.Head({"embed_out", "output"}, embedding_name, s.tie_word_embeddings, s.vocab_size, hidden));
  TIDEMILL_TRY(final_norm, weights.LayerNorm({"gpt_neox.final_layer_norm", "output_norm"}, hidden, s.norm_eps));
  model->embedding = std::move(embedding);
  model->head = std::move(head);
  model->final_norm = std::move(final_norm);
  model->ropes.push_back(MakeRopeTable(s.rope, s.rotary_dim));
  for (size_t i = 0; i < s.num_hidden_layers; ++i) {
    const auto name = [&](const char* checkpoint, const char* gguf) {
      return WeightName{"gpt_neox.layers." + std::to_string(i) + "." + checkpoint,
                        "blk." + std::to_string(i) + "." + gguf};
    };
    const WeightName qkv = name("attention.query_key_value", "attn_qkv");
    const size_t turn = weights.gguf() ? 0 : s.head_dim;
    TIDEMILL_TRY(layer, LoadPlainLayer(s,
                                       {.attention_norm = name("input_layernorm", "attn_norm"),
                                        .mlp_norm = name("post_attention_layernorm", "ffn_norm"),
                                        .q = qkv,
                                        .k = qkv,
                                        .v = qkv,
                                        .q_form = {.parts = 3, .part = 0, .part_rows = turn},
                                        .k_form = {.parts = 3, .part = 1, .part_rows = turn},
                                        .v_form = {.parts = 3, .part = 2, .part_rows = turn},
                                        .o = name("attention.dense", "attn_output"),
                                        .up = name("mlp.dense_h_to_4h", "ffn_up"),
                                        .down = name("mlp.dense_4h_to_h", "ffn_down"),
                                        .attention_bias = Bias::kOptional},
                                       weights));
    layer.residual = s.use_parallel_residual ? Residual::kParallel : Residual::kSequential;
    model->layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace tidemill
