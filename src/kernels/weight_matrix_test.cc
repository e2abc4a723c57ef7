#include "kernels/weight_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"
#include "tensor/dequantize.h"
#include "tensor/six_bit_scales.h"

namespace tidemill::weight_matrix_test {
namespace {

using testing::kAllTypes;
using testing::RandomWeight;
using testing::SameBits;
using testing::WholeBlocks;

std::vector<float> ExpectedRow(const WeightSource& source, size_t file_row) {
  std::vector<float> row(source.cols);
  const size_t row_bytes = RowBytes(source.dtype, source.cols);
  DequantizeRow(source.dtype, source.bytes.subspan(file_row * row_bytes, row_bytes), row);
  return row;
}

WeightMatrix Pack(const WeightSource& source, bool as_f32 = false, size_t threads = 1) {
  testing::TestContext context(Isa::kBaseline, threads);
  return WeightMatrix::Pack(source, as_f32, context.threads(), {}).value();
}

TEST(WeightMatrix, CopyRow_GivesBackTheFilesRow) {
  for (const DType dtype : kAllTypes) {
    const size_t cols = 3 * WholeBlocks(dtype, 32);
    for (const size_t rows : {1, 15, 16, 17, 50}) {
      const RandomWeight random(dtype, rows, cols, rows);
      for (const bool as_f32 : {false, true}) {
        const WeightMatrix packed = Pack(random.source, as_f32), mapped = WeightMatrix::Map(random.source, as_f32);
        EXPECT_EQ(packed.dtype(), as_f32 ? DType::kF32 : dtype);
        EXPECT_TRUE(packed.packed());
        EXPECT_FALSE(mapped.packed());
        EXPECT_EQ(mapped.resident_bytes(), 0u);
        for (size_t row = 0; row < rows; ++row) {
          const std::vector<float> expected = ExpectedRow(random.source, row);
          std::vector<float> a(cols, 7.0F), b(cols, 7.0F);
          packed.CopyRow(row, a);
          mapped.CopyRow(row, b);
          EXPECT_TRUE(SameBits(expected, a))
              << InfoOf(dtype).name << " row " << row << " of " << rows << " f32 " << as_f32;
          EXPECT_TRUE(SameBits(expected, b))
              << InfoOf(dtype).name << " row " << row << " of " << rows << " f32 " << as_f32;
        }
      }
    }
  }
}

TEST(WeightMatrix, FloatRowsOfAnyLength_ComeBack) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const size_t cols : {1, 3, 17, 33}) {
      const RandomWeight random(dtype, 18, cols, cols);
      const WeightMatrix packed = Pack(random.source);
      for (size_t row = 0; row < 18; ++row) {
        std::vector<float> out(cols);
        packed.CopyRow(row, out);
        EXPECT_TRUE(SameBits(ExpectedRow(random.source, row), out)) << InfoOf(dtype).name << " cols " << cols;
      }
    }
  }
}

TEST(WeightMatrix, Packed_IsAtMostATwentiethLargerThanTheFilesRows) {
  for (const DType dtype : kAllTypes) {
    const RandomWeight random(dtype, 64, WholeBlocks(dtype, 1024), 1);
    const auto packed = static_cast<double>(Pack(random.source).resident_bytes());
    const auto file = static_cast<double>(random.source.bytes.size());
    EXPECT_GE(packed, file) << InfoOf(dtype).name;
    EXPECT_LE(packed, 1.05 * file) << InfoOf(dtype).name;
  }
}

TEST(RowOrder, Interleaved_IsAPermutationWithinEachHead) {
  const RowOrder order{.interleaved_head_dim = 8};
  // Rows of head 1 in usual order: first halves, then second halves; the file has them in turn.
  const size_t expected[8] = {8, 10, 12, 14, 9, 11, 13, 15};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(order.FileRow(8 + i), expected[i]);
  EXPECT_EQ(RowOrder().FileRow(5), 5u);
}

TEST(WeightMatrix, InterleavedRows_AreFoundWhereTheFileHasThem) {
  for (const DType dtype : kAllTypes) {
    const size_t cols = WholeBlocks(dtype, 32);
    RandomWeight random(dtype, 48, cols, 5);
    random.source.order.interleaved_head_dim = 12;
    const WeightMatrix packed = Pack(random.source), mapped = WeightMatrix::Map(random.source, false);
    for (size_t row = 0; row < 48; ++row) {
      const std::vector<float> expected = ExpectedRow(random.source, random.source.order.FileRow(row));
      std::vector<float> a(cols), b(cols);
      packed.CopyRow(row, a);
      mapped.CopyRow(row, b);
      EXPECT_TRUE(SameBits(expected, a)) << InfoOf(dtype).name << " row " << row;
      EXPECT_TRUE(SameBits(expected, b)) << InfoOf(dtype).name << " row " << row;
    }
  }
}

