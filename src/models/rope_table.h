// The angles of a model's rotary position embeddings, with their scaling to longer contexts.
//
//   kNone     f[i] = theta^(-2 i / d)                                                                 d = rotary_dim
//   kLinear   f[i] / factor                                                                           arXiv:2306.15595
//   kDynamic  a position p at or past n = max_position_embeddings has its own base,                   "dynamic NTK"
//               theta * (factor * (p + 1) / n - (factor - 1))^(d / (d - 2));  before it kNone
//   kLlama3   with w = 2 pi / f[i], n the original length: f[i] where w < n / high_freq_factor, f[i] / factor where
//               w > n / low_freq_factor, in between (1 - s) f[i] / factor + s f[i], s = (n / w - low) / (high - low)
//   kYarn     f[i] / factor * r[i] + f[i] * (1 - r[i]), r a ramp from 0 to 1 between the dimensions that turn beta_fast and beta_slow
//               times in the original length; cosines and sines times attention_factor                arXiv:2309.00071
//
// With kDynamic transformers gives all rows of a forward pass the base of its last position, so a prompt's bits depend on its chunks. Here
// a position has the base that running tokens one by one gives it.
#ifndef TIDEMILL_MODELS_ROPE_TABLE_H_
#define TIDEMILL_MODELS_ROPE_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "formats/model_settings.h"
#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

struct RopeTable {
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  RopeSettings settings;

  size_t rotary_dim() const { return 2 * inv_freq.size(); }
};

// `divisors`: empty, or [rotary_dim / 2] of a file ("rope_freqs.weight"), by which f is divided.
RopeTable MakeRopeTable(const RopeSettings& settings, size_t rotary_dim, std::span<const float> divisors = {});

// cos, sin : [positions, rotary_dim / 2]. Allocates nothing.
void FillRopeRows(ExecutionContext& ctx, const RopeTable& table, std::span<const uint32_t> positions, Matrix<float> cos,
                  Matrix<float> sin);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_ROPE_TABLE_H_
