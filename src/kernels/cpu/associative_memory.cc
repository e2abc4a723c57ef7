// A block of columns of A is 24 KiB for 384 features: rows go over it while it is in the cache, column by column independent of the others.
#include "kernels/associative_memory.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/activation.h"
#include "kernels/row_blocks.h"
#include "tensor/half.h"

#ifndef TIDEMILL_KERNELS_CPU_ASSOCIATIVE_MEMORY_ROWS_
#define TIDEMILL_KERNELS_CPU_ASSOCIATIVE_MEMORY_ROWS_
namespace tidemill {
// Of a memory row.
struct MemoryRowFactors {
  float divisor = 1, beta = 0, gamma = 1;
};
}  // namespace tidemill
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/associative_memory.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

constexpr size_t kLanes = hn::MaxLanes(Lane16());
constexpr size_t kTile = 16;  // columns that go together
constexpr size_t kVectors = kTile / kLanes;
constexpr size_t kRowsAtOnce = HWY_MAX_BYTES >= 64 ? 8 : 2, kWriteRows = HWY_MAX_BYTES >= 64 ? 8 : 2;

struct Tile {
  HWY_INLINE Tile() {}  // an implicit one would be compiled for the baseline, which NEON's vectors refuse
  Vec16 at[kVectors];
};
HWY_INLINE Tile ZeroTile() {
  Tile t;
  for (size_t v = 0; v < kVectors; ++v) t.at[v] = hn::Zero(Lane16());
  return t;
}
// Columns [0, cols) of a row, others zero.
template <typename T>
HWY_INLINE Tile LoadTile(const T* from, size_t cols) {
  Tile t;
  if (cols == kTile) {
    for (size_t v = 0; v < kVectors; ++v) t.at[v] = LoadF32(Lane16(), from + v * kLanes);
    return t;
  }
  HWY_ALIGN T part[kTile] = {};
  std::memcpy(static_cast<void*>(part), static_cast<const void*>(from), cols * sizeof(T));
  for (size_t v = 0; v < kVectors; ++v) t.at[v] = LoadF32(Lane16(), part + v * kLanes);
  return t;
}
HWY_INLINE void StoreTile(const Tile& t, float* to, size_t cols) {
  if (cols == kTile) {
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(t.at[v], Lane16(), to + v * kLanes);
    return;
  }
  HWY_ALIGN float part[kTile];
  for (size_t v = 0; v < kVectors; ++v) hn::Store(t.at[v], Lane16(), part + v * kLanes);
  std::memcpy(to, part, cols * sizeof(float));
}
HWY_INLINE void StoreTile(const Tile& t, hwy::bfloat16_t* to, size_t cols) {
  HWY_ALIGN float part[kTile];
  for (size_t v = 0; v < kVectors; ++v) hn::Store(t.at[v], Lane16(), part + v * kLanes);
  for (size_t i = 0; i < cols; ++i) {
    const uint16_t bits = FloatToBFloat16(part[i]);
    std::memcpy(static_cast<void*>(to + i), &bits, sizeof(bits));
  }
}
HWY_INLINE void AddTimes(float factor, const Tile& t, Tile& sum) {
  const auto f = hn::Set(Lane16(), factor);
  for (size_t v = 0; v < kVectors; ++v) sum.at[v] = hn::MulAdd(f, t.at[v], sum.at[v]);
}

// The sums of f[i] by the columns of A, for kRows rows of f, kStride apart.
template <size_t kRows, typename T>
HWY_INLINE void SumColumns(const float* f, size_t f_stride, const T* a, size_t stride, size_t features, size_t cols,
                           Tile (&sums)[kRows]) {
  for (size_t r = 0; r < kRows; ++r) sums[r] = ZeroTile();
  for (size_t p = 0; p < features; ++p) {
    const Tile row = LoadTile(a + p * stride, cols);
    for (size_t r = 0; r < kRows; ++r) AddTimes(f[r * f_stride + p], row, sums[r]);
  }
}

