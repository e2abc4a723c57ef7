#include "planner/machine_measurement.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/seconds_of.h"
#include "kernels/activations.h"
#include "kernels/append_kv.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/weight_matrix.h"
#include "tensor/dtype.h"
#include "tensor/matrix.h"

namespace tidemill {
namespace {

constexpr int kRounds = 8;                        // at least
constexpr double kSeconds = 0.03;                 // at least, of one number
constexpr double kEnoughSeconds = 0.5;            // whatever the rounds: of a machine that takes as long, one will do
constexpr size_t kCopyBytes = size_t{64} << 20;   // twice a large last cache, and as much again where it goes
constexpr size_t kCopyPiece = size_t{256} << 10;  // the rows of one head: what a cache copies at once
constexpr size_t kPageBytes = 4096;               // the smallest page
constexpr size_t kMostRows = kProfileRows.back();

// Never 0, whatever the clock says.
template <typename Work>
double LeastSeconds(const Work& work) {
  double least = std::numeric_limits<double>::infinity(), all = 0;
  for (int i = 0; (i < kRounds || all < kSeconds) && all < kEnoughSeconds; ++i) {
    const double seconds = std::max(1e-9, SecondsOf(work));
    least = std::min(least, seconds);
    all += seconds;
  }
  return least;
}

// Without large or subnormal numbers, and no two rows alike.
std::vector<float> Values(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7 % 101) / 101 - 0.5F;
  return values;
}

MachineRates RatesOf(const LimitSet& limits) {
  const auto rate = [&](Limit limit) { return limits.of(limit).best() * 1e9; };
  return {.read = rate(Limit::kRead),
          .int8 = rate(Limit::kInt8),
          .bfloat16 = limits.of(Limit::kBFloat16).absent ? 0 : rate(Limit::kBFloat16),
          .f32 = rate(Limit::kF32)};
}

Result<void> MeasureMemory(MachineProfile& profile) {
  BufferArena arena(kCopyBytes);  // as states are allocated: large pages where the system gives them
  TIDEMILL_TRY(from, arena.Allocate(kCopyBytes));
  TIDEMILL_TRY(to, arena.Allocate(kCopyBytes));
  std::memset(from.data(), 1, from.size());
  std::memset(to.data(), 1, to.size());
  const double copy = LeastSeconds([&] {
    for (size_t at = 0; at < kCopyBytes; at += kCopyPiece) std::memcpy(to.data() + at, from.data() + at, kCopyPiece);
  });
  profile.copy = static_cast<double>(kCopyBytes) / copy;

  std::optional<Error> failed;
  const double touch = LeastSeconds([&] {
    BufferArena fresh_arena(kCopyBytes);
    auto fresh = fresh_arena.Allocate(kCopyBytes);
    if (!fresh.ok()) {
      failed = std::move(fresh).error();
      return;
    }
    volatile std::byte* bytes = fresh->data();
    for (size_t at = 0; at < kCopyBytes; at += kPageBytes) bytes[at] = std::byte{1};
  });
  if (failed) return *failed;
  profile.touch = touch / static_cast<double>(kCopyBytes);
  return {};
}

Result<void> MeasureAttention(ExecutionContext& ctx, MachineProfile& profile) {
  const AttentionShape shape = SampleAttention();
  const size_t rows = 2 * shape.kv_heads * kSamplePositions, width = shape.heads * shape.head_dim;
  TIDEMILL_TRY(stored, AlignedBuffer::Create(rows * RowBytes(shape.kv_dtype, shape.head_dim)));
  const std::vector<float> values = Values(rows * shape.head_dim);
  // As one head with all the rows, which lie behind each other.
  AppendKv(ctx, {values.data(), rows, shape.head_dim}, shape.head_dim, shape.kv_dtype, 0, stored.data());
  const std::vector<float> q = Values(kMostRows * width);
  std::vector<float> out(q.size());
  const KvSpan span{.k = stored.data(),
                    .v = stored.data() + stored.size() / 2,
                    .head_stride = kSamplePositions * shape.head_dim,
                    .first = 0,
                    .rows = kSamplePositions};
  for (size_t i = 0; i < kProfileRows.size(); ++i) {
    const size_t len = kProfileRows[i];
    const AttentionTask task{.context = {&span, 1},
                             .first_position = kSamplePositions - len,
                             .visibility = Visibility::kCausal,
                             .q = ConstMatrix<float>(q.data(), len, width),
                             .out = Matrix<float>(out.data(), len, width)};
    profile.attention[i] = LeastSeconds([&] { Attention(ctx, shape, {&task, 1}); }) / kSamplePositions;
  }
  return {};
}

Result<WeightMatrix> SampleWeight(ThreadPool& threads, BufferArena& arena) {
  const size_t bytes = kSampleWeightRows * RowBytes(DType::kQ8_0, kSampleWeightCols);
  TIDEMILL_TRY(blocks, AlignedBuffer::Create(bytes));
  constexpr size_t kBlockBytes = InfoOf(DType::kQ8_0).block_bytes;
  for (size_t at = 0; at < bytes; ++at) {
    // Two bytes of scale, 2^-7 as f16, then 32 numbers.
    const size_t within = at % kBlockBytes;
    const size_t value = within == 0 ? 0 : within == 1 ? 0x20 : at * 7 % 255 + 1;
    blocks.data()[at] = static_cast<std::byte>(value);
  }
  const WeightSource source{.dtype = DType::kQ8_0,
                            .rows = kSampleWeightRows,
                            .cols = kSampleWeightCols,
                            .bytes = {blocks.data(), bytes},
                            .row_stride = 0,
                            .order = {}};
  return WeightMatrix::Pack(source, false, threads, {}, &arena);
}

Result<void> MeasureProduct(ExecutionContext& ctx, const WeightMatrix& weight, MachineProfile& profile) {
  TIDEMILL_TRY(quantized, QuantizedBuffer::Create(kMostRows, kSampleWeightCols, ctx.isa()));
  const std::vector<float> x = Values(kMostRows * kSampleWeightCols);
  std::vector<float> y(kMostRows * kSampleWeightRows);
  for (size_t i = 0; i < kProfileRows.size(); ++i) {
    const size_t rows = kProfileRows[i];
    const ConstMatrix<float> source(x.data(), rows, kSampleWeightCols);
    const MatMulTask task{.weight = &weight,
                          .x = source,
                          .quantized = quantized.Quantize(ctx, source),
                          .bfloat16 = {},
                          .y = Matrix<float>(y.data(), rows, kSampleWeightRows),
                          .accumulate = false};
    profile.product[i] = LeastSeconds([&] { MatMul(ctx, {&task, 1}); });
  }
  return {};
}

}  // namespace

Result<MachineProfile> MeasureMachine(Isa isa, ThreadPool& threads, const MachineLimits& limits,
                                      const std::function<void(double)>& progress) {
  const auto show = [&progress](double part) {
    if (progress) progress(part);
  };
  MachineProfile profile;
  profile.isa = isa;
  profile.threads = threads.num_threads();
  profile.one = RatesOf(limits.one);
  profile.all = RatesOf(limits.all);
  TIDEMILL_TRY_VOID(MeasureMemory(profile));
  show(0.25);
  BufferArena arena;  // as weights are allocated
  TIDEMILL_TRY(weight, SampleWeight(threads, arena));
  TIDEMILL_TRY(ctx, ExecutionContext::Create(
                        isa, &threads, std::max(MatMulScratchBytes(weight), AttentionScratchBytes(SampleAttention()))));
  show(0.5);
  TIDEMILL_TRY_VOID(MeasureAttention(ctx, profile));
  show(0.75);
  TIDEMILL_TRY_VOID(MeasureProduct(ctx, weight, profile));
  show(1);
  return profile;
}

}  // namespace tidemill
