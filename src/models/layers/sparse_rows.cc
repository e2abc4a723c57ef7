#include "models/layers/sparse_rows.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernels/sparse_attention.h"
#include "models/layers/branch_cells.h"
#include "state/sparse_kv_layer.h"

namespace tidemill {
namespace {

// Null: rows of this layer are dense.
SparseKvLayer* SparseOf(KvLayer& kv) {
  if (kv.kind() != StateKind::kSparseKv) return nullptr;
  auto& sparse = static_cast<SparseKvLayer&>(kv);
  return sparse.form().kind == SparseKind::kDense ? nullptr : &sparse;
}

size_t PositionOf(const SequenceRows& rows, size_t row) {
  if (rows.parents.empty()) return rows.first_position() + row;
  size_t position = rows.first_position();
  for (int32_t node = rows.parents[row]; node >= 0; node = rows.parents[static_cast<size_t>(node)]) ++position;
  return position;
}

bool IsSparse(const SequenceRows& rows, size_t row) { return PositionOf(rows, row) >= rows.sparse_from; }

// Calls f(layer, sequence's rows, row) for every sparse row of the cell.
template <typename F>
void ForEachSparseRow(const Cell& cell, size_t state, const F& f) {
  for (const SequenceRows& rows : cell.sequences) {
    SparseKvLayer* layer = SparseOf(BranchCells::StateOf<KvLayer>(rows, state));
    if (layer == nullptr) continue;
    for (size_t row = 0; row < rows.num_rows; ++row) {
      if (IsSparse(rows, row)) f(*layer, rows, row);
    }
  }
}

void Count(const AttentionShape& shape, const SparseTask& task, size_t position, SparseCounts* counts) {
  const size_t first = shape.window == 0 || position + 1 < shape.window ? 0 : position + 1 - shape.window;
  const size_t seen = position + 1 - first;
  const double dense = AttentionCost(shape, 1, seen, seen).bytes;
  ++counts->rows;
  counts->dense_bytes += static_cast<uint64_t>(dense);
  if (seen <= task.form->k) {
    ++counts->dense_rows;
    counts->bytes += static_cast<uint64_t>(dense);
    return;
  }
  const auto dense_groups =
      static_cast<uint64_t>(std::accumulate(task.result.was_dense.begin(), task.result.was_dense.end(), size_t{0}));
  counts->groups += shape.kv_heads;
  counts->dense_groups += dense_groups;
  counts->alpha += std::accumulate(task.result.alpha.begin(), task.result.alpha.end(), 0.0);
  counts->heads += shape.heads;
  const bool has_columns = !task.columns.blocks.empty() && task.columns.blocks.front().columns != nullptr;
  const double sparse =
      task.form->floor >= 1 ? 0 : SparseCost(shape, *task.form, seen, task.columns.filled, has_columns).bytes;
  counts->bytes +=
      static_cast<uint64_t>(sparse + dense * static_cast<double>(dense_groups) / static_cast<double>(shape.kv_heads));
  if (task.result.audit == nullptr) return;
  ++counts->audits;
  counts->kept_mass += static_cast<double>(task.result.audit->kept_mass);
  counts->error += static_cast<double>(task.result.audit->error);
  counts->agreement += static_cast<double>(task.result.audit->agreement);
}

}  // namespace

bool HasSparseRows(KvLayer& kv, const SequenceRows& rows) {
  if (SparseOf(kv) == nullptr) return false;
  for (size_t row = rows.num_rows; row-- > 0;) {
    if (IsSparse(rows, row)) return true;
  }
  return false;
}

size_t NumDenseRows(KvLayer& kv, const SequenceRows& rows) {
  if (SparseOf(kv) == nullptr) return rows.num_rows;
  size_t count = rows.num_rows;
  while (count != 0 && IsSparse(rows, count - 1)) --count;
  return count;
}

void AttendSparseRows(ExecutionContext& ctx, const AttentionShape& shape, const Cell& cell, size_t state,
                      ConstMatrix<float> q, Matrix<float> out, SparseScratch& scratch) {
  size_t count = 0;
  ForEachSparseRow(cell, state, [&count](const SparseKvLayer&, const SequenceRows&, size_t) { ++count; });
  scratch.tasks.clear();
  scratch.tasks.reserve(count);
  scratch.alpha.resize(count * shape.heads);
  scratch.was_dense.resize(count * shape.kv_heads);
  scratch.audits.resize(count);
  ForEachSparseRow(cell, state, [&](SparseKvLayer& layer, const SequenceRows& rows, size_t row) {
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
  ForEachSparseRow(cell, state, [&](SparseKvLayer& layer, const SequenceRows& rows, size_t row) {
    Count(shape, scratch.tasks[i++], PositionOf(rows, row), &layer.counts());
  });
}

}  // namespace tidemill