TEST(WeightMatrix, RangeOfColumns_IsReadByItsStride) {
  for (const DType dtype : kAllTypes) {
    const size_t unit = WholeBlocks(dtype, 32);
    const RandomWeight wide(dtype, 20, 5 * unit, 9);
    const size_t row_bytes = RowBytes(dtype, 5 * unit), skip = RowBytes(dtype, unit), kept = RowBytes(dtype, 3 * unit);
    WeightSource range = wide.source;
    range.cols = 3 * unit;
    range.row_stride = row_bytes;
    range.bytes = wide.source.bytes.subspan(skip, 19 * row_bytes + kept);
    for (const bool as_f32 : {false, true}) {
      const WeightMatrix packed = Pack(range, as_f32), mapped = WeightMatrix::Map(range, as_f32);
      for (size_t row = 0; row < 20; ++row) {
        const std::vector<float> whole = ExpectedRow(wide.source, row),
                                 expected(whole.begin() + static_cast<ptrdiff_t>(unit),
                                          whole.begin() + static_cast<ptrdiff_t>(4 * unit));
        std::vector<float> a(3 * unit), b(3 * unit);
        packed.CopyRow(row, a);
        mapped.CopyRow(row, b);
        EXPECT_TRUE(SameBits(expected, a)) << InfoOf(dtype).name << " row " << row;
        EXPECT_TRUE(SameBits(expected, b)) << InfoOf(dtype).name << " row " << row;
      }
    }
  }
}

// The layout that the header draws, byte by byte: the file's bytes elsewhere.
TEST(WeightMatrix, PanelsOfTheFilesBytes_HaveTheStatedLayout) {
  constexpr size_t kRows = 20, kCols = 64;
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kF16, DType::kF32}) {
    const RandomWeight random(dtype, kRows, kCols, 6);
    const WeightMatrix packed = Pack(random.source);
    const size_t panel_bytes = packed.panel_bytes(), block_bytes = InfoOf(dtype).block_bytes;
    ASSERT_EQ(packed.num_panels(), 2u);
    ASSERT_EQ(packed.resident_bytes(), 2 * panel_bytes);
    const std::byte* panels = packed.Panels(0, 2, {});
    const auto expect_byte = [&](size_t at, std::byte expected, size_t row) {
      ASSERT_EQ(std::to_integer<int>(panels[row / 16 * panel_bytes + at]), std::to_integer<int>(expected))
          << InfoOf(dtype).name << " row " << row << " byte " << at;
    };
    for (size_t row = 0; row < kRows; ++row) {
      const std::byte* file = random.bytes.data() + row * RowBytes(dtype, kCols);
      const size_t lane = row % 16;
      if (!InfoOf(dtype).quantized) {
        for (size_t i = 0; i < kCols * block_bytes; ++i) {
          expect_byte((i / block_bytes * 16 + lane) * block_bytes + i % block_bytes, file[i], row);
        }
        continue;
      }
      const size_t scales = dtype == DType::kQ4_1 ? 4 : 2, words = (block_bytes - scales) / 4;
      const size_t group_bytes = 16 * scales + 64 * words;
      for (size_t b = 0; b < kCols / 32; ++b) {
        const std::byte* block = file + b * block_bytes;
        for (size_t g = 0; g < words; ++g) {
          for (size_t j = 0; j < 4; ++j) {
            const std::byte quant =
                block[scales + g * 4 + j] ^ std::byte{dtype == DType::kQ8_0 ? uint8_t{128} : uint8_t{0}};
            expect_byte(b * group_bytes + scales * 16 + (g * 16 + lane) * 4 + j, quant, row);
          }
        }
        for (size_t i = 0; i < scales; ++i) {
          expect_byte(b * group_bytes + (i / 2 * 16 + lane) * 2 + i % 2, block[i], row);
        }
      }
    }
  }
}

