// GPT-2: layer norms, learned positions, one matrix for q, k and v, no gates, biases everywhere. Checkpoints hold matrices as [in, out].
#include "models/families/families.h"
#include "models/plain_layer.h"

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
  const size_t hidden = s.hidden_size;
  // Checkpoints of the bare transformer lack the prefix.
  const std::string root = weights.gguf() || weights.Has({"transformer.wte", ""}) ? "transformer." : "";
  auto model = std::make_unique<LanguageModel>();
  model->settings = s;
  const WeightName embedding_name{root + "wte", "token_embd"};
  TIDEMILL_TRY(embedding, weights.Matrix(embedding_name, s.vocab_size, hidden));
  TIDEMILL_TRY(head, weights.Head({"lm_head", "output"}, embedding_name, s.tie_word_embeddings, s.vocab_size, hidden));
  const size_t memory_positions = s.armt && s.armt->wrap_pos ? s.armt->num_mem_tokens : 0;  // behind the text's
  TIDEMILL_TRY(positions,
               weights.Matrix({root + "wpe", "position_embd"}, s.max_position_embeddings + memory_positions, hidden));
  TIDEMILL_TRY(final_norm, weights.LayerNorm({root + "ln_f", "output_norm"}, hidden, s.norm_eps));
  model->embedding = std::move(embedding);
  model->head = std::move(head);
  model->position_embedding = std::move(positions);
  model->final_norm = std::move(final_norm);
  const bool transposed = !weights.gguf();
  for (size_t i = 0; i < s.num_hidden_layers; ++i) {
    const auto name = [&](const char* checkpoint, const char* gguf) {
      return WeightName{root + "h." + std::to_string(i) + "." + checkpoint, "blk." + std::to_string(i) + "." + gguf};
    };
    const WeightName qkv = name("attn.c_attn", "attn_qkv");
    TIDEMILL_TRY(layer, LoadPlainLayer(s,
                                       {.attention_norm = name("ln_1", "attn_norm"),
                                        .mlp_norm = name("ln_2", "ffn_norm"),
                                        .q = qkv,
                                        .k = qkv,
                                        .v = qkv,
                                        .q_form = {.transposed = transposed, .parts = 3, .part = 0},
                                        .k_form = {.transposed = transposed, .parts = 3, .part = 1},
                                        .v_form = {.transposed = transposed, .parts = 3, .part = 2},
                                        .o = name("attn.c_proj", "attn_output"),
                                        .up = name("mlp.c_fc", "ffn_up"),
                                        .down = name("mlp.c_proj", "ffn_down"),
                                        .transposed = transposed,
                                        .rotary = false},
                                       weights));
    model->layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace tidemill
