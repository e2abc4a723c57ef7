#include "planner/predicted_costs.h"

#include <algorithm>
#include <array>

#include "base/checked_math.h"
#include "planner/growth_choice.h"

namespace tidemill {
namespace {

// Positions that the rows of a prompt see in all.
double SeenPositions(double tokens, double window) {
  if (window == 0 || tokens <= window) return tokens * (tokens + 1) / 2;
  return window * (window + 1) / 2 + (tokens - window) * window;
}

}  // namespace

double StraightAt(std::span<const size_t> at, std::span<const double> numbers, double x) {
  size_t upper = 1;
  while (upper + 1 < at.size() && static_cast<double>(at[upper]) < x) ++upper;
  const auto low = static_cast<double>(at[upper - 1]), high = static_cast<double>(at[upper]);
  const double rise = numbers[upper] - numbers[upper - 1];
  if (x >= high) return numbers[upper] + std::max(0.0, rise) * (x - high) / (high - low);
  return numbers[upper - 1] + rise * std::max(0.0, (x - low) / (high - low));
}

double PredictedCosts::Products(const std::vector<WeightGroup>& groups, double rows, double from_memory) const {
  double seconds = 0;
  for (const WeightGroup& group : groups) {
    const double slots = rows * group.per_token, busy = std::min(group.experts, slots);
    if (busy == 0) continue;
    const ProductSeconds& t = operations().product[static_cast<size_t>(group.dtype)];
    const double all = StraightAt(kProductRows, t, slots / busy);
    const double arithmetic = t.back() * (slots / busy) / static_cast<double>(kProductRows.back());
    const double saved = (1 - 1 / kCacheSpeed) * std::max(0.0, t.front() - arithmetic);
    seconds += busy * group.bytes * (all - (1 - from_memory) * saved);
  }
  return seconds;
}

double PredictedCosts::RowWorks(size_t rows) const {
  const size_t threads = threads_ == ThreadUse::kOne ? 1 : profile_.threads;
  double seconds = 0;
  for (const RowWork& work : model_.row_works) {
    const size_t blocks = DivideRoundUp(rows, BlockRows(work.cols));
    const double share = static_cast<double>(DivideRoundUp(blocks, threads)) / static_cast<double>(blocks);
    seconds += static_cast<double>(rows * work.elements) * profile_.element * share;
    if (blocks > 1) seconds += operations().loop;
  }
  return seconds;
}

double PredictedCosts::RowsOfStep(size_t rows, size_t head_rows) const {
  const double loops = static_cast<double>(model_.loops + (head_rows == 0 ? 0 : 1)) * operations().loop;
  const auto read = static_cast<double>(head_rows);
  return Products(model_.weights, static_cast<double>(rows)) + Products(model_.outputs, read) +
         Products(model_.head, read) + RowWorks(rows) + loops;
}

double PredictedCosts::AttentionOf(const AttentionShape& shape, double rows, double kv_rows) const {
  const auto group = static_cast<double>(shape.heads) / static_cast<double>(shape.kv_heads);
  std::array<double, kAttentionDims.size()> by_dim;
  for (size_t dim = 0; dim < by_dim.size(); ++dim) {
    std::array<double, kAttentionGroups.size()> by_group;
    for (size_t i = 0; i < by_group.size(); ++i)
      by_group[i] = StraightAt(kAttentionRows, operations().attention[dim][i], rows);
    by_dim[dim] = StraightAt(kAttentionGroups, by_group, group);
  }
  return static_cast<double>(shape.kv_heads) * kv_rows *
         StraightAt(kAttentionDims, by_dim, static_cast<double>(shape.head_dim));
}

double PredictedCosts::WriteFactor() const {
  const double read = profile_.one.product[static_cast<size_t>(DType::kF32)].front();
  return std::clamp(1 / (profile_.copy * read) - 2, 0.05, 1.0);
}

double PredictedCosts::Linear(const DeltaClass& form, size_t rows) const {
  const LinearLayers& linear = model_.linear;
  if (linear.layers == 0) return 0;
  const ProductSeconds& t = operations().product[static_cast<size_t>(DType::kF32)];
  const auto k = static_cast<double>(rows), m = static_cast<double>(form.period);
  const auto state = static_cast<double>(linear.shape.state_bytes());
  const double entries = static_cast<double>(linear.shape.entry_bytes(form.dtype)) * (m + 1) / 2;
  return static_cast<double>(linear.layers) *
         (state * StraightAt(kProductRows, t, 2 * k) + k * t.front() * (WriteFactor() * state / m + entries));
}

double PredictedCosts::LinearStart(DType dtype, double entries) const {
  const double read = operations().product[static_cast<size_t>(DType::kF32)].front();
  const double bytes = static_cast<double>(model_.linear.shape.entry_bytes(dtype)) * entries;
  return static_cast<double>(model_.linear.layers) * bytes * read;
}

double PredictedCosts::DecodeStep(size_t depth, size_t batch) const { return BatchStep(depth, 1, 1, batch); }

double PredictedCosts::CheckStep(size_t depth, size_t rows, size_t others) const {
  const DeltaClass& form = model_.linear.shape.form;
  return RowsOfStep(rows + others, rows + others) + AttentionOfStep(depth, rows) + Linear(form, rows) +
         static_cast<double>(others) * (AttentionOfStep(depth, 1) + Linear(form, 1));
}

double PredictedCosts::BatchStep(size_t depth, size_t rows, size_t asked, size_t sequences) const {
  return RowsOfStep(rows * sequences, asked * sequences) +
         static_cast<double>(sequences) * (AttentionOfStep(depth, rows) + Linear(model_.linear.shape.form, rows));
}

double PredictedCosts::DenseRows(const AttentionShape& shape, size_t depth, size_t rows) const {
  const size_t all = depth + rows;
  const size_t seen = shape.window == 0 ? all : std::min(all, shape.window + rows - 1);  // by any of them
  return AttentionOf(shape, static_cast<double>(rows), static_cast<double>(seen));
}

double PredictedCosts::SparseRow(const AttentionLayers& group, size_t all) const {
  const AttentionShape& shape = group.shape;
  const size_t seen = shape.window == 0 ? all : std::min(all, shape.window), filled = seen / kSumRows * kSumRows;
  const double gathered = static_cast<double>(shape.kv_heads) *
                          SparseReadsOf(shape, group.sparse, seen, filled, group.has_columns).gathered;
  const double bytes = SparseCost(shape, group.sparse, seen, filled, group.has_columns).bytes;
  const double part = (bytes + (kGatheredByte - 1) * gathered) / AttentionCost(shape, 1, seen, seen).bytes;
  return part * AttentionOf(shape, 1, static_cast<double>(seen));
}

double PredictedCosts::Attention(std::span<const AttentionLayers> layers, size_t depth, size_t rows) const {
  double seconds = 0;
  for (const AttentionLayers& group : layers) {
    const bool is_sparse = group.sparse.kind != SparseKind::kDense;
    seconds +=
        static_cast<double>(group.layers) *
        (is_sparse ? static_cast<double>(rows) * SparseRow(group, depth + rows) : DenseRows(group.shape, depth, rows));
  }
  return seconds;
}

double PredictedCosts::AttentionOfStep(size_t depth, size_t rows) const {
  if (depth >= model_.sparse_from.value_or(0)) return Attention(model_.attention, depth, rows);
  double seconds = 0;
  for (const AttentionLayers& group : model_.attention)
    seconds += static_cast<double>(group.layers) * DenseRows(group.shape, depth, rows);
  return seconds;
}

double PredictedCosts::Prefill(size_t tokens, size_t chunk) const {
  if (tokens == 0) return 0;
  const size_t rows = EqualPart(tokens, chunk), last = (tokens - 1) % rows + 1, others = (tokens - last) / rows;
  const DeltaClass& form = model_.linear.shape.form;
  double seconds = RowsOfStep(last, 1) + Linear(form, last);
  if (others != 0) seconds += static_cast<double>(others) * (RowsOfStep(rows, 0) + Linear(form, rows));
  const size_t from = std::min(tokens, model_.sparse_from.value_or(tokens));
  for (const AttentionLayers& group : model_.attention) {
    const bool is_sparse = group.sparse.kind != SparseKind::kDense && from != tokens;
    const auto dense = static_cast<double>(is_sparse ? from : tokens), layers = static_cast<double>(group.layers);
    const double seen = SeenPositions(dense, static_cast<double>(group.shape.window));
    const auto width = static_cast<double>(rows);
    seconds += layers * AttentionOf(group.shape, width, seen / width);
    // As if each saw as many as the one in the middle.
    if (is_sparse) seconds += layers * static_cast<double>(tokens - from) * SparseRow(group, (from + tokens) / 2 + 1);
  }
  return seconds;
}

PredictedCosts::SegmentSeconds PredictedCosts::Segment(size_t rows, size_t memory_rows, double from_memory,
                                                       size_t side_by_side) const {
  const auto all = static_cast<double>(rows), read = static_cast<double>(memory_rows);
  SegmentSeconds seconds;
  seconds.products = Products(model_.weights, all, from_memory) + Products(model_.memory, read, from_memory) +
                     Products(model_.outputs, read, from_memory);
  for (const AttentionLayers& group : model_.attention) {
    const double seen = SeenPositions(all, static_cast<double>(group.shape.window));
    seconds.attention += static_cast<double>(group.layers) * AttentionOf(group.shape, all, seen / all);
  }
  seconds.row_work = RowWorks(rows * side_by_side) / static_cast<double>(side_by_side);
  seconds.loops = static_cast<double>(model_.loops) * operations().loop;
  return seconds;
}

double PredictedCosts::layer_bytes() const {
  double bytes = 0;
  for (const auto* groups : {&model_.weights, &model_.memory, &model_.outputs}) {
    for (const WeightGroup& group : *groups) bytes += group.experts * group.bytes;
  }
  return bytes;
}

double PredictedCosts::ReadingWeights() const {
  double seconds = 0;
  for (const auto* groups : {&model_.weights, &model_.memory, &model_.outputs}) {
    for (const WeightGroup& group : *groups)
      seconds += group.experts * group.bytes * operations().product[static_cast<size_t>(group.dtype)].front();
  }
  return seconds;
}

double PredictedCosts::Growing(KvPolicy policy, size_t increment, size_t positions, size_t batch) const {
  const auto row_bytes = static_cast<double>(model_.state_row_bytes) * static_cast<double>(batch);
  const double copied = RowsCopied(policy, increment, positions);
  return row_bytes * (copied / profile_.copy + (copied + static_cast<double>(positions)) * profile_.touch);
}

double PredictedCosts::GrowOneRow() const {
  return static_cast<double>(model_.state_row_bytes) * (1 / profile_.copy + profile_.touch);
}

}  // namespace tidemill