// The same for types whose bits move, element by element.
TEST(WeightMatrix, PanelsOfMoreBits_HaveTheStatedLayout) {
  constexpr size_t kRows = 20, kCols = 512;
  for (const DType dtype : {DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const RandomWeight random(dtype, kRows, kCols, 6);
    const WeightMatrix packed = Pack(random.source);
    const DTypeInfo info = InfoOf(dtype);
    const size_t words = dtype == DType::kQ4_K ? 4 : dtype == DType::kQ6_K ? 6 : 5;
    const size_t halves = dtype == DType::kQ5_0 || dtype == DType::kQ6_K ? 1 : 2;
    const int offset = dtype == DType::kQ5_0 ? 16 : dtype == DType::kQ6_K ? 32 : 0;
    const size_t first_half = dtype == DType::kQ6_K ? 208 : 0;
    const size_t byte_scales = info.block_elements == 256 ? 256 : 0;
    const size_t scale_bytes = halves * 32 + byte_scales, blocks = info.block_elements / 32;
    const size_t group_bytes = scale_bytes + blocks * words * 64;
    ASSERT_EQ(packed.panel_bytes(), kCols / info.block_elements * group_bytes);
    const std::byte* panels = packed.Panels(0, 2, {});
    for (size_t row = 0; row < kRows; ++row) {
      const std::byte* file = random.bytes.data() + row * RowBytes(dtype, kCols);
      const std::byte* panel = panels + row / 16 * packed.panel_bytes();
      const size_t lane = row % 16;
      for (size_t k = 0; k < kCols; ++k) {
        const std::byte* group = panel + k / info.block_elements * group_bytes;
        const std::byte* block = group + scale_bytes + k / 32 % blocks * words * 64;
        const size_t g = k % 32 / 4, j = k % 4;
        const auto byte = [&](size_t word) { return std::to_integer<int>(block[word * 64 + lane * 4 + j]); };
        int stored = g < 4 ? byte(g) & 15 : byte(g - 4) >> 4;
        if (words == 5) stored += 16 * (byte(4) >> g & 1);
        if (words == 6) stored += 16 * (byte(4 + g / 4) >> (2 * (g % 4)) & 3);
        const std::byte* file_block = file + k / info.block_elements * info.block_bytes;
        ASSERT_EQ(stored - offset, testing::FileQuant(dtype, file_block, k % info.block_elements))
            << info.name << " row " << row << " column " << k;
      }
      for (size_t i = 0; i < kCols / info.block_elements; ++i) {
        const std::byte* group = panel + i * group_bytes;
        const std::byte* file_block = file + i * info.block_bytes;
        for (size_t half = 0; half < halves; ++half) {
          ASSERT_EQ(std::memcmp(group + (half * 16 + lane) * 2, file_block + first_half + half * 2, 2), 0) << info.name;
        }
        for (size_t b = 0; b < byte_scales / 32; ++b) {
          const std::byte* at = group + halves * 32 + b * 32 + lane;
          const SixBitScale scale = ReadSixBitScale(file_block + 4, b);
          const bool six_bits = dtype != DType::kQ6_K;
          ASSERT_EQ(at[0], six_bits ? std::byte{scale.sc} : file_block[192 + 2 * b]) << info.name << " block " << b;
          ASSERT_EQ(at[16], six_bits ? std::byte{scale.m} : file_block[193 + 2 * b]) << info.name << " block " << b;
        }
      }
    }
  }
}

TEST(WeightMatrix, PackedBytes_AreNearlyTheFiles) {
  for (const DType dtype : kAllTypes) {
    const RandomWeight random(dtype, 32, 512, 6);
    const auto file = static_cast<double>(random.bytes.size());
    const double ratio = static_cast<double>(Pack(random.source).resident_bytes()) / file;
    const double expected = dtype == DType::kQ4_K ? 148.0 / 144 : dtype == DType::kQ5_K ? 180.0 / 176 : 1.0;
    EXPECT_EQ(ratio, expected) << InfoOf(dtype).name;
  }
}

TEST(WeightMatrix, PanelsOfAMappedMatrix_EqualThePackedOnes) {
  for (const DType dtype : kAllTypes) {
    for (const bool as_f32 : {false, true}) {
      const size_t cols = WholeBlocks(dtype, 64);
      const RandomWeight random(dtype, 100, cols, 7);
      const WeightMatrix packed = Pack(random.source, as_f32, 3), mapped = WeightMatrix::Map(random.source, as_f32);
      const size_t bytes = packed.panel_bytes();
      std::vector<std::byte> scratch(3 * bytes + cols * sizeof(float), std::byte{0xFF});
      for (size_t first = 0; first < 7; ++first) {
        const size_t count = std::min<size_t>(3, 7 - first);
        const std::byte* panels = mapped.Panels(first, count, scratch);
        EXPECT_EQ(std::memcmp(panels, packed.Panels(first, count, {}), count * bytes), 0) << InfoOf(dtype).name;
      }
    }
  }
}

TEST(WeightMatrix, Packing_ReleasesEveryByteOnceInOrder) {
  const RandomWeight random(DType::kF32, 5000, 512, 8);  // 10 MB: three pieces
  auto pool = ThreadPool::Create(2).value();
  size_t released = 0, pieces = 0;
  const auto release = [&](std::span<const std::byte> piece) {
    EXPECT_EQ(piece.data(), random.bytes.data() + released);
    EXPECT_LE(piece.size(), size_t{4} << 20);
    released += piece.size();
    ++pieces;
  };
  const WeightMatrix packed = WeightMatrix::Pack(random.source, false, *pool, release).value();
  EXPECT_EQ(released, random.bytes.size());
  EXPECT_EQ(pieces, 3u);
  std::vector<float> row(512);
  packed.CopyRow(4999, row);
  EXPECT_TRUE(SameBits(ExpectedRow(random.source, 4999), row));
}

}  // namespace
}  // namespace tidemill::weight_matrix_test
