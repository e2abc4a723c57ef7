#include "models/plain_layer.h"

#include <cmath>
#include <utility>

#include "models/layers/attention_branch.h"
#include "models/layers/mlp_branch.h"
#include "models/settings_reader.h"

namespace tidemill {

Result<DecoderLayer> LoadPlainLayer(const ModelSettings& s, const PlainLayerSource& source, WeightLoader& weights) {
  const size_t hidden = s.hidden_size, ffn = s.intermediate_size, q_dim = s.num_attention_heads * s.head_dim;
  const WeightForm form{.transposed = source.transposed};
  TIDEMILL_TRY(activation, ActivationOf(s.hidden_act));
  TIDEMILL_TRY(attention_norm, weights.LayerNorm(source.attention_norm, hidden, s.norm_eps));
  TIDEMILL_TRY(mlp_norm, weights.LayerNorm(source.mlp_norm, hidden, s.norm_eps));
  TIDEMILL_TRY(q, weights.Layer(source.q, q_dim, hidden, source.attention_bias, source.q_form));
  TIDEMILL_TRY(k, weights.Layer(source.k, q_dim, hidden, source.attention_bias, source.k_form));
  TIDEMILL_TRY(v, weights.Layer(source.v, q_dim, hidden, source.attention_bias, source.v_form));
  TIDEMILL_TRY(o, weights.Layer(source.o, hidden, q_dim, source.attention_bias, form));
  TIDEMILL_TRY(up, weights.Layer(source.up, ffn, hidden, Bias::kRequired, form));
  TIDEMILL_TRY(down, weights.Layer(source.down, hidden, ffn, Bias::kRequired, form));
  DecoderLayer layer;
  layer.Add(std::move(attention_norm), {},
            AttentionBranch({.q = std::move(q),
                             .k = std::move(k),
                             .v = std::move(v),
                             .o = std::move(o),
                             .heads = s.num_attention_heads,
                             .kv_heads = s.num_attention_heads,
                             .head_dim = s.head_dim,
                             .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim))),
                             .rope = source.rotary ? 0 : AttentionLayer::kNoRope}));
  layer.Add(std::move(mlp_norm), {},
            MlpBranch({.activation = activation, .up = std::move(up), .down = std::move(down)}));
  return layer;
}

}  // namespace tidemill
