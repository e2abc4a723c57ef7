// Runs steps of a decoder stack: prepare rows -> lists of ready cells -> finish rows -> (the caller commits).
//
// Prompt chunks, single tokens and draft trees may share a step. A row's bits depend on its own sequence only.
#ifndef TIDEMILL_ENGINE_STEP_EXECUTOR_H_
#define TIDEMILL_ENGINE_STEP_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/cell_order.h"
#include "engine/step_rows.h"
#include "models/layers/decoder_layer.h"
#include "tidemill/result.h"

namespace tidemill {

class StepExecutor {
 public:
  using RowSink = StepRows::RowSink;

  // As StepRows::Create.
  static Result<std::unique_ptr<StepExecutor>> Create(const LanguageModel& model, ExecutionContext& ctx,
                                                      size_t max_rows);

  size_t max_rows() const { return rows_.max_rows(); }
  const StepCounts& counts() const { return rows_.counts(); }
  uint64_t work_bytes() const;  // what Create took, and the context's scratch

  // Room for sparse rows of a layer of this shape (SparseRowMemory::Reserve). Throws std::bad_alloc.
  void ReserveSparse(const AttentionShape& shape, size_t positions) {
    rows_.buffers().sparse.Reserve(max_rows(), shape, positions);
  }

  // Runs the step; commits nothing, allocates nothing. False: `interrupt` (may be null) became true, and nothing counts.
  bool Run(std::span<const StepSequence> sequences, const RowSink& sink, const std::atomic<bool>* interrupt,
           CellOrder& order);
  // Layer by layer.
  bool Run(std::span<const StepSequence> sequences, const RowSink& sink, const std::atomic<bool>* interrupt) {
    SequentialOrder order;
    return Run(sequences, sink, interrupt, order);
  }

 private:
  explicit StepExecutor(StepRows rows) : rows_(std::move(rows)) {}

  StepRows rows_;
  std::vector<DecoderCell> cells_;
  std::vector<size_t> first_states_;  // of each layer, in a sequence; then how many a sequence has
};

}  // namespace tidemill

#endif  // TIDEMILL_ENGINE_STEP_EXECUTOR_H_
