#include "engine/step_executor.h"

#include "base/check.h"
#include "base/float_environment.h"

namespace tidemill {

Result<std::unique_ptr<StepExecutor>> StepExecutor::Create(const LanguageModel& model, ExecutionContext& ctx,
                                                           size_t max_rows) {
  TIDEMILL_TRY(rows, StepRows::Create(model, ctx, max_rows));
  std::unique_ptr<StepExecutor> executor(new StepExecutor(std::move(rows)));
  executor->cells_.reserve(max_rows);
  executor->first_states_ = model.first_states();
  return executor;
}

uint64_t StepExecutor::work_bytes() const {
  ExecutionContext& ctx = rows_.ctx();
  uint64_t bytes = rows_.work_bytes() + ctx.shared_scratch().size();
  for (size_t thread = 0; thread < ctx.threads().num_all_threads(); ++thread) bytes += ctx.scratch(thread).size();
  return bytes;
}

bool StepExecutor::Run(std::span<const StepSequence> sequences, const RowSink& sink, const std::atomic<bool>* interrupt,
                       CellOrder& order) {
  const ScopedDefaultFloatEnvironment float_environment;
  ExecutionContext& ctx = rows_.ctx();
  const ExecutionContext::Interruptible interruptible(ctx, interrupt);
  for (const StepSequence& sequence : sequences)
    TIDEMILL_CHECK(sequence.state->num_layers() == first_states_.back());  // made by this model
  rows_.Prepare(sequences);
  order.Begin(rows_);
  while (true) {
    const std::span<const Cell> ready = order.Next(rows_);
    if (ready.empty()) break;
    if (ctx.Stops()) return false;
    cells_.clear();
    for (const Cell& cell : ready)
      cells_.push_back({&rows_.model().layers[cell.layer], first_states_[cell.layer], cell});
    RunDecoderCells(ctx, rows_.buffers(), cells_);
  }
  return rows_.Finish(sink);
}

}  // namespace tidemill
