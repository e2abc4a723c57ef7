#include "planner/operation_measurement.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/activations.h"
#include "kernels/attention.h"
#include "kernels/key_tiles.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/weight_matrix.h"
#include "planner/min_seconds.h"
#include "tensor/matrix.h"

namespace tidemill {
namespace {

constexpr double kLongestPass = 0.02;                     // seconds
constexpr std::array<size_t, 3> kSmaller = {1, 16, 256};  // matrices are as large as the sample, or as a part of it
constexpr size_t kCols = 4096;                            // of a product
constexpr size_t kPositions = 1024, kKvHeads = 4;         // of attention
constexpr size_t kChainWidth = 512, kLonger = 8;  // of small products, and how many times as many rows long ones have
constexpr size_t kElementWidth = 2048;

// Without large or subnormal numbers, and no two rows alike.
std::vector<float> Values(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7 % 101) / 101 - 0.5F;
  return values;
}

AttentionShape ShapeOf(size_t head_dim, size_t group) {
  AttentionShape shape;
  shape.heads = group * kKvHeads;
  shape.kv_heads = kKvHeads;
  shape.head_dim = head_dim;
  shape.scale = 0.1F;
  shape.kv_dtype = DType::kF16;
  return shape;
}

Result<WeightMatrix> Packed(std::span<const std::byte> sample, DType dtype, size_t rows, size_t cols,
                            ThreadPool& threads, BufferArena& arena) {
  const WeightSource source{.dtype = dtype,
                            .rows = rows,
                            .cols = cols,
                            .bytes = sample.first(rows * RowBytes(dtype, cols)),
                            .row_stride = 0,
                            .order = {}};
  return WeightMatrix::Pack(source, false, threads, {}, &arena);
}

// More rows take no less time: a lucky measurement of them is one of fewer, too.
template <size_t kCount>
void MakeRising(std::array<double, kCount>& seconds) {
  for (size_t i = kCount - 1; i > 0; --i) seconds[i - 1] = std::min(seconds[i - 1], seconds[i]);
}

// Rows in each form that a weight may want.
class Activations {
 public:
  // For weights of this type.
  static Result<Activations> Create(ExecutionContext& ctx, DType dtype, size_t rows, size_t cols) {
    Activations a;
    a.values_ = Values(rows * cols);
    a.cols_ = cols;
    TIDEMILL_TRY(quantized, QuantizedBuffer::Create(rows, cols, ctx.isa(), WantsBiased(dtype, ctx.isa())));
    a.quantized_ = std::move(quantized);
    TIDEMILL_TRY(bfloat16, BFloat16Buffer::Create(rows, cols));
    a.bfloat16_ = std::move(bfloat16);
    return a;
  }

  MatMulTask Task(ExecutionContext& ctx, const WeightMatrix& weight, size_t rows, Matrix<float> y) {
    MatMulTask task{.weight = &weight,
                    .x = ConstMatrix<float>(values_.data(), rows, cols_),
                    .quantized = {},
                    .bfloat16 = {},
                    .y = y,
                    .accumulate = false};
    switch (FormFor(weight.dtype(), ctx.isa())) {
      case ActivationForm::kInt8: task.quantized = quantized_.Quantize(ctx, task.x); break;
      case ActivationForm::kBFloat16: task.bfloat16 = bfloat16_.Round(ctx, task.x); break;
      case ActivationForm::kF32: break;
    }
    return task;
  }