template <typename T>
float DotZ(const float* f, const T* z, size_t n) {
  const Lane16 d;
  Vec16 sums[kVectors];
  for (size_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (size_t p = 0; p < n; p += kTile) {
    const Tile x = LoadTile(f + p, HWY_MIN(kTile, n - p)), y = LoadTile(z + p, HWY_MIN(kTile, n - p));
    for (size_t v = 0; v < kVectors; ++v) sums[v] = hn::MulAdd(x.at[v], y.at[v], sums[v]);
  }
  return TreeSum16(sums);
}

// x += sum / divisor, of kRows rows.
template <size_t kRows, typename T>
HWY_INLINE void ReadRows(const MemoryReadTask& task, const T* a, const float* divisors, size_t row, size_t col,
                         size_t cols) {
  Tile sums[kRows];
  SumColumns<kRows>(task.f.row(row), task.f.stride, a + col, task.x.cols, task.f.cols, cols, sums);
  for (size_t r = 0; r < kRows; ++r) {
    float* const to = task.x.row(row + r) + col;
    Tile x = LoadTile(to, cols);
    const auto divisor = hn::Set(Lane16(), divisors[r]);
    for (size_t v = 0; v < kVectors; ++v) x.at[v] = hn::Add(x.at[v], hn::Div(sums[r].at[v], divisor));
    StoreTile(x, to, cols);
  }
}

// Rows [first, first + rows) and columns [col, end).
template <typename T>
void ReadBlock(const MemoryReadTask& task, const MemoryShape& shape, size_t first, size_t rows, size_t col,
               size_t end) {
  const T* const a = reinterpret_cast<const T*>(task.memory);
  const T* const z = a + shape.features() * shape.hidden;
  HWY_ALIGN float divisors[kRowsAtOnce];
  for (size_t r = 0; r < rows;) {
    const size_t taken = rows - r >= kRowsAtOnce ? kRowsAtOnce : 1;
    for (size_t i = 0; i < taken; ++i)
      divisors[i] = DotZ(task.f.row(first + r + i), z, shape.features()) + kMemoryEpsilon;
    for (size_t c = col; c < end; c += kTile) {
      const size_t cols = HWY_MIN(kTile, end - c);
      if (taken == kRowsAtOnce) {
        ReadRows<kRowsAtOnce>(task, a, divisors, first + r, c, cols);
      } else {
        ReadRows<1>(task, a, divisors, first + r, c, cols);
      }
    }
    r += taken;
  }
}

// u of kRows rows, in place of v. No A: u = beta v.
template <size_t kRows, typename T>
HWY_INLINE void CorrectRows(const MemoryWriteTask& task, const T* a, const MemoryRowFactors* factors, size_t row,
                            size_t col, size_t cols) {
  Tile sums[kRows];
  if (a != nullptr) {
    SumColumns<kRows>(task.k.row(row), task.k.stride, a + col, task.v.cols, task.k.cols, cols, sums);
  }
  for (size_t r = 0; r < kRows; ++r) {
    float* const to = task.v.row(row + r) + col;
    Tile v = LoadTile(to, cols);
    const auto beta = hn::Set(Lane16(), factors[row + r].beta), divisor = hn::Set(Lane16(), factors[row + r].divisor);
    for (size_t i = 0; i < kVectors; ++i) {
      if (a != nullptr) v.at[i] = hn::Sub(v.at[i], hn::Div(sums[r].at[i], divisor));
      v.at[i] = hn::Mul(beta, v.at[i]);
    }
    StoreTile(v, to, cols);
  }
}

// kRows rows of A' from p on.
template <size_t kRows, typename T>
HWY_INLINE void UpdateRows(const MemoryWriteTask& task, const T* a, T* out, size_t p, size_t col, size_t cols) {
  const size_t hidden = task.v.cols;
  Tile sums[kRows];
  for (size_t r = 0; r < kRows; ++r) sums[r] = a == nullptr ? ZeroTile() : LoadTile(a + (p + r) * hidden + col, cols);
  for (size_t i = 0; i < task.v.rows; ++i) {
    const Tile u = LoadTile(task.v.row(i) + col, cols);
    const float* const k = task.k.row(i) + p;
    for (size_t r = 0; r < kRows; ++r) AddTimes(k[r], u, sums[r]);
  }
  for (size_t r = 0; r < kRows; ++r) StoreTile(sums[r], out + (p + r) * hidden + col, cols);
}

template <typename T>
void WriteBlock(const MemoryWriteTask& task, const MemoryShape& shape, const MemoryRowFactors* factors, size_t col,
                size_t end) {
  const T* const a = reinterpret_cast<const T*>(task.memory);
  T* const out = reinterpret_cast<T*>(task.out);
  for (size_t c = col; c < end; c += kTile) {
    const size_t cols = HWY_MIN(kTile, end - c);
    size_t row = 0;
    for (; row + kRowsAtOnce <= task.v.rows; row += kRowsAtOnce)
      CorrectRows<kRowsAtOnce>(task, a, factors, row, c, cols);
    for (; row < task.v.rows; ++row) CorrectRows<1>(task, a, factors, row, c, cols);
    size_t p = 0;
    for (; p + kWriteRows <= shape.features(); p += kWriteRows) UpdateRows<kWriteRows>(task, a, out, p, c, cols);
    for (; p < shape.features(); ++p) UpdateRows<1>(task, a, out, p, c, cols);
  }
}

template <typename T>
void WriteZ(const MemoryWriteTask& task, const MemoryShape& shape, const MemoryRowFactors* factors) {
  const size_t before = shape.features() * shape.hidden;
  const T* const z = task.memory == nullptr ? nullptr : reinterpret_cast<const T*>(task.memory) + before;
  T* const out = reinterpret_cast<T*>(task.out) + before;
  for (size_t p = 0; p < shape.features(); p += kTile) {
    const size_t cols = HWY_MIN(kTile, shape.features() - p);
    Tile sum = z == nullptr ? ZeroTile() : LoadTile(z + p, cols);
    for (size_t i = 0; i < task.k.rows; ++i) {
      const Tile k = LoadTile(task.k.row(i) + p, cols);
      const auto gamma = hn::Set(Lane16(), factors[i].gamma);
      for (size_t v = 0; v < kVectors; ++v) sum.at[v] = hn::Add(sum.at[v], hn::Mul(gamma, k.at[v]));
    }
    StoreTile(sum, out + p, cols);
  }
}

// Of the same rows of two types, as functions for TIDEMILL_PICK.
float DotOfF32(const float* f, const std::byte* z, size_t n) { return DotZ(f, reinterpret_cast<const float*>(z), n); }
float DotOfBF16(const float* f, const std::byte* z, size_t n) {
  return DotZ(f, reinterpret_cast<const hwy::bfloat16_t*>(z), n);
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {
namespace {

constexpr size_t kBlockRows = 64, kBlockCols = 256;

struct MemoryKernels {
  float (*dot)(const float* f, const std::byte* z, size_t n);
  float (*dot_f32)(const float* f, const std::byte* z, size_t n);
  void (*read)(const MemoryReadTask&, const MemoryShape&, size_t first, size_t rows, size_t col, size_t end);
  void (*write)(const MemoryWriteTask&, const MemoryShape&, const MemoryRowFactors*, size_t col, size_t end);
  void (*write_z)(const MemoryWriteTask&, const MemoryShape&, const MemoryRowFactors*);
};

MemoryKernels PickMemory(Isa isa, DType dtype) {
  if (dtype == DType::kBF16) {
    return {TIDEMILL_PICK(isa, DotOfBF16), TIDEMILL_PICK(isa, DotOfF32), TIDEMILL_PICK(isa, ReadBlock<hwy::bfloat16_t>),
            TIDEMILL_PICK(isa, WriteBlock<hwy::bfloat16_t>), TIDEMILL_PICK(isa, WriteZ<hwy::bfloat16_t>)};
  }
  return {TIDEMILL_PICK(isa, DotOfF32), TIDEMILL_PICK(isa, DotOfF32), TIDEMILL_PICK(isa, ReadBlock<float>),
          TIDEMILL_PICK(isa, WriteBlock<float>), TIDEMILL_PICK(isa, WriteZ<float>)};
}

void DpfpRow(const float* x, size_t n, size_t nu, float* out) {
  float twice[4 * kMaxMemoryKeyDim];  // c, and c again: no index wraps
  for (size_t i = 0; i < n; ++i) {
    twice[i] = x[i] < 0 ? 0 : x[i];  // keeps NaN
    twice[n + i] = x[i] > 0 ? 0 : -x[i];
  }
  std::copy_n(twice, 2 * n, twice + 2 * n);
  for (size_t j = 1; j <= nu; ++j, out += 2 * n) {
    const float* const c = twice + 2 * n;
    for (size_t i = 0; i < 2 * n; ++i) out[i] = c[i] * (c - j)[i];
  }
}

}  // namespace

void DpfpFeatures(ExecutionContext& ctx, ConstMatrix<float> x, size_t nu, Matrix<float> out) {
  ForRowBlocks(ctx, x.rows, 4 * out.cols, [&](ExecutionContext&, size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) DpfpRow(x.row(r), x.cols, nu, out.row(r));
  });
}

void MemoryRead(ExecutionContext& ctx, const MemoryShape& shape, std::span<const MemoryReadTask> tasks) {
  const MemoryKernels kernels = PickMemory(ctx.isa(), shape.dtype);
  const size_t cols = DivideRoundUp(shape.hidden, kBlockCols);
  size_t chunks = 0;
  for (const MemoryReadTask& task : tasks) chunks += DivideRoundUp(task.x.rows, kBlockRows) * cols;
  ctx.ParallelFor(chunks, [&](size_t chunk, size_t) {
    const MemoryReadTask* task = tasks.data();
    for (;; ++task) {
      const size_t of_task = DivideRoundUp(task->x.rows, kBlockRows) * cols;
      if (chunk < of_task) break;
      chunk -= of_task;
    }
    const size_t first = chunk / cols * kBlockRows, col = chunk % cols * kBlockCols;
    kernels.read(*task, shape, first, std::min(kBlockRows, task->x.rows - first), col,
                 std::min(shape.hidden, col + kBlockCols));
  });
}

namespace {

// Of at most kMaxMemoryRows rows.
void WriteTogether(ExecutionContext& ctx, const MemoryShape& shape, const MemoryKernels& kernels,
                   std::span<const MemoryWriteTask> tasks, size_t rows) {
  auto* const factors = reinterpret_cast<MemoryRowFactors*>(ctx.shared_scratch().data());
  static_assert(kMaxMemoryRows * sizeof(MemoryRowFactors) <= ExecutionContext::kSharedScratchBytes);
  // Who writes A' and z' in place reads neither's old values for these.
  const size_t z = shape.features() * shape.hidden * InfoOf(shape.dtype).block_bytes;
  ctx.ParallelFor(rows, [&](size_t i, size_t) {
    const MemoryWriteTask* task = tasks.data();
    size_t row = i;
    for (; row >= task->k.rows; ++task) row -= task->k.rows;
    const float* const k = task->k.row(row);
    MemoryRowFactors& f = factors[i];
    f = {.divisor = 1, .beta = 0, .gamma = 1};
    Activate(ctx.alone(), Activation::kSigmoid, {task->b.row(row), 1, 1}, {&f.beta, 1, 1});
    if (task->memory == nullptr) return;
    f.divisor = kernels.dot(k, task->memory + z, shape.features()) + kMemoryEpsilon;
    if (!shape.correction) return;
    const float length = kernels.dot_f32(k, reinterpret_cast<const std::byte*>(k), shape.features()) + kMemoryEpsilon;
    const float gamma = 1 - f.divisor / length;
    f.gamma = gamma < 0 ? 0 : gamma > 1 ? 1 : gamma;  // keeps NaN
  });
  const size_t blocks = DivideRoundUp(shape.hidden, kBlockCols / 4);
  ctx.ParallelFor(tasks.size() * blocks, [&](size_t chunk, size_t) {
    const MemoryWriteTask& task = tasks[chunk / blocks];
    size_t before = 0;
    for (const MemoryWriteTask* other = tasks.data(); other != &task; ++other) before += other->k.rows;
    const size_t col = chunk % blocks * (kBlockCols / 4);
    kernels.write(task, shape, factors + before, col, std::min(shape.hidden, col + kBlockCols / 4));
    if (col == 0) kernels.write_z(task, shape, factors + before);
  });
}

}  // namespace

void MemoryWrite(ExecutionContext& ctx, const MemoryShape& shape, std::span<const MemoryWriteTask> tasks) {
  const MemoryKernels kernels = PickMemory(ctx.isa(), shape.dtype);
  for (size_t begin = 0, end = 0; begin < tasks.size(); begin = end) {
    TIDEMILL_DCHECK(tasks[begin].k.rows <= kMaxMemoryRows);
    size_t rows = 0;
    while (end < tasks.size() && (end == begin || rows + tasks[end].k.rows <= kMaxMemoryRows))
      rows += tasks[end++].k.rows;
    WriteTogether(ctx, shape, kernels, tasks.subspan(begin, end - begin), rows);
  }
}

bool IsFinite(const MemoryShape& shape, const std::byte* memory) {
  if (shape.dtype == DType::kBF16) {
    const auto* const bits = reinterpret_cast<const uint16_t*>(memory);
    return std::all_of(bits, bits + shape.elements(), [](uint16_t x) { return std::isfinite(BFloat16ToFloat(x)); });
  }
  const auto* const values = reinterpret_cast<const float*>(memory);
  return std::all_of(values, values + shape.elements(), [](float x) { return std::isfinite(x); });
}

Cost MemoryReadCost(const MemoryShape& shape, size_t rows) {
  const auto n = static_cast<double>(rows), features = static_cast<double>(shape.features()),
             hidden = static_cast<double>(shape.hidden);
  return {.bytes = static_cast<double>(shape.bytes()) + 4 * n * (features + 2 * hidden),
          .flops = 2 * n * (features * (hidden + 1) + hidden)};
}

Cost MemoryWriteCost(const MemoryShape& shape, size_t rows) {
  const auto n = static_cast<double>(rows), features = static_cast<double>(shape.features()),
             hidden = static_cast<double>(shape.hidden);
  return {.bytes = 2 * static_cast<double>(shape.bytes()) + 4 * n * (features + hidden + 1),
          .flops = 2 * n * (2 * features * (hidden + 1) + hidden)};
}

}  // namespace tidemill
#endif
