#include "kernels/heavy_hitters.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/sparse_unit.h"

namespace tidemill {
namespace {

// Memory of one KV head, in this order.
struct HeadMemory {
  std::byte* unit;  // SparseUnit
  std::byte* keys;  // [positions] rows that a sparse row reads
  uint64_t* order;  // [positions]
  uint32_t* read;   // [positions]
  float* weights;   // [positions]

  HeadMemory(const AttentionShape& shape, size_t positions, std::byte* at) {
    const auto take = [&at](size_t bytes) { return std::exchange(at, at + RoundUp<size_t>(bytes, 64)); };
    unit = take(SparseUnit::Bytes(shape, positions));
    keys = take(positions * RowBytes(shape.kv_dtype, shape.head_dim));
    order = reinterpret_cast<uint64_t*>(take(positions * sizeof(uint64_t)));
    read = reinterpret_cast<uint32_t*>(take(positions * sizeof(uint32_t)));
    weights = reinterpret_cast<float*>(take(positions * sizeof(float)));
  }
  static size_t Bytes(const AttentionShape& shape, size_t positions) {
    size_t bytes = RoundUp<size_t>(SparseUnit::Bytes(shape, positions), 64);
    for (const size_t each :
         {RowBytes(shape.kv_dtype, shape.head_dim), sizeof(uint64_t), sizeof(uint32_t), sizeof(float)})
      bytes += RoundUp<size_t>(positions * each, 64);
    return bytes;
  }
};

// The rows of one KV head.
class HeadRun {
 public:
  HeadRun(const AttentionShape& shape, const SparseTools& tools, const HeavyHitterTask& task, size_t kv_head,
          std::byte* memory, std::span<std::byte> scratch)
      : shape_(shape),
        tools_(tools),
        task_(task),
        kv_head_(kv_head),
        memory_(shape, task.first_position + task.q.rows, memory),
        scratch_(shape, scratch),
        sums_(task.sums[kv_head]) {}

  void Run() {
    for (size_t row = 0; row < task_.q.rows; ++row) {
      const size_t position = task_.first_position + row;
      if (row < task_.dense_rows) {
        const std::span<const float> weights = Weights(task_.context, position, task_.q.row(row));
        for (size_t j = 0; j <= position; ++j) sums_[j] += weights[j];
      } else {
        RunSparse(row, position);
      }
    }
  }

 private:
  void RunSparse(size_t row, size_t position) {
    Evict(position);
    size_t count = 0;
    for (size_t j = 0; j <= position; ++j) {
      if (sums_[j] != kEvicted) memory_.read[count++] = static_cast<uint32_t>(j);
    }
    const std::span<const uint32_t> read(memory_.read, count);
    const RowContext context(shape_, task_.context, task_.first_position, {}, row);
    AttendPositions(shape_, tools_, context, kv_head_, read, task_.q.row(row), task_.out.row(row), scratch_);
    const size_t bytes = RowBytes(shape_.kv_dtype, shape_.head_dim);
    for (size_t i = 0; i < count; ++i) CopyKey(shape_, context.At(shape_, kv_head_, read[i]), memory_.keys + i * bytes);
    const KvSpan keys{.k = memory_.keys, .v = memory_.keys, .head_stride = 0, .first = 0, .rows = count};
    const std::span<const float> weights = Weights({&keys, 1}, count - 1, task_.q.row(row));
    for (size_t i = 0; i < count; ++i) sums_[read[i]] += weights[i];
  }

  // All but k of the positions before `position`.
  void Evict(size_t position) {
    const size_t k = task_.form->k, local = std::min(task_.form->local, position);
    size_t others = 0;
    for (size_t j = 0; j < position - local; ++j) {
      if (sums_[j] != kEvicted)
        memory_.order[others++] = uint64_t{std::bit_cast<uint32_t>(sums_[j])} << 32 | (UINT32_MAX - j);
    }
    const size_t keep = k - local;
    if (others <= keep) return;
    std::nth_element(memory_.order, memory_.order + keep, memory_.order + others, std::greater<>());
    for (size_t i = keep; i < others; ++i) sums_[UINT32_MAX - static_cast<uint32_t>(memory_.order[i])] = kEvicted;
  }

  // Of a row at `position` of a context, over all positions up to it: sums over the group.
  std::span<const float> Weights(std::span<const KvSpan> context, size_t position, const float* q) {
    const SparseForm exact{.kind = SparseKind::kTopk, .rule = SparseRule::kPaper, .k = 1, .local = 1};
    if (position == 0) {
      memory_.weights[0] = static_cast<float>(shape_.heads / shape_.kv_heads);
    } else {
      const SparseTask task{.form = &exact, .context = context, .first_position = position, .q = q};
      SparseUnit unit(shape_, tools_, task, kv_head_, memory_.unit);
      unit.Prepare();
      unit.Score(0, unit.chunks(), scratch_);
      unit.Weights(memory_.weights);
    }
    return {memory_.weights, position + 1};
  }

  const AttentionShape& shape_;
  const SparseTools& tools_;
  const HeavyHitterTask& task_;
  size_t kv_head_;
  HeadMemory memory_;
  SparseScratch scratch_;
  std::span<float> sums_;
};

}  // namespace

void AttendHeavyHitters(ExecutionContext& ctx, const AttentionShape& shape, const HeavyHitterTask& task) {
  TIDEMILL_DCHECK(shape.bias.empty() && shape.window == 0 && task.sums.size() == shape.kv_heads);
  TIDEMILL_DCHECK(task.form->local >= 1 && task.form->local <= task.form->k);
  const SparseTools tools(ctx);
  const size_t bytes = HeadMemory::Bytes(shape, task.first_position + task.q.rows);
  const size_t room = ctx.shared_scratch().size() / bytes;
  TIDEMILL_CHECK(room != 0);
  for (size_t first = 0; first < shape.kv_heads; first += room) {
    ctx.threads().ParallelFor(std::min(room, shape.kv_heads - first), [&](size_t i, size_t thread) {
      HeadRun(shape, tools, task, first + i, ctx.shared_scratch().data() + i * bytes, ctx.scratch(thread)).Run();
    });
  }
}

size_t HeavyHitterSharedBytes(const AttentionShape& shape, size_t positions) {
  return HeadMemory::Bytes(shape, positions);
}

}  // namespace tidemill
