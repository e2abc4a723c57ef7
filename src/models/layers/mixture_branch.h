// A mixture of experts: each row goes through the `per_token` experts of the highest router probability, weighted by it.
//                                                                                                            arXiv:2101.03961
//   result = the sum of weight * expert(x), with a shared expert + shared(x) * sigmoid(shared_gate x)        arXiv:2401.06066
#ifndef TIDEMILL_MODELS_LAYERS_MIXTURE_BRANCH_H_
#define TIDEMILL_MODELS_LAYERS_MIXTURE_BRANCH_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/expert_routing.h"
#include "models/layers/branch.h"
#include "models/layers/mlp_branch.h"
#include "state/cell.h"

namespace tidemill {

struct MixtureOfExperts {
  Linear router = {};             // [experts, hidden]
  std::vector<Mlp> experts = {};  // at least one; all of one shape, with gates, without biases
  size_t per_token = 0;
  Normalise normalise = Normalise::kOverChosen;
  Mlp shared = {};          // with a gate, without biases; or not present
  Linear shared_gate = {};  // [1, hidden], with `shared`
};

class MixtureBranch : public Branch {
 public:
  explicit MixtureBranch(MixtureOfExperts mixture) : mixture_(std::move(mixture)) {}

  MixtureOfExperts& mixture() { return mixture_; }

  std::vector<BufferRegion> Regions() const override;
  void ForEachWeight(const WeightVisitor& visit) const override;
  void AddWork(DType kv_dtype, BranchWork* work) const override;
  bool RunsWith(const Branch& other) const override;
  void Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;
  void AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;

 private:
  enum Region : size_t {
    kLogits,
    kIn,
    kOut,
    kGate,
    kUp,
    kWeights,
    kChosen,
    kSlots,
    kOrder,
    kOffsets,
    kSharedGate,
    kSharedUp,
    kSharedWeight
  };
  size_t num_experts() const { return mixture_.experts.size(); }
  size_t ffn() const { return mixture_.experts.front().up.weight.rows(); }
  size_t hidden() const { return mixture_.router.weight.cols(); }
  size_t shared_ffn() const { return mixture_.shared.up.weight.rows(); }
  // Of one cell. A slot is one (row, expert) pair.
  struct Rows {
    Matrix<float> in, out;   // [rows * per_token, hidden]
    Matrix<float> gate, up;  // [rows * per_token, ffn]
    Matrix<float> weights;   // [rows, per_token]
    ExpertGroups groups;
  };
  Rows RowsOf(const StepBuffers& b, const BranchCells& cells, const Cell& cell) const;
  void RunExperts(ExecutionContext& ctx, StepBuffers& b, const Rows& e) const;
  struct SharedRows {
    Matrix<float> gate, up;  // [rows, shared_ffn]
    Matrix<float> weight;    // [rows, 1]
  };
  SharedRows SharedRowsOf(const StepBuffers& b, const BranchCells& cells) const;
  void AddShared(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const;

  MixtureOfExperts mixture_;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_MIXTURE_BRANCH_H_
