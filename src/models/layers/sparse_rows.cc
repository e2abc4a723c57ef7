#include "models/layers/sparse_rows.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernels/heavy_hitters.h"
#include "kernels/sparse_attention.h"
#include "models/layers/branch_cells.h"
#include "state/sparse_kv_layer.h"

namespace tidemill {
namespace {

// Null: rows of this layer are dense.
SparseKvLayer* ActiveSparse(KvLayer& kv) {
  SparseKvLayer* sparse = kv.AsSparse();
  return sparse == nullptr || sparse->form().kind == SparseKind::kDense ? nullptr : sparse;
}

size_t PositionOf(const SequenceRows& rows, size_t row) {
  if (rows.parents.empty()) return rows.first_position() + row;
  size_t position = rows.first_position();
  for (int32_t node = rows.parents[row]; node >= 0; node = rows.parents[static_cast<size_t>(node)]) ++position;
  return position;
}

bool IsSparse(const SequenceRows& rows, size_t row) { return PositionOf(rows, row) >= rows.sparse_from; }

// Calls f(layer, sequence's rows, row) for every sparse row of the cell whose form's kind is one of two.
template <typename F>
void ForEachSparseRow(const Cell& cell, size_t state, SparseKind a, SparseKind b, const F& f) {
  for (const SequenceRows& rows : cell.sequences) {
    SparseKvLayer* layer = ActiveSparse(BranchCells::StateOf<KvLayer>(rows, state));
    if (layer == nullptr || (layer->form().kind != a && layer->form().kind != b)) continue;
    for (size_t row = 0; row < rows.num_rows; ++row) {
      if (IsSparse(rows, row)) f(*layer, rows, row);
    }
  }
}

// Of a form that evicts, or of a row that sees no more than k positions.
void CountRow(const AttentionShape& shape, const SparseForm& form, size_t seen, SparseCounts* counts) {
  ++counts->rows;
  counts->short_rows += AttendedPositions(form, seen) == seen ? 1U : 0U;
  counts->dense_bytes += static_cast<uint64_t>(AttentionCost(shape, 1, seen, seen).bytes);
  counts->bytes += static_cast<uint64_t>(SparseCost(shape, form, seen, 0, false).bytes);
}

void Count(const AttentionShape& shape, const SparseTask& task, size_t position, SparseCounts* counts) {
  const size_t first = shape.window == 0 || position + 1 < shape.window ? 0 : position + 1 - shape.window;
  const size_t seen = position + 1 - first;
  if (seen <= task.form->k) return CountRow(shape, *task.form, seen, counts);
  const double dense = AttentionCost(shape, 1, seen, seen).bytes;
  ++counts->rows;
  counts->dense_bytes += static_cast<uint64_t>(dense);
  const auto dense_groups = std::accumulate(task.result.was_dense.begin(), task.result.was_dense.end(), uint64_t{0});
  counts->groups += shape.kv_heads;
  counts->dense_groups += dense_groups;
  counts->alpha += std::accumulate(task.result.alpha.begin(), task.result.alpha.end(), 0.0);
  counts->heads += shape.heads;
  const bool has_columns = !task.columns.blocks.empty() && task.columns.blocks.front().columns != nullptr;
  const size_t filled = task.columns.filled - std::min(task.columns.filled, first);
  const double sparse = task.form->floor >= 1 ? 0 : SparseCost(shape, *task.form, seen, filled, has_columns).bytes;
  const double part = static_cast<double>(dense_groups) / static_cast<double>(shape.kv_heads);
  counts->bytes += static_cast<uint64_t>(sparse + dense * part);
  if (task.result.audit == nullptr) return;
  ++counts->audits;
  counts->kept_mass += static_cast<double>(task.result.audit->kept_mass);
  counts->error += static_cast<double>(task.result.audit->error);
  counts->agreement += static_cast<double>(task.result.audit->agreement);
}

// kSparq and kTopk.
void AttendScored(ExecutionContext& ctx, const AttentionShape& shape, const Cell& cell, size_t state,
                  ConstMatrix<float> q, Matrix<float> out, SparseRowMemory& scratch) {
  const auto for_each = [&](const auto& f) { ForEachSparseRow(cell, state, SparseKind::kSparq, SparseKind::kTopk, f); };
  size_t count = 0;
  for_each([&count](const SparseKvLayer&, const SequenceRows&, size_t) { ++count; });
  scratch.tasks.clear();
  scratch.tasks.reserve(count);
  scratch.alpha.resize(count * shape.heads);
  scratch.was_dense.resize(count * shape.kv_heads);
  scratch.audits.resize(count);
  for_each([&](SparseKvLayer& layer, const SequenceRows& rows, size_t row) {
    const size_t i = scratch.tasks.size();
    const SparseForm& form = layer.form();
    const bool audited = form.audit != 0 && PositionOf(rows, row) % form.audit == 0;
    scratch.tasks.push_back(
        {.form = &form,
         .context = layer.Context(rows.last_slot()),
         .columns = layer.Columns(),
         .first_position = rows.first_position(),
         .parents = rows.parents,
         .row = row,
         .q = q.row(rows.first_row + row),
         .out = out.row(rows.first_row + row),
         .result = {.alpha = std::span(scratch.alpha).subspan(i * shape.heads, shape.heads),
                    .kept = {},
                    .was_dense = std::span(scratch.was_dense).subspan(i * shape.kv_heads, shape.kv_heads),
                    .audit = audited ? &scratch.audits[i] : nullptr}});
  });
  SparseAttention(ctx, shape, scratch.tasks);
  size_t i = 0;
  for_each([&](SparseKvLayer& layer, const SequenceRows& rows, size_t row) {
    Count(shape, scratch.tasks[i++], PositionOf(rows, row), &layer.counts());
  });
}

// The first kSparseSinks positions and the last ones; all, where that is no more than k.
void AttendWindows(ExecutionContext& ctx, const AttentionShape& shape, const Cell& cell, size_t state,
                   ConstMatrix<float> q, Matrix<float> out, SparseRowMemory& scratch) {
  const auto for_each = [&](const auto& f) {
    ForEachSparseRow(cell, state, SparseKind::kWindow, SparseKind::kWindow, f);
  };
  size_t used = 0;  // of scratch.positions
  const auto run = [&] {
    SelectedAttention(ctx, shape, scratch.selected);
    scratch.selected.clear();
    used = 0;
  };
  scratch.selected.clear();
  for_each([&](SparseKvLayer& layer, const SequenceRows& rows, size_t row) {
    const size_t end = PositionOf(rows, row) + 1, kept = std::min(layer.form().k, end),
                 last = kept - std::min(kept, kSparseSinks), need = shape.kv_heads * kept;
    if (need > scratch.positions.size() - used) run();
    if (need > scratch.positions.size()) scratch.positions.resize(need);
    uint32_t* next = scratch.positions.data() + used;
    for (size_t head = 0; head < shape.kv_heads; ++head) {
      for (size_t i = 0; i < kept; ++i) *next++ = static_cast<uint32_t>(i < kept - last ? i : end - kept + i);
    }
    scratch.selected.push_back({.context = layer.Context(rows.last_slot()),
                                .first_position = rows.first_position(),
                                .parents = rows.parents,
                                .row = row,
                                .positions = std::span(scratch.positions).subspan(used, need),
                                .count = kept,
                                .q = q.row(rows.first_row + row),
                                .out = out.row(rows.first_row + row)});
    used += need;
    layer.MarkEvicting();
    CountRow(shape, layer.form(), end, &layer.counts());
  });
  run();
}

void AttendHeavy(ExecutionContext& ctx, const AttentionShape& shape, SparseKvLayer& layer, const SequenceRows& rows,
                 ConstMatrix<float> q, Matrix<float> out, SparseRowMemory& scratch) {
  TIDEMILL_CHECK(rows.parents.empty());  // drafts are refused
  scratch.sums.clear();
  for (size_t head = 0; head < shape.kv_heads; ++head)
    scratch.sums.push_back(layer.StepSums(head, rows.slot, rows.num_rows));
  const size_t dense = NumDenseRows(layer, rows);
  AttendHeavyHitters(ctx, shape,
                     {.form = &layer.form(),
                      .context = layer.Context(rows.last_slot()),
                      .first_position = rows.first_position(),
                      .dense_rows = dense,
                      .q = q.Rows(rows.first_row, rows.num_rows),
                      .out = out.Rows(rows.first_row, rows.num_rows),
                      .sums = scratch.sums});
  for (size_t row = dense; row < rows.num_rows; ++row)
    CountRow(shape, layer.form(), rows.first_position() + row + 1, &layer.counts());
}

}  // namespace

bool NeedsSparse(KvLayer& kv, const SequenceRows& rows) {
  const SparseKvLayer* layer = ActiveSparse(kv);
  if (layer == nullptr) return false;
  if (layer->form().kind == SparseKind::kH2o) return true;
  for (size_t row = rows.num_rows; row-- > 0;) {
    if (IsSparse(rows, row)) return true;
  }
  return false;
}

size_t NumDenseRows(KvLayer& kv, const SequenceRows& rows) {
  if (ActiveSparse(kv) == nullptr) return rows.num_rows;
  size_t count = rows.num_rows;
  while (count != 0 && IsSparse(rows, count - 1)) --count;
  return count;
}

void AttendSparseRows(ExecutionContext& ctx, const AttentionShape& shape, const Cell& cell, size_t state,
                      ConstMatrix<float> q, Matrix<float> out, SparseRowMemory& scratch) {
  if (ctx.IsAbandoned()) return;  // what is counted was computed
  AttendScored(ctx, shape, cell, state, q, out, scratch);
  AttendWindows(ctx, shape, cell, state, q, out, scratch);
  for (const SequenceRows& rows : cell.sequences) {
    SparseKvLayer* layer = ActiveSparse(BranchCells::StateOf<KvLayer>(rows, state));
    if (layer != nullptr && layer->form().kind == SparseKind::kH2o)
      AttendHeavy(ctx, shape, *layer, rows, q, out, scratch);
  }
}

}  // namespace tidemill
