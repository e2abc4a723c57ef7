// A branch of a decoder layer: attention, a feed-forward layer, a mixture. What it remembers, the memory that its steps need, what it
// weighs and costs, and how it runs over cells. Nothing outside `models` sees more of it.
#ifndef TIDEMILL_MODELS_LAYERS_BRANCH_H_
#define TIDEMILL_MODELS_LAYERS_BRANCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/isa.h"
#include "kernels/attention.h"
#include "kernels/delta_rule.h"
#include "kernels/execution_context.h"
#include "kernels/row_blocks.h"
#include "kernels/sparse_attention.h"
#include "models/layers/linear.h"
#include "models/layers/step_buffers.h"
#include "state/kv_growth.h"
#include "state/segment_kv_layer.h"
#include "state/sequence_state.h"
#include "tensor/dtype.h"
#include "tidemill/result.h"

namespace tidemill {

class PageCommitter;
struct BranchCells;  // models/layers/branch_cells.h

// A layer whose cache sparse attention reads.
struct SparseLayer {
  SparseForm form = {};
  bool columns = true;  // keys stand in columns, too
};

struct StateOptions {
  DType kv_dtype = DType::kF16;
  KvGrowth growth = {};
  size_t max_length = 1;
  uint64_t numeric_class = 0;
  DeltaClass linear = {};                                   // of linear attention
  std::span<const std::optional<SparseLayer>> sparse = {};  // [layers]; none: a plain cache; empty: all are plain
  std::optional<SparseLayer> own_sparse = {};               // of the layer at hand: MakeState sets it
  std::optional<SegmentShape> segments = {};                // of a recurrent-memory model: MakeState sets it
  size_t last_segment = SIZE_MAX;                           // see SegmentKvLayer
  Isa isa = Isa::kBaseline;                                 // of what states compute outside cells
  size_t draft_rows = 0;                                    // see SequenceOptions: MakeState sets it
  PageCommitter* pages = nullptr;                           // outlives the state; null: see KvOptions
  StateLedger* ledger = nullptr;                            // who counts the state's bytes; outlives it; null: nobody
};

// A linear layer as steps use it: number `expert` of a mixture's `experts`, of which a row goes through `per_token`.
struct WeightUse {
  const Linear& linear;
  size_t expert = 0, experts = 1, per_token = 1;
  bool of_memory_rows = false;  // of a segment's memory rows alone
  bool of_outputs = false;      // in the stack's last layer, of rows whose result is read alone (Cell::outputs)
};

// What a step does beside products, in the kernels' terms.
struct BranchWork {
  std::vector<AttentionShape> attention;
  std::vector<RowWork> rows;     // of one row
  size_t loops = 0;              // over threads, of products and attention
  uint64_t state_row_bytes = 0;  // that a token adds to the state for good
};

class Branch {
 public:
  using WeightVisitor = std::function<void(const WeightUse& use)>;

  virtual ~Branch() = default;

  // The layer states of a sequence that it remembers in.
  virtual size_t num_states() const { return 0; }
  virtual void AddStates(const StateOptions&, SequenceState::Layers*) const {}  // empty ones, num_states() of them
  // kUnsupported: rows of this type cannot hold what it remembers.
  virtual Result<void> CheckKvType(DType) const { return {}; }

  // Pointers of StepBuffers::inputs that a row needs.
  virtual size_t num_inputs() const { return 0; }
  // Of linear attention; its class is StateOptions::linear.
  virtual std::optional<DeltaShape> delta_shape() const { return std::nullopt; }
  // StepBuffers::Region finds them by their index.
  virtual std::vector<BufferRegion> Regions() const = 0;
  virtual void ForEachWeight(const WeightVisitor& visit) const = 0;
  virtual uint64_t other_bytes() const { return 0; }  // of weights that ForEachWeight does not show
  virtual size_t ScratchBytes() const { return 0; }   // that a thread needs beside products
  virtual void AddWork(DType kv_dtype, BranchWork* work) const = 0;

  // Whether cells of both may run in one call. Then `other` is of the same class and has the same regions.
  virtual bool RunsWith(const Branch& other) const = 0;
  // Reads x of the cells' rows, and keeps in regions what AddOutput needs. States change here.
  virtual void Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const = 0;
  // x += the result; or b.normed = the result, where the layer norms it.
  virtual void AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_BRANCH_H_
