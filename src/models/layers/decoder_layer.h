// A transformer decoder layer: branches around the residual stream. Norms and the branches' order are options; a family adds no code.
//
//   sequential  x <- x + N'(branch(N(x))) for each branch                              arXiv:2302.13971; N': Gemma 3
//   parallel    x <- x + the sum of branch(N(x)) over branches                         arXiv:2204.06745
//   post-norm   x <- N(x + branch(x)) for each branch                                  arXiv:1706.03762, OPT-350M
//
// Each matrix operation is one group over cells of one form.
#ifndef TIDEMILL_MODELS_LAYERS_DECODER_LAYER_H_
#define TIDEMILL_MODELS_LAYERS_DECODER_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cost.h"
#include "models/layers/branch.h"
#include "models/layers/decoder_cell.h"
#include "models/layers/norm.h"
#include "models/layers/step_buffers.h"

namespace tidemill {

enum class Residual : uint8_t { kSequential, kParallel, kPostNorm };

struct LayerBranch {
  Norm norm;                       // N
  Norm out_norm = {};              // N'; sequential only
  std::unique_ptr<Branch> branch;  // never null
};

struct DecoderLayer {
  Residual residual = Residual::kSequential;
  std::vector<LayerBranch> branches;

  template <typename T>
  void Add(Norm norm, Norm out_norm, T branch) {
    branches.push_back({std::move(norm), std::move(out_norm), std::make_unique<T>(std::move(branch))});
  }
  void ForEachWeight(const Branch::WeightVisitor& visit) const;
  // Whether that branch computes only outputs (Cell::outputs) where the layer is the stack's last: it remembers nothing, and none does that
  // reads its result.
  bool IsOfOutputs(size_t branch) const;
  size_t num_states() const;
  uint64_t bytes() const;
  // Of its matrix products for `rows` rows, `memory_rows` of them memory rows; `outputs`: of a last layer, how many have a result. Rows of
  // mixtures spread evenly over experts.
  Cost ProductCost(size_t rows, Isa isa, size_t memory_rows = 0, size_t outputs = SIZE_MAX) const;
  BranchWork Work(DType kv_dtype) const;
};

// Runs cells of any layers, none of which needs another's result: x of their rows is read and updated, rope holds the rows' angles. The
// states have reserved the rows and keep them uncommitted. A cell with outputs runs the others' rows only as far as its states go: x and
// the rest of them is lost. Cells of one form run as one, side by side: the list is reordered. Allocates
// nothing after the first steps.
void RunDecoderCells(ExecutionContext& ctx, StepBuffers& buffers, std::span<DecoderCell> cells);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_DECODER_LAYER_H_
