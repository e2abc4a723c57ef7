// Self-attention over a KV cache.                                                                             arXiv:1706.03762
//   result = o(attended), or with a gate o(attended * sigmoid(gate x)), of each element                         arXiv:2505.06708
#ifndef TIDEMILL_MODELS_LAYERS_ATTENTION_BRANCH_H_
#define TIDEMILL_MODELS_LAYERS_ATTENTION_BRANCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "models/layers/branch.h"
#include "models/layers/norm.h"
#include "state/cell.h"

namespace tidemill {

struct AttentionLayer {
  static constexpr size_t kNoRope = SIZE_MAX;

  Linear q = {};                  // [heads * head_dim, hidden], or 2 * hidden if the branch reads tokens
  Linear k = {}, v = {};          // [kv_heads * head_dim, as q]
  Linear gate = {};               // as q, or not present
  Linear o = {};                  // [hidden, heads * head_dim]
  Norm q_norm = {}, k_norm = {};  // of each head, [head_dim]; RMS or none
  size_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;            // of the scores
  float soft_cap = 0;         // of the scores; 0: none
  size_t window = 0;          // positions that a row sees, itself included; 0: all
  size_t rope = 0;            // which of the model's rope tables; kNoRope: positions come with the embedding
  bool reads_tokens = false;  // of [t ; N(x)], t in StepBuffers::paired; sequential only         arXiv:2503.01840
};

class AttentionBranch : public Branch {
 public:
  explicit AttentionBranch(AttentionLayer layer) : layer_(std::move(layer)) {}

  size_t num_states() const override { return 1; }
  void AddStates(const StateOptions& options, SequenceState::Layers* layers) const override;
  Result<void> CheckKvType(DType kv_dtype) const override;
  std::vector<BufferRegion> Regions() const override;
  void ForEachWeight(const WeightVisitor& visit) const override;
  uint64_t other_bytes() const override { return layer_.q_norm.bytes() + layer_.k_norm.bytes(); }
  size_t ScratchBytes() const override {
    return std::max(AttentionScratchBytes(shape(DType::kF32)), SparseScratchBytes(shape(DType::kF32)));
  }
  void AddWork(DType kv_dtype, BranchWork* work) const override;
  bool RunsWith(const Branch& other) const override;
  void Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;
  void AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;

 private:
  enum Region : size_t { kQ, kK, kV, kAttended, kGate };
  size_t q_dim() const { return layer_.heads * layer_.head_dim; }
  size_t gate_dim() const { return layer_.gate.present() ? q_dim() : 0; }
  size_t kv_dim() const { return layer_.kv_heads * layer_.head_dim; }
  AttentionShape shape(DType kv_dtype) const;
  struct Buffers {
    Matrix<float> q, k, v, attended;  // [rows, q_dim or kv_dim]
    Matrix<float> gate;               // [rows, gate_dim]
  };
  Buffers BuffersOf(const StepBuffers& b, const BranchCells& cells) const;
  static std::span<const DecoderCell> QueriesOf(const BranchCells& cells);
  void NormAndTurn(ExecutionContext& alone, const StepBuffers& b, const Norm& norm, size_t first,
                   Matrix<float> rows) const;
  void PlaceQueries(ExecutionContext& alone, const StepBuffers& b, const Buffers& own, size_t first,
                    size_t count) const;
  void PlaceRows(ExecutionContext& alone, const StepBuffers& b, const Buffers& own, const Cell& cell, size_t state,
                 size_t first, size_t count) const;
  static void AttendDense(ExecutionContext& ctx, StepBuffers& b, const Buffers& own, const BranchCells& cells);
  void AttendSparse(ExecutionContext& ctx, StepBuffers& b, const Buffers& own, const Cell& cell, size_t state) const;

  AttentionLayer layer_;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_ATTENTION_BRANCH_H_