 private:
  std::vector<float> values_;
  size_t cols_ = 0;
  QuantizedBuffer quantized_;
  BFloat16Buffer bfloat16_;
};

// Products of one row, each of what a norm made of the one before.
class Chain {
 public:
  // Matrices of `rows` rows, the sample's bytes in all.
  static Result<Chain> Create(ExecutionContext& ctx, std::span<const std::byte> sample, size_t rows) {
    Chain chain;
    const size_t bytes = rows * RowBytes(DType::kQ8_0, kChainWidth);
    BufferArena arena;
    for (size_t i = 0; i < std::max<size_t>(1, sample.size() / bytes); ++i) {
      TIDEMILL_TRY(weight, Packed(sample, DType::kQ8_0, rows, kChainWidth, ctx.threads(), arena));
      chain.weights_.push_back(std::move(weight));
    }
    TIDEMILL_TRY(quantized, QuantizedBuffer::Create(1, kChainWidth, ctx.isa()));
    chain.quantized_ = std::move(quantized);
    chain.y_ = Values(rows);
    chain.normed_.resize(kChainWidth);
    chain.ones_.assign(kChainWidth, 1.0F);
    return chain;
  }

  size_t links() const { return weights_.size(); }
  void Run(ExecutionContext& ctx, size_t links) {
    const Matrix<float> normed(normed_.data(), 1, kChainWidth), y(y_.data(), 1, y_.size());
    for (size_t i = 0; i < links; ++i) {
      RmsNorm(ctx, ConstMatrix<float>(y_.data(), 1, kChainWidth), ones_, 1e-5F, normed);
      const MatMulTask task{.weight = &weights_[i],
                            .x = normed,
                            .quantized = quantized_.Quantize(ctx, normed),
                            .bfloat16 = {},
                            .y = y,
                            .accumulate = false};
      MatMul(ctx, {&task, 1});
    }
  }

 private:
  std::vector<WeightMatrix> weights_;
  QuantizedBuffer quantized_;
  std::vector<float> y_, normed_, ones_;
};

}  // namespace

Result<void> OperationMeasurement::Products(DType dtype, ProductSeconds& one, ProductSeconds& all) {
  const size_t max_rows = kProductRows.back();
  TIDEMILL_TRY(activations, Activations::Create(all_, dtype, max_rows, kCols));
  std::array<std::optional<WeightMatrix>, kSmaller.size()> weights;  // made when first wanted
  BufferArena arena;                                                 // as weights are allocated
  const auto weight_of = [&](size_t i) -> Result<const WeightMatrix*> {
    if (!weights[i]) {
      const size_t rows = std::max(kPanelRows, sample_.size() / kSmaller[i] / RowBytes(dtype, kCols));
      TIDEMILL_TRY(weight, Packed(sample_, dtype, rows, kCols, all_.threads(), arena));
      weights[i] = std::move(weight);
    }
    return &*weights[i];
  };
  std::vector<float> y(max_rows * (sample_.size() / RowBytes(dtype, kCols) + kPanelRows));
  for (auto [ctx, seconds] : {std::pair(&one_, &one), std::pair(&all_, &all)}) {
    const auto pass = [&, c = ctx](const WeightMatrix& weight, size_t rows) {
      const MatMulTask task = activations.Task(*c, weight, rows, Matrix<float>(y.data(), rows, weight.rows()));
      return [c, task] { MatMul(*c, {&task, 1}); };
    };
    for (size_t i = 0; i < kProductRows.size(); ++i) {
      const size_t rows = kProductRows[i];
      TIDEMILL_TRY(smallest, weight_of(kSmaller.size() - 1));
      const auto quick = pass(*smallest, rows);
      const double a_byte =
          std::min(SecondsOf(quick), SecondsOf(quick)) / static_cast<double>(smallest->packed_bytes());
      size_t size = 0;
      while (size + 1 < kSmaller.size() && a_byte * static_cast<double>(sample_.size() / kSmaller[size]) > kLongestPass)
        ++size;
      TIDEMILL_TRY(weight, weight_of(size));
      (*seconds)[i] = MinSeconds(pass(*weight, rows)) / static_cast<double>(weight->packed_bytes());
    }
    MakeRising(*seconds);
  }
  return {};
}

