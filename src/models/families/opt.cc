// OPT (arXiv:2205.01068): layer norms, learned positions of which the first two are not used, ReLU, biases everywhere. OPT-350M has its
// norms after the residual sums, and an embedding narrower than the layers.
#include "models/families/families.h"
#include "models/plain_layer.h"

namespace tidemill {
namespace {

constexpr size_t kPositionOffset = 2;

}  // namespace

Result<ModelSettings> ReadOptSettings(const SettingsReader& reader) {
  for (const char* key : {"enable_bias", "layer_norm_elementwise_affine"}) {
    TIDEMILL_TRY(set, reader.BoolOr({key, ""}, true));
    if (!set) return reader.Wrong({key, ""}, "true", "false", ErrorCode::kUnsupported);
  }
  TIDEMILL_TRY(s, ReadDecoderSettings(reader, {.intermediate_size = "ffn_dim",
                                               .norm_eps = {"layer_norm_eps", ""},
                                               .default_norm_eps = 1e-5,
                                               .hidden_act = "activation_function",
                                               .default_hidden_act = "relu",
                                               .rotary = false,
                                               .tied_by_default = true}));
  TIDEMILL_TRY(before, reader.BoolOr({"do_layer_norm_before", ""}, true));
  TIDEMILL_TRY(width, reader.UintOr({"word_embed_proj_dim", ""}, s.hidden_size, 1, uint64_t{1} << 20));
  s.do_layer_norm_before = before;
  s.word_embed_proj_dim = width;
  return s;
}

Result<std::unique_ptr<LanguageModel>> LoadOpt(const ModelSettings& s, WeightLoader& weights) {
  const size_t hidden = s.hidden_size, width = s.word_embed_proj_dim;
  const std::string root = weights.Has({"model.decoder.embed_tokens", ""}) ? "model.decoder." : "decoder.";
  auto model = std::make_unique<LanguageModel>();
  model->settings = s;
  const WeightName embedding_name{root + "embed_tokens", ""};
  TIDEMILL_TRY(embedding, weights.Matrix(embedding_name, s.vocab_size, width));
  TIDEMILL_TRY(head, weights.Head({"lm_head", ""}, embedding_name, s.tie_word_embeddings, s.vocab_size, width));
  TIDEMILL_TRY(positions,
               weights.Matrix({root + "embed_positions", ""}, s.max_position_embeddings + kPositionOffset, hidden));
  model->embedding = std::move(embedding);
  model->head = std::move(head);
  model->position_embedding = std::move(positions);
  model->position_offset = kPositionOffset;
  if (width != hidden) {
    TIDEMILL_TRY(project_in, weights.Layer({root + "project_in", ""}, hidden, width, Bias::kNone));
    TIDEMILL_TRY(project_out, weights.Layer({root + "project_out", ""}, width, hidden, Bias::kNone));
    model->project_in = std::move(project_in);
    model->project_out = std::move(project_out);
  }
  // Checkpoints with the norms behind have no final one; _remove_final_layer_norm is an early checkpoint's way to say the same.
  if (s.do_layer_norm_before && weights.Has({root + "final_layer_norm", ""})) {
    TIDEMILL_TRY(final_norm, weights.LayerNorm({root + "final_layer_norm", ""}, hidden, s.norm_eps));
    model->final_norm = std::move(final_norm);
  }
  for (size_t i = 0; i < s.num_hidden_layers; ++i) {
    const auto name = [&](const char* rest) {
      return WeightName{root + "layers." + std::to_string(i) + "." + rest, ""};
    };
    TIDEMILL_TRY(layer, LoadPlainLayer(s,
                                       {.attention_norm = name("self_attn_layer_norm"),
                                        .mlp_norm = name("final_layer_norm"),
                                        .q = name("self_attn.q_proj"),
                                        .k = name("self_attn.k_proj"),
                                        .v = name("self_attn.v_proj"),
                                        .o = name("self_attn.out_proj"),
                                        .up = name("fc1"),
                                        .down = name("fc2"),
                                        .rotary = false},
                                       weights));
    layer.residual = s.do_layer_norm_before ? Residual::kSequential : Residual::kPostNorm;
    model->layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace tidemill
