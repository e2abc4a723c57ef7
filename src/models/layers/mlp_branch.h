// A feed-forward layer: down(f(gate x) * up x), or down(f(up x)) without a gate.
#ifndef TIDEMILL_MODELS_LAYERS_MLP_BRANCH_H_
#define TIDEMILL_MODELS_LAYERS_MLP_BRANCH_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/activation.h"
#include "models/layers/branch.h"

namespace tidemill {

struct Mlp {
  Activation activation = Activation::kSilu;
  Linear gate = {};  // [ffn, hidden] or not present
  Linear up = {};    // [ffn, hidden]
  Linear down = {};  // [hidden, ffn]

  // Calls f(linear) for each that is there.
  template <typename F>
  void ForEachLinear(const F& f) const {
    for (const Linear* linear : {&gate, &up, &down}) {
      if (linear->present()) f(*linear);
    }
  }
};

class MlpBranch : public Branch {
 public:
  explicit MlpBranch(Mlp mlp) : mlp_(std::move(mlp)) {}

  std::vector<BufferRegion> Regions() const override { return {{ffn()}, {ffn()}}; }
  void ForEachWeight(const WeightVisitor& visit) const override;
  void AddWork(DType kv_dtype, BranchWork* work) const override;
  bool RunsWith(const Branch& other) const override;
  void Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;
  void AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;

 private:
  enum Region : size_t { kGate, kUp };
  size_t ffn() const { return mlp_.up.weight.rows(); }
  struct Buffers {
    Matrix<float> gate, up;  // [rows, ffn]
  };
  Buffers BuffersOf(const StepBuffers& b, const BranchCells& cells) const;

  Mlp mlp_;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_MLP_BRANCH_H_
