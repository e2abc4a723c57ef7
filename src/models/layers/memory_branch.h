// The associative memory of a recurrent-memory transformer's layer, as the first and the last of its branches.        ARMT: arXiv:2407.04841
//   MemoryReadBranch   x <- x + read(phi(q x))       of all rows, where a segment ended before theirs; no norm
//   MemoryWriteBranch  the layer's output y of a segment's memory rows ends it: write(phi(k y), v y, b y)
// kernels/associative_memory.h has both; the layer's SegmentKvLayer, its attention's state, keeps the memory.
#ifndef TIDEMILL_MODELS_LAYERS_MEMORY_BRANCH_H_
#define TIDEMILL_MODELS_LAYERS_MEMORY_BRANCH_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/associative_memory.h"
#include "models/layers/branch.h"
#include "state/segment_kv_layer.h"

namespace tidemill {

class MemoryReadBranch : public Branch {
 public:
  // q: [key_dim, hidden]
  MemoryReadBranch(Linear q, const MemoryShape& shape) : q_(std::move(q)), shape_(shape) {}

  std::vector<BufferRegion> Regions() const override { return {{shape_.key_dim}, {shape_.features()}}; }
  void ForEachWeight(const WeightVisitor& visit) const override { visit({q_}); }
  void AddWork(DType kv_dtype, BranchWork* work) const override;
  bool RunsWith(const Branch& other) const override;
  void Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;
  void AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;

 private:
  enum Region : size_t { kQ, kFeatures };

  Linear q_;
  MemoryShape shape_;
};

class MemoryWriteBranch : public Branch {
 public:
  // k: [key_dim, hidden]; v: [hidden, hidden]; b: [1, hidden], with a bias
  MemoryWriteBranch(Linear k, Linear v, Linear b, const MemoryShape& shape)
      : k_(std::move(k)), v_(std::move(v)), b_(std::move(b)), shape_(shape) {}

  std::vector<BufferRegion> Regions() const override {
    return {{shape_.key_dim}, {shape_.features()}, {shape_.hidden}, {1}};
  }
  void ForEachWeight(const WeightVisitor& visit) const override;
  void AddWork(DType, BranchWork*) const override {}  // of memory rows alone
  bool RunsWith(const Branch& other) const override;
  void Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;
  void AddOutput(ExecutionContext&, StepBuffers&, const BranchCells&) const override {}

 private:
  enum Region : size_t { kK, kFeatures, kV, kB };

  Linear k_, v_, b_;
  MemoryShape shape_;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_MEMORY_BRANCH_H_
