// A linear layer: y = x W^T + b.
#ifndef TIDEMILL_MODELS_LAYERS_LINEAR_H_
#define TIDEMILL_MODELS_LAYERS_LINEAR_H_

#include <cstdint>
#include <vector>

#include "kernels/weight_matrix.h"

namespace tidemill {

struct Linear {
  WeightMatrix weight;      // [out, in]; no rows: not present
  std::vector<float> bias;  // [out], or empty

  bool present() const { return weight.rows() != 0; }
  uint64_t bytes() const { return weight.resident_bytes() + bias.size() * sizeof(float); }
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_LINEAR_H_
