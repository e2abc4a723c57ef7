// OPT (arXiv:2205.01068): layer norms, learned positions of which the first two are not used, ReLU, biases everywhere. OPT-350M has its
// norms behind the residual sums, and an embedding narrower than the layers.
#include <cmath>

#include "models/families/families.h"
#include "models/gated_decoder.h"

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
  const size_t hidden = s.hidden_size, ffn = s.intermediate_size, width = s.word_embed_proj_dim;
  const std::string root = weights.Has({"model.decoder.embed_tokens", ""}) ? "model.decoder." : "decoder.";
  auto model = std::make_unique<LanguageModel>();
  model->settings = s;
  TIDEMILL_TRY(activation, ActivationOf(s.hidden_act));
  TIDEMILL_TRY(embedding, weights.Matrix({root + "embed_tokens", ""}, s.vocab_size, width));
  TIDEMILL_TRY(positions,
               weights.Matrix({root + "embed_positions", ""}, s.max_position_embeddings + kPositionOffset, hidden));
  model->embedding = std::move(embedding);
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
  if (!s.tie_word_embeddings) {
    TIDEMILL_TRY(head, weights.Layer({"lm_head", ""}, s.vocab_size, width, Bias::kNone));
    model->head = std::move(head);
  }
  for (size_t i = 0; i < s.num_hidden_layers; ++i) {
    const auto name = [&](const char* rest) {
      return WeightName{root + "layers." + std::to_string(i) + "." + rest, ""};
    };
    const auto square = [&](const char* rest) { return weights.Layer(name(rest), hidden, hidden, Bias::kRequired); };
    DecoderLayer layer;
    layer.residual = s.do_layer_norm_before ? Residual::kSequential : Residual::kPostNorm;
    TIDEMILL_TRY(attention_norm, weights.LayerNorm(name("self_attn_layer_norm"), hidden, s.norm_eps));
    TIDEMILL_TRY(mlp_norm, weights.LayerNorm(name("final_layer_norm"), hidden, s.norm_eps));
    TIDEMILL_TRY(q, square("self_attn.q_proj"));
    TIDEMILL_TRY(k, square("self_attn.k_proj"));
    TIDEMILL_TRY(v, square("self_attn.v_proj"));
    TIDEMILL_TRY(o, square("self_attn.out_proj"));
    TIDEMILL_TRY(up, weights.Layer(name("fc1"), ffn, hidden, Bias::kRequired));
    TIDEMILL_TRY(down, weights.Layer(name("fc2"), hidden, ffn, Bias::kRequired));
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
