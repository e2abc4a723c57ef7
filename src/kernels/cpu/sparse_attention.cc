#include "kernels/sparse_attention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/sparse_unit.h"

namespace tidemill {
namespace {

// Units that each thread should find, so that all end together.
constexpr size_t kSparseUnitsPerThread = 4;

// Of chunks that one thread scores after another: two are a block of columns.
constexpr size_t kMinRunChunks = 4;

class SparseRun {
 public:
  SparseRun(ExecutionContext& ctx, const AttentionShape& shape, std::span<const SparseTask> tasks)
      : ctx_(ctx), shape_(shape), tools_(ctx), tasks_(tasks) {
    size_t positions = 1;
    for (const SparseTask& task : tasks) {
      const RowContext context(shape, task.context, task.first_position, task.parents, task.row);
      positions = std::max(positions, context.end - context.begin);
    }
    unit_bytes_ = SparseUnit::Bytes(shape, positions);
    max_chunks_ = DivideRoundUp(positions, kAttentionChunk) + 1;
    TIDEMILL_CHECK(unit_bytes_ <= ctx.shared_scratch().size());
  }

  void Run() {
    const size_t units = tasks_.size() * shape_.kv_heads, room = ctx_.shared_scratch().size() / unit_bytes_;
    const size_t threads = ctx_.threads().num_threads();
    if (threads <= room && (threads == 1 || units >= threads * kSparseUnitsPerThread)) {
      ctx_.threads().ParallelFor(units, [&](size_t index, size_t thread) {
        if (IsAudited(index)) return;
        SparseUnit unit = UnitAt(index, thread);
        SparseScratch scratch(shape_, ctx_.scratch(thread));
        unit.Prepare();
        unit.Score(0, unit.chunks(), scratch);
        unit.Finish(scratch);
      });
    } else {
      for (size_t first = 0; first < units; first += room) Wave(first, std::min(units, first + room));
    }
    for (const SparseTask& task : tasks_) {
      if (task.result.audit != nullptr) Audit(task);
    }
  }

 private:
  bool IsAudited(size_t index) const { return tasks_[index / shape_.kv_heads].result.audit != nullptr; }

  SparseUnit UnitAt(size_t index, size_t place) {
    return {shape_, tools_, tasks_[index / shape_.kv_heads], index % shape_.kv_heads,
            ctx_.shared_scratch().data() + place * unit_bytes_};
  }

  // Units [first, end), each with a place of its own, by parts.
  void Wave(size_t first, size_t end) {
    const size_t units = end - first;
    ctx_.threads().ParallelFor(units, [&](size_t i, size_t) {
      if (!IsAudited(first + i)) UnitAt(first + i, i).Prepare();
    });
    const size_t run =
        std::max(kMinRunChunks, units * max_chunks_ / (ctx_.threads().num_threads() * kSparseUnitsPerThread) / 2 * 2);
    const size_t runs = DivideRoundUp(max_chunks_, run);
    ctx_.threads().ParallelFor(units * runs, [&](size_t i, size_t thread) {
      if (IsAudited(first + i / runs)) return;
      SparseScratch scratch(shape_, ctx_.scratch(thread));
      UnitAt(first + i / runs, i / runs).Score(i % runs * run, (i % runs + 1) * run, scratch);
    });
    ctx_.threads().ParallelFor(units, [&](size_t i, size_t thread) {
      if (IsAudited(first + i)) return;
      SparseScratch scratch(shape_, ctx_.scratch(thread));
      UnitAt(first + i, i).Finish(scratch);
    });
  }

  // One KV head after another: an audit is rare.
  void Audit(const SparseTask& task) {
    SparseUnit::Difference all;
    double groups = 0;
    for (size_t kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
      SparseUnit unit(shape_, tools_, task, kv_head, ctx_.shared_scratch().data());
      const auto score = [&] {
        ctx_.threads().ParallelFor(DivideRoundUp(unit.chunks(), kMinRunChunks), [&](size_t i, size_t thread) {
          SparseScratch scratch(shape_, ctx_.scratch(thread));
          unit.Score(i * kMinRunChunks, (i + 1) * kMinRunChunks, scratch);
        });
      };
      SparseScratch scratch(shape_, ctx_.scratch(0));
      unit.Prepare();
      score();
      unit.Finish(scratch);
      if (unit.is_dense()) continue;
      unit.PrepareExact();
      score();
      const SparseUnit::Difference one = unit.Audit(scratch);
      all.kept_mass += one.kept_mass;
      all.agreement += one.agreement;
      all.difference += one.difference;
      all.dense += one.dense;
      groups += 1;
    }
    *task.result.audit = {.kept_mass = 1, .error = 0, .agreement = 1};
    if (groups == 0) return;
    *task.result.audit = {.kept_mass = static_cast<float>(all.kept_mass / static_cast<double>(shape_.heads)),
                          .error = all.difference == 0 ? 0 : static_cast<float>(std::sqrt(all.difference / all.dense)),
                          .agreement = static_cast<float>(all.agreement / groups)};
  }