void OperationMeasurement::Attention(size_t dim_index, size_t group_index, AttentionSeconds& one,
                                     AttentionSeconds& all) {
  const AttentionShape shape = ShapeOf(kAttentionDims[dim_index], kAttentionGroups[group_index]);
  const size_t width = shape.heads * shape.head_dim, max_rows = kAttentionRows.back();
  const std::vector<float> q = Values(max_rows * width);
  std::vector<float> out(q.size());
  const size_t half = kKvHeads * kPositions * RowBytes(shape.kv_dtype, shape.head_dim);
  const size_t layers = std::max<size_t>(1, sample_.size() / (2 * half));
  size_t layer = 0;
  for (auto [ctx, seconds] : {std::pair(&one_, &one), std::pair(&all_, &all)}) {
    for (size_t i = 0; i < kAttentionRows.size(); ++i) {
      const size_t rows = kAttentionRows[i];
      const double least = MinSeconds([&, c = ctx] {
        const std::byte* k = sample_.data() + layer * 2 * half;
        const KvSpan span{.k = k,
                          .v = k + half,
                          .head_stride = kPositions * shape.head_dim,
                          .first = 0,
                          .rows = kPositions,
                          .transposed = HasKeyTiles(shape.kv_dtype) ? kPositions / kKeyTileRows * kKeyTileRows : 0};
        const AttentionTask task{.context = {&span, 1},
                                 .first_position = kPositions - rows,
                                 .visibility = Visibility::kCausal,
                                 .q = ConstMatrix<float>(q.data(), rows, width),
                                 .out = Matrix<float>(out.data(), rows, width)};
        tidemill::Attention(*c, shape, {&task, 1});
        layer = (layer + 1) % layers;
      });
      (*seconds)[i] = least / static_cast<double>(kPositions * kKvHeads);
    }
    MakeRising(*seconds);
  }
}

Result<void> OperationMeasurement::Loops(double element, double& one, double& all) {
  TIDEMILL_TRY(shorter, Chain::Create(all_, sample_, kChainWidth));
  TIDEMILL_TRY(longer, Chain::Create(all_, sample_, kLonger * kChainWidth));
  for (auto [ctx, loop] : {std::pair(&one_, &one), std::pair(&all_, &all)}) {
    // Fewer of both where they take long.
    const double a_link = std::max(1e-9, SecondsOf([&, c = ctx] { longer.Run(*c, 1); }));
    const size_t long_links = std::clamp<size_t>(static_cast<size_t>(kLongestPass / a_link), 1, longer.links());
    const size_t short_links = std::min(shorter.links(), long_links * kLonger);
    const double of_long = MinSeconds([&, c = ctx] { longer.Run(*c, long_links); });
    const double of_short = MinSeconds([&, c = ctx] { shorter.Run(*c, short_links); });
    const double more_links = static_cast<double>(short_links) - static_cast<double>(long_links);
    const double a_loop = (of_short - of_long) / std::max(1.0, more_links) - element * static_cast<double>(kChainWidth);
    *loop = std::max(1e-9, a_loop);
  }
  return {};
}

Result<double> OperationMeasurement::Element() {
  constexpr size_t kTimes = 100;
  TIDEMILL_TRY(quantized, QuantizedBuffer::Create(1, kElementWidth, one_.isa()));
  const std::vector<float> x = Values(kElementWidth), ones(kElementWidth, 1.0F);
  std::vector<float> y(kElementWidth);
  const Matrix<float> normed(y.data(), 1, kElementWidth);
  const double seconds = MinSeconds([&] {
    for (size_t i = 0; i < kTimes; ++i) {
      RmsNorm(one_, ConstMatrix<float>(x.data(), 1, kElementWidth), ones, 1e-5F, normed);
      quantized.Quantize(one_, normed);
    }
  });
  return seconds / static_cast<double>(kTimes * kElementWidth);
}

size_t OperationScratchBytes() {
  size_t bytes = 2 * kPanelRows * kCols;  // of products: two panels, unpacked
  for (const size_t dim : kAttentionDims) {
    for (const size_t group : kAttentionGroups) bytes = std::max(bytes, AttentionScratchBytes(ShapeOf(dim, group)));
  }
  return bytes;
}

}  // namespace tidemill
