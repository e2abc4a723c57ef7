#include "kernels/attention.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/cpu/attention_run.h"
#include "kernels/key_tiles.h"

namespace tidemill {
namespace {

// Of the partial result of one vector over one chunk: o, then m, l, seen.
size_t PartialFloats(const AttentionShape& shape) { return PaddedDim(shape) + 16; }

// Units that each thread should find, so that all end together.
constexpr size_t kUnitsPerThread = 8;

// Few rows over a long context, a tile for each task: units of a few chunks; the partial results are joined afterwards, in the same order.
void AttentionByChunks(ExecutionContext& ctx, const AttentionShape& shape, std::span<const AttentionTask> tasks,
                       size_t chunks, size_t vectors, const AttentionKernels& kernels) {
  const size_t padded = PaddedDim(shape);
  auto* partials = reinterpret_cast<float*>(ctx.shared_scratch().data());
  const auto partial = [&](size_t unit, size_t chunk, size_t i) {
    return partials + ((unit * chunks + chunk) * vectors + i) * PartialFloats(shape);
  };
  const size_t units = tasks.size() * shape.kv_heads;
  // Chunks that one tile sees after another, so that it is set up once for them.
  const size_t run_chunks = std::clamp<size_t>(units * chunks / (ctx.threads().num_threads() * kUnitsPerThread), 1, 8);
  const size_t runs = DivideRoundUp(chunks, run_chunks);
  ctx.ParallelFor(units * runs, [&](size_t index, size_t thread) {
    const size_t unit = index / runs, first = index % runs * run_chunks;
    const AttentionTask& task = tasks[unit / shape.kv_heads];
    const ChunkRange range = ChunksOf(shape, task, 0, task.q.rows);
    const size_t begin = std::max(first, range.begin), end = std::min(first + run_chunks, range.end);
    if (begin >= end) return;
    TileRun run(shape, kernels, task, unit % shape.kv_heads, 0, task.q.rows, ctx.scratch(thread));
    for (size_t chunk = begin; chunk < end; ++chunk) {
      const bool some = run.Attend(chunk * kAttentionChunk);
      for (size_t i = 0; i < run.tile().vectors; ++i) {
        float* out = partial(unit, chunk, i);
        out[padded + 2] = some && run.Sees(i) ? 1.0F : 0.0F;
        if (!some || !run.Sees(i)) continue;
        std::memcpy(out, run.tile().o + i * padded, padded * sizeof(float));
        out[padded] = run.tile().m[i];
        out[padded + 1] = run.tile().l[i];
      }
    }
  });
  ctx.ParallelFor(units, [&](size_t unit, size_t thread) {
    const AttentionTask& task = tasks[unit / shape.kv_heads];
    const ChunkRange range = ChunksOf(shape, task, 0, task.q.rows);
    TileRun run(shape, kernels, task, unit % shape.kv_heads, 0, task.q.rows, ctx.scratch(thread));
    for (size_t chunk = range.begin; chunk < range.end; ++chunk) {
      for (size_t i = 0; i < run.tile().vectors; ++i) {
        const float* in = partial(unit, chunk, i);
        if (in[padded + 2] != 0) run.Join(i, in[padded], in[padded + 1], in);
      }
    }
    run.Finish();
  });
}

}  // namespace

void Attention(ExecutionContext& ctx, const AttentionShape& shape, std::span<const AttentionTask> tasks) {
  TIDEMILL_DCHECK(shape.head_dim % InfoOf(shape.kv_dtype).block_elements == 0);
  TIDEMILL_DCHECK(HasKeyTiles(shape.kv_dtype) || shape.kv_dtype == DType::kQ8_0);
  TIDEMILL_DCHECK(shape.head_dim <= kMaxHeadDim && shape.heads / shape.kv_heads <= kMaxGroup);
  if (tasks.empty()) return;
  const AttentionKernels kernels = PickAttention(ctx.isa(), ctx.tuning());
  const size_t tile_rows = TileRows(shape);
  size_t tiles = 0, max_chunks = 0, max_rows = 0;
  for (const AttentionTask& task : tasks) {
    TIDEMILL_DCHECK(!task.context.empty());
    TIDEMILL_DCHECK(std::all_of(task.context.begin(), task.context.end(), [&shape](const KvSpan& span) {
      return span.transposed % kKeyTileRows == 0 && (span.transposed == 0 || HasKeyTiles(shape.kv_dtype));
    }));
    tiles += DivideRoundUp(task.q.rows, tile_rows);
    TIDEMILL_DCHECK(task.parents.empty() ||
                    (task.parents.size() == task.q.rows && task.visibility == Visibility::kCausal));
    max_rows = std::max(max_rows, task.q.rows);
    max_chunks =
        std::max(max_chunks, DivideRoundUp(task.context.back().first + task.context.back().rows, kAttentionChunk));
  }
  const size_t max_vectors = max_rows * (shape.heads / shape.kv_heads);
  const size_t partial_bytes =
      tasks.size() * shape.kv_heads * max_chunks * max_vectors * PartialFloats(shape) * sizeof(float);
  const size_t threads = ctx.threads().num_threads();
  if (threads > 1 && max_rows <= tile_rows && max_chunks > 1 && tiles * shape.kv_heads < threads * kUnitsPerThread &&
      partial_bytes <= ctx.shared_scratch().size()) {
    return AttentionByChunks(ctx, shape, tasks, max_chunks, max_vectors, kernels);
  }
  ctx.ParallelFor(tiles * shape.kv_heads, [&](size_t unit, size_t thread) {
    size_t tile = unit / shape.kv_heads, t = 0;
    for (; tile >= DivideRoundUp(tasks[t].q.rows, tile_rows); ++t) tile -= DivideRoundUp(tasks[t].q.rows, tile_rows);
    const size_t row = tile * tile_rows, rows = std::min(tile_rows, tasks[t].q.rows - row);
    TileRun run(shape, kernels, tasks[t], unit % shape.kv_heads, row, rows, ctx.scratch(thread));
    const ChunkRange range = ChunksOf(shape, tasks[t], row, rows);
    // One chunk after another: two or four side by side lost on a Zen 3, 0.81 to 0.96 (benchmarks/results/kernel_attention.md).
    for (size_t chunk = range.begin; chunk < range.end; ++chunk) {
      if (ctx.Stops()) return;  // of a long context, chunk after chunk takes long
      if (run.Attend(chunk * kAttentionChunk)) run.JoinChunk();
    }
    run.Finish();
  });
}

size_t AttentionScratchBytes(const AttentionShape& shape) { return TileRunBytes(shape); }

Cost AttentionCost(const AttentionShape& shape, size_t len, size_t positions, size_t kv_rows) {
  const auto heads = static_cast<double>(shape.heads), dim = static_cast<double>(shape.head_dim);
  const auto row_bytes = static_cast<double>(RowBytes(shape.kv_dtype, shape.head_dim));
  return {.bytes = 2 * static_cast<double>(kv_rows) * static_cast<double>(shape.kv_heads) * row_bytes +
                   8 * static_cast<double>(len) * heads * dim,
          .flops = static_cast<double>(positions) * heads * (4 * dim + 20),
          .int8_ops = 0};
}

}  // namespace tidemill
