// The norms that families use, behind one call.
#ifndef TIDEMILL_MODELS_LAYERS_NORM_H_
#define TIDEMILL_MODELS_LAYERS_NORM_H_

#include <cstdint>
#include <vector>

#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

struct Norm {
  enum class Kind : uint8_t {
    kNone,   // y = x
    kRms,    // kernels/rms_norm.h
    kLayer,  // kernels/layer_norm.h
  };
  Kind kind = Kind::kNone;
  float eps = 0;
  std::vector<float> weight = {};  // [hidden]; if a family stores w of 1 + w, the 1 is included
  std::vector<float> bias = {};    // [hidden]; kLayer only

  bool present() const { return kind != Kind::kNone; }
  uint64_t bytes() const { return (weight.size() + bias.size()) * sizeof(float); }
};

// Each row of x into y, which may be x.
void RunNorm(ExecutionContext& ctx, const Norm& norm, ConstMatrix<float> x, Matrix<float> y);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_NORM_H_
