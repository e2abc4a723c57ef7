// Gated DeltaNet: linear attention whose state forgets by a gate and corrects by the delta rule.              arXiv:2412.06464
//
//   [q | k | v] = silu(conv(qkv x));  q, k <- l2(q) / sqrt(key_dim), l2(k) by head;  beta = sigmoid(b x);  g = decay softplus(a x + dt_bias)
//   y = the delta rule over q, k, v, beta, g (kernels/delta_rule.h);  result = out(rms(y) by head * silu(z x))
#ifndef TIDEMILL_MODELS_LAYERS_DELTA_BRANCH_H_
#define TIDEMILL_MODELS_LAYERS_DELTA_BRANCH_H_

#include <cstddef>
#include <vector>

#include "models/layers/linear.h"
#include "models/layers/norm.h"

namespace tidemill {

struct DeltaLayer {
  Linear qkv = {};                  // [channels(), hidden]: all of q, then k, then v
  Linear z = {};                    // [value_heads * value_dim, hidden]
  Linear b = {}, a = {};            // [value_heads, hidden]
  std::vector<float> conv = {};     // [conv_width, channels()]: the newest input's weights last
  std::vector<float> decay = {};    // [value_heads] below 0: -exp(A_log)
  std::vector<float> dt_bias = {};  // [value_heads]
  Norm norm = {};                   // [value_dim], of each value head
  Linear out = {};                  // [hidden, value_heads * value_dim]
  size_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  // value_heads is a multiple of key_heads
  size_t conv_width = 0;
  bool tiled = false;  // value head h reads key head h % key_heads; else h / (value_heads / key_heads)

  size_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_DELTA_BRANCH_H_