  ExecutionContext& ctx_;
  const AttentionShape& shape_;
  const SparseTools tools_;
  std::span<const SparseTask> tasks_;
  size_t unit_bytes_, max_chunks_;
};

}  // namespace

void SparseAttention(ExecutionContext& ctx, const AttentionShape& shape, std::span<const SparseTask> tasks) {
  TIDEMILL_DCHECK(shape.bias.empty() && shape.head_dim <= kMaxHeadDim && shape.heads / shape.kv_heads <= kMaxGroup);
  if (tasks.empty()) return;
  SparseRun(ctx, shape, tasks).Run();
}

void SelectedAttention(ExecutionContext& ctx, const AttentionShape& shape, std::span<const SelectedTask> tasks) {
  TIDEMILL_DCHECK(shape.bias.empty() && shape.head_dim <= kMaxHeadDim && shape.heads / shape.kv_heads <= kMaxGroup);
  const SparseTools tools(ctx);
  ctx.threads().ParallelFor(tasks.size() * shape.kv_heads, [&](size_t unit, size_t thread) {
    const SelectedTask& task = tasks[unit / shape.kv_heads];
    const size_t kv_head = unit % shape.kv_heads;
    const RowContext context(shape, task.context, task.first_position, task.parents, task.row);
    SparseScratch scratch(shape, ctx.scratch(thread));
    AttendPositions(shape, tools, context, kv_head, task.positions.subspan(kv_head * task.count, task.count), task.q,
                    task.out, scratch);
  });
}

size_t SparseScratchBytes(const AttentionShape& shape) { return SparseScratch::Bytes(shape); }

size_t SparseSharedBytes(const AttentionShape& shape, size_t positions) { return SparseUnit::Bytes(shape, positions); }

SparseReads SparseReadsOf(const AttentionShape& shape, const SparseForm& form, size_t n, size_t filled,
                          bool has_columns) {
  constexpr double kCacheLine = 64;
  const auto row = static_cast<double>(RowBytes(shape.kv_dtype, shape.head_dim));
  const auto positions = static_cast<double>(n);
  const size_t attended = AttendedPositions(form, n);
  double rest = 2 * static_cast<double>(attended) * row;
  if (attended == n || Evicts(form.kind)) return {.asked = rest, .memory = rest};
  const bool exact = form.kind == SparseKind::kTopk || form.r == shape.head_dim;
  const auto dim = static_cast<double>(shape.head_dim), r = exact ? dim : static_cast<double>(form.r);
  const auto in_sums = static_cast<double>(std::min(n, filled)), in_columns = has_columns ? in_sums : 0;
  if (form.kind == SparseKind::kSparq && form.reallocate)
    rest += (positions - in_sums) * row + (filled != 0 ? 8 * dim : 0);
  const double key = r * row / dim, in_rows = (positions - in_columns) * std::min(row, r * kCacheLine);
  return {
      .asked = positions * key + rest, .memory = in_columns * key + in_rows + rest, .gathered = exact ? 0 : in_rows};
}

Cost SparseCost(const AttentionShape& shape, const SparseForm& form, size_t n, size_t filled, bool has_columns) {
  const size_t attended = AttendedPositions(form, n);
  if (attended == n || Evicts(form.kind)) return AttentionCost(shape, 1, attended, attended);
  const bool exact = form.kind == SparseKind::kTopk || form.r == shape.head_dim;
  const auto heads = static_cast<double>(shape.heads), kv_heads = static_cast<double>(shape.kv_heads);
  const auto dim = static_cast<double>(shape.head_dim), r = exact ? dim : static_cast<double>(form.r);
  double flops = static_cast<double>(n) * heads * (2 * r + 20) + static_cast<double>(form.k) * heads * (4 * dim + 20);
  if (form.kind == SparseKind::kSparq && form.reallocate)
    flops += static_cast<double>(n - std::min(n, filled)) * dim * kv_heads + 3 * dim * heads;
  return {.bytes = kv_heads * SparseReadsOf(shape, form, n, filled, has_columns).memory + 8 * heads * dim,
          .flops = flops};
}

}  // namespace tidemill
