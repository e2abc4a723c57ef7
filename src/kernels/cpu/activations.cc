#include "kernels/activations.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/cpu/for_each_row.h"
#if defined(__x86_64__)
#include "kernels/cpu/matmul_bf16.h"
#endif
#include "kernels/cpu/quantize_rows.h"

namespace tidemill {
namespace {

// An odd number of cache lines: rows a power of two apart would share the sets of the L1 cache, which hold 8 lines, and a tile
// reads more rows than that side by side.
size_t BFloat16Stride(size_t cols) { return RoundUp<size_t>(cols, 32) | 32; }

}  // namespace

size_t BFloat16Buffer::RowBytes(size_t max_cols) { return BFloat16Stride(max_cols) * sizeof(uint16_t); }

Result<BFloat16Buffer> BFloat16Buffer::Create(size_t max_rows, size_t max_cols) {
  BFloat16Buffer buffer;
  TIDEMILL_TRY(memory, AlignedBuffer::Create(max_rows * RowBytes(max_cols)));
  buffer.memory_ = std::move(memory);
  return buffer;
}

Matrix<uint16_t> BFloat16Buffer::Place(size_t rows, size_t cols) {
  TIDEMILL_CHECK(rows * RowBytes(cols) <= memory_.size());
  return {memory_.As<uint16_t>().data(), rows, cols, BFloat16Stride(cols)};
}

void BFloat16Buffer::RoundRows([[maybe_unused]] ExecutionContext& ctx, [[maybe_unused]] ConstMatrix<float> x,
                               [[maybe_unused]] Matrix<uint16_t> out) {
#if defined(__x86_64__)
  TIDEMILL_CHECK(HasBFloat16Products(ctx.isa()));
  ForEachRow(ctx, x.rows, x.cols, [&](size_t r) { bf16::RoundRow(x.row(r), x.cols, out.row(r)); });
#else
  StopOnFailedCheck("a level with BF16 products", __FILE__, __LINE__);
#endif
}

ConstMatrix<uint16_t> BFloat16Buffer::Round(ExecutionContext& ctx, ConstMatrix<float> x) {
  const Matrix<uint16_t> rounded = Place(x.rows, x.cols);
  RoundRows(ctx, x, rounded);
  return rounded;
}

QuantizedRows QuantizedRows::Rows(size_t first, size_t count) const {
  QuantizedRows part = *this;
  const size_t blocks = cols / kQuantBlock;
  part.q += first * cols;
  if (pairs != nullptr) part.pairs += first * cols;
  if (biased != nullptr) {
    part.biased += BiasedIndex(biased_row + first, blocks) / kBiasedTileRows * kBiasedTileRows;
    part.biased_row = (biased_row + first) % kBiasedTileRows;
  }
  part.d += first * blocks;
  part.sum += first * blocks;
  part.half_sums += first * blocks * 2;
  part.rows = count;
  return part;
}

namespace {

bool NeedsPairs(Isa isa) { return isa < Isa::kAvx512Vnni; }

}  // namespace

bool WantsBiased(DType weight, Isa isa) {
  return weight == DType::kQ8_0 && isa >= Isa::kAvx2 && NeedsPairs(isa) && GainsFromBiasedBlocks();
}

size_t QuantizedBuffer::RowBytes(size_t max_cols, Isa isa, bool biased) {
  const size_t elements = RoundUp(max_cols, kQuantBlock);
  const size_t block_bytes = 2 * sizeof(float) + 2 * sizeof(int16_t);  // d, sum, half_sums
  return elements * (NeedsPairs(isa) ? 1 + sizeof(int16_t) : 1) +
         elements / kQuantBlock * (block_bytes + (biased ? sizeof(BiasedBlock) : 0));
}

Result<QuantizedBuffer> QuantizedBuffer::Create(size_t max_rows, size_t max_cols, Isa isa, bool biased) {
  TIDEMILL_CHECK(!biased || NeedsPairs(isa));
  QuantizedBuffer buffer;
  buffer.with_pairs_ = NeedsPairs(isa);
  const size_t elements = max_rows * RoundUp(max_cols, kQuantBlock);
  const size_t blocks = elements / kQuantBlock;
  TIDEMILL_TRY(q, AlignedBuffer::Create(elements));
  TIDEMILL_TRY(pairs, AlignedBuffer::Create(buffer.with_pairs_ ? elements * sizeof(int16_t) : 0));
  TIDEMILL_TRY(d, AlignedBuffer::Create(blocks * sizeof(float)));
  TIDEMILL_TRY(sum, AlignedBuffer::Create(blocks * sizeof(float)));
  TIDEMILL_TRY(half_sums, AlignedBuffer::Create(blocks * 2 * sizeof(int16_t)));
  const size_t biased_rows = biased && max_rows >= kMinBiasedRows ? RoundUp(max_rows, kBiasedTileRows) : 0;
  TIDEMILL_TRY(biased_blocks, AlignedBuffer::Create(biased_rows * (RoundUp(max_cols, kQuantBlock) / kQuantBlock) *
                                                    sizeof(BiasedBlock)));
  buffer.biased_ = std::move(biased_blocks);
  buffer.q_ = std::move(q);
  buffer.pairs_ = std::move(pairs);
  buffer.d_ = std::move(d);
  buffer.sum_ = std::move(sum);
  buffer.half_sums_ = std::move(half_sums);
  return buffer;
}

QuantizedRows QuantizedBuffer::Place(size_t rows, size_t cols, bool biased) {
  TIDEMILL_CHECK(cols % kQuantBlock == 0 && rows * cols <= q_.size());
  const size_t whole_tiles = RoundUp(rows, kBiasedTileRows) * (cols / kQuantBlock) * sizeof(BiasedBlock);
  placed_biased_ = biased && rows >= kMinBiasedRows && whole_tiles <= biased_.size();
  return {.q = reinterpret_cast<const int8_t*>(q_.data()),
          .pairs = with_pairs_ ? pairs_.As<int16_t>().data() : nullptr,
          .d = d_.As<float>().data(),
          .sum = sum_.As<float>().data(),
          .half_sums = half_sums_.As<int16_t>().data(),
          .biased = placed_biased_ ? biased_.As<BiasedBlock>().data() : nullptr,
          .rows = rows,
          .cols = cols};
}

void QuantizedBuffer::QuantizeRows(ExecutionContext& ctx, ConstMatrix<float> x, size_t first_row) {
  TIDEMILL_CHECK(x.cols % kQuantBlock == 0 && (first_row + x.rows) * x.cols <= q_.size());
  auto* q = reinterpret_cast<int8_t*>(q_.data());
  int16_t* pairs = with_pairs_ ? pairs_.As<int16_t>().data() : nullptr;
  float* d = d_.As<float>().data();
  float* sum = sum_.As<float>().data();
  int16_t* half_sums = half_sums_.As<int16_t>().data();
  BiasedBlock* biased = placed_biased_ ? biased_.As<BiasedBlock>().data() : nullptr;
  const size_t blocks = x.cols / kQuantBlock;
  const QuantizeRowKernel kernel = PickQuantizeRow(ctx.isa());
  ForEachRow(ctx, x.rows, x.cols, [&](size_t i) {
    const size_t r = first_row + i;
    kernel(x.row(i), x.cols,
           {.q = q + r * x.cols,
            .pairs = pairs == nullptr ? nullptr : pairs + r * x.cols,
            .d = d + r * blocks,
            .sum = sum + r * blocks,
            .half_sums = half_sums + r * blocks * 2,
            .biased = biased == nullptr ? nullptr : biased + BiasedIndex(r, blocks)});
  });
}

QuantizedRows QuantizedBuffer::Quantize(ExecutionContext& ctx, ConstMatrix<float> x) {
  const QuantizedRows rows = Place(x.rows, x.cols);
  QuantizeRows(ctx, x, 0);
  return rows;
}

}  // namespace tidemill
