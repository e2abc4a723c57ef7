#include "models/layers/branch_cells.h"

namespace tidemill {

void InputNorm::operator()(ExecutionContext& alone, size_t first, size_t count) const {
  const Norm plain;  // y = x; allocates nothing
  ForCellRows(cells.cells, first, count, [&](const DecoderCell& c, size_t row, size_t rows) {
    const bool after = c.layer->residual == Residual::kPostNorm;
    RunNorm(alone, after ? plain : cells.at(c).norm, b.x.Rows(row, rows), out.Rows(row, rows));
  });
}

void SettleStates(ExecutionContext& ctx, const BranchCells& cells, const DecoderCell& c) {
  constexpr uint64_t kFewestBytes = uint64_t{1} << 16;
  size_t parts = 0;
  uint64_t bytes = 0;
  const size_t first_state = cells.first_state(c), num_states = cells.at(c).branch->num_states();
  const auto for_each = [&](const auto& f) {
    for (const SequenceRows& rows : c.cell.sequences) {
      for (size_t i = 0; i < num_states && rows.slot == 0; ++i) f(rows.state->layer(first_state + i));
    }
  };
  for_each([&](LayerState& state) {
    parts += state.num_settle_parts();
    bytes += state.settle_bytes();
  });
  if (parts == 0) return;
  if (bytes < kFewestBytes) return for_each([](LayerState& state) { state.Settle(); });
  ctx.threads().ParallelFor(parts, [&](size_t part, size_t) {
    size_t first = 0;  // of the state's parts
    for_each([&](LayerState& state) {
      const size_t count = state.num_settle_parts();
      if (part >= first && part < first + count) state.SettlePart(part - first);
      first += count;
    });
  });
  for_each([](LayerState& state) {
    if (state.num_settle_parts() != 0) state.EndSettle();
  });
}

}  // namespace tidemill
