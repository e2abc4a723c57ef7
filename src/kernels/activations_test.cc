#include "kernels/activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"
#include "tensor/half.h"

namespace tidemill::activations_test {
namespace {

using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

// Quantises one matrix at one level and compares every array with the formula.
void ExpectFormula(Isa isa, const std::vector<float>& x, size_t rows, size_t cols, size_t threads = 1,
                   bool biased = false) {
  TestContext context(isa, threads);
  auto buffer = QuantizedBuffer::Create(rows, cols, isa, biased).value();
  const QuantizedRows all = buffer.Quantize(*context, {x.data(), rows, cols});
  ASSERT_EQ(all.rows, rows);
  ASSERT_EQ(all.cols, cols);
  EXPECT_EQ(all.pairs != nullptr, isa < Isa::kAvx512Vnni);
  EXPECT_EQ(all.biased != nullptr, biased && rows >= kMinBiasedRows);
  const size_t blocks = cols / kQuantBlock;
  for (size_t r = 0; r < rows; ++r) {
    const QuantizedRows row = all.Rows(r, 1);
    const auto expected = testing::QuantizeRow(std::span(x).subspan(r * cols, cols));
    EXPECT_EQ(std::vector<int8_t>(row.q, row.q + cols), expected.q) << IsaName(isa) << " row " << r;
    EXPECT_EQ(std::vector<int16_t>(row.half_sums, row.half_sums + 2 * blocks), expected.half_sums)
        << IsaName(isa) << " row " << r;
    EXPECT_TRUE(SameBits(expected.d, {row.d, blocks})) << IsaName(isa) << " row " << r;
    EXPECT_TRUE(SameBits(expected.sum, {row.sum, blocks})) << IsaName(isa) << " row " << r;
    for (size_t i = 0; row.pairs != nullptr && i < cols; i += 4) {
      const int16_t four[4] = {row.q[i], row.q[i + 2], row.q[i + 1], row.q[i + 3]};
      EXPECT_EQ(std::memcmp(row.pairs + i, four, sizeof(four)), 0) << IsaName(isa) << " pairs at " << i;
    }
    for (size_t b = 0; row.biased != nullptr && b < blocks; ++b) {
      ASSERT_EQ(row.biased_row, r % kBiasedTileRows);
      const BiasedBlock& block = row.biased[b * kBiasedTileRows + row.biased_row];
      for (size_t i = 0; i < kQuantBlock; ++i)
        EXPECT_EQ(block.q[i], row.pairs[b * kQuantBlock + i] + 128) << IsaName(isa) << " row " << r << " block " << b;
      EXPECT_TRUE(SameBits({&block.d, 1}, {row.d + b, 1})) << IsaName(isa) << " row " << r << " block " << b;
      const int sum = expected.half_sums[2 * b] + expected.half_sums[2 * b + 1];
      EXPECT_EQ(block.rest, 0x4B400000 - 128 * sum) << IsaName(isa) << " row " << r << " block " << b;
    }
  }
}

TEST(Quantize, EveryLevel_GivesTheBitsOfTheFormula) {
  for (const Isa isa : LevelsHere()) {
    for (const size_t cols : {32, 64, 96, 576, 1536}) {
      for (const float amax : {1e-30F, 0.01F, 1.0F, 500.0F, 1e30F})
        ExpectFormula(isa, RandomFloats(cols, 5 * cols, amax), 5, cols);
    }
    ExpectFormula(isa, RandomFloats(3, 100 * 576), 100, 576, 3);
  }
}

TEST(Quantize, BiasedRows_HaveTheSameNumbersInTiles) {
  for (const Isa isa : LevelsHere()) {
    if (isa >= Isa::kAvx512Vnni) continue;
    for (const size_t rows : {1, 11, 12, 13, 15, 16, 50}) {
      std::vector<float> x = RandomFloats(rows, rows * 96, 3);
      x[40] = std::numeric_limits<float>::quiet_NaN();
      std::fill_n(x.begin() + 64, 32, -3.0F);
      ExpectFormula(isa, x, rows, 96, 1, true);
      ExpectFormula(isa, x, rows, 96, 3, true);
    }
  }
}

TEST(Quantize, Ties_GoToEven) {
  std::vector<float> x(32);
  x[0] = 127;  // scale 1
  for (size_t i = 1; i < 32; ++i) x[i] = static_cast<float>(i) - 16.5F;
  for (const Isa isa : LevelsHere()) {
    ExpectFormula(isa, x, 1, 32);
    TestContext context(isa);
    auto buffer = QuantizedBuffer::Create(1, 32, isa).value();
    const QuantizedRows q = buffer.Quantize(*context, {x.data(), 1, 32});
    EXPECT_EQ(q.q[16], 0);   // -0.5
    EXPECT_EQ(q.q[17], 0);   // 0.5
    EXPECT_EQ(q.q[18], 2);   // 1.5
    EXPECT_EQ(q.q[15], -2);  // -1.5
    EXPECT_EQ(q.d[0], 1);
  }
}

TEST(Quantize, BlocksOfZerosAndOfTheSmallestNumbers_AreZero) {
  std::vector<float> x(3 * 32);
  for (size_t i = 0; i < 32; ++i) x[32 + i] = (i % 2 == 0 ? -1.0F : 1.0F) * 0x1p-149F * static_cast<float>(i);
  for (size_t i = 0; i < 32; ++i) x[64 + i] = 0x1p-121F * static_cast<float>(i);  // about the smallest that has a scale
  for (const Isa isa : LevelsHere()) {
    ExpectFormula(isa, x, 1, 96);
    TestContext context(isa);
    auto buffer = QuantizedBuffer::Create(1, 96, isa).value();
    const QuantizedRows q = buffer.Quantize(*context, {x.data(), 1, 96});
    for (size_t b = 0; b < 2; ++b) {
      EXPECT_EQ(q.d[b], 0);
      EXPECT_EQ(q.half_sums[2 * b], 0);
      EXPECT_EQ(q.half_sums[2 * b + 1], 0);
    }
    EXPECT_EQ(q.q[95], 127);
  }
}

TEST(Quantize, NaNOrInfinity_MakesItsBlockNaNAndNoOther) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    for (size_t place = 0; place < 32; ++place) {
      std::vector<float> x = RandomFloats(4, 3 * 32);
      x[32 + place] = bad;
      for (const Isa isa : LevelsHere()) ExpectFormula(isa, x, 1, 96);
    }
  }
}

TEST(Quantize, LargestFloats_StayFinite) {
  std::vector<float> x(32, std::numeric_limits<float>::max());
  x[1] = -x[1];
  for (const Isa isa : LevelsHere()) ExpectFormula(isa, x, 1, 32);
}

TEST(Quantize, StridedRows_AreReadByTheirStride) {
  const std::vector<float> x = RandomFloats(5, 4 * 100);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    auto buffer = QuantizedBuffer::Create(4, 64, isa).value();
    const QuantizedRows q = buffer.Quantize(*context, {x.data(), 4, 64, 100});
    for (size_t r = 0; r < 4; ++r) {
      const auto expected = testing::QuantizeRow(std::span(x).subspan(r * 100, 64));
      EXPECT_EQ(std::vector<int8_t>(q.q + r * 64, q.q + r * 64 + 64), expected.q);
    }
  }
}

TEST(QuantizedBuffer, SmallerAndLargerMatrices_ShareOneBuffer) {
  TestContext context(LevelsHere().back());
  auto buffer = QuantizedBuffer::Create(6, 64, LevelsHere().back()).value();
  for (const auto& [rows, cols] : {std::pair<size_t, size_t>{6, 64}, {1, 32}, {2, 192}, {12, 32}}) {
    const std::vector<float> x = RandomFloats(rows, rows * cols);
    const QuantizedRows q = buffer.Quantize(*context, {x.data(), rows, cols});
    const auto expected = testing::QuantizeRow(x);  // blocks do not know of rows
    EXPECT_EQ(std::vector<int8_t>(q.q, q.q + rows * cols), expected.q);
    EXPECT_TRUE(SameBits(expected.sum, {q.sum, rows * cols / kQuantBlock}));
  }
}

// Tiles of four rows may need more room than there is: then there are none.
TEST(QuantizedBuffer, MatricesOfOtherShapes_HaveBiasedRowsWhereTheyFit) {
  const Isa isa = Isa::kBaseline;
  TestContext context(isa);
  auto buffer = QuantizedBuffer::Create(16, 64, isa, true).value();
  struct Case {
    size_t rows, cols;
    bool biased;
  };
  for (const Case& c : {Case{16, 64, true},
                        {12, 64, true},
                        {11, 64, false},
                        {15, 64, true},
                        {32, 32, true},
                        {29, 32, true},
                        {4, 256, false}}) {
    const std::vector<float> x = RandomFloats(c.rows, c.rows * c.cols);
    const QuantizedRows q = buffer.Quantize(*context, {x.data(), c.rows, c.cols});
    EXPECT_EQ(q.biased != nullptr, c.biased) << c.rows << " rows of " << c.cols;
    EXPECT_EQ(buffer.Place(c.rows, c.cols, false).biased, nullptr);
  }
  auto narrow = QuantizedBuffer::Create(13, 64, isa, true).value();
  EXPECT_NE(narrow.Place(13, 64).biased, nullptr);
  EXPECT_EQ(narrow.Place(13, 64).Rows(5, 3).biased_row, 1U);
  auto without = QuantizedBuffer::Create(16, 64, isa).value();
  EXPECT_EQ(without.Place(16, 64).biased, nullptr);
  EXPECT_EQ(QuantizedBuffer::RowBytes(64, isa, true), QuantizedBuffer::RowBytes(64, isa) + 2 * sizeof(BiasedBlock));
  EXPECT_EQ(QuantizeCost(16, 64, isa, true).bytes, QuantizeCost(16, 64, isa).bytes + 16 * 2 * sizeof(BiasedBlock));
}

TEST(QuantizedBuffer, RowsAreWantedBiased_ForQ8AtTheAvx2KernelsLevelsAlone) {
  for (const Isa isa : KnownIsas()) {
    const bool level = isa == Isa::kAvx2 || isa == Isa::kAvx512;
    EXPECT_EQ(WantsBiased(DType::kQ8_0, isa), level && GainsFromBiasedBlocks()) << IsaName(isa);
    EXPECT_FALSE(WantsBiased(DType::kQ4_0, isa));
    EXPECT_FALSE(WantsBiased(DType::kF32, isa));
  }
}

TEST(RoundToBFloat16, EveryRow_GivesTheBitsOfTheFormulaAndAZeroBehindAnOddEnd) {
  if (!HasBFloat16Products(DetectIsa())) GTEST_SKIP() << "this CPU has no products of BF16";
  for (const Isa isa : LevelsHere()) {
    if (!HasBFloat16Products(isa)) continue;
    for (const size_t cols : {1, 2, 15, 16, 17, 31, 32, 33, 576}) {
      constexpr size_t kRows = 5;
      std::vector<float> x = RandomFloats(cols, kRows * cols, 3);
      x[0] = std::bit_cast<float>(0x3F808000U);         // a tie, down to even
      x[cols] = std::bit_cast<float>(0x3F818000U);      // a tie, up to even
      x[2 * cols] = std::bit_cast<float>(0x807FFFFFU);  // subnormal: a zero of its sign
      x[3 * cols] = std::numeric_limits<float>::infinity();
      x[4 * cols] = std::numeric_limits<float>::max();  // rounds to infinity
      TestContext context(isa, 2);
      auto buffer = BFloat16Buffer::Create(kRows, cols).value();
      const ConstMatrix<uint16_t> rounded = buffer.Round(*context, {x.data(), kRows, cols});
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t k = 0; k < cols; ++k) {
          const float value = x[r * cols + k];
          const bool subnormal = std::fabs(value) < std::numeric_limits<float>::min();
          EXPECT_EQ(rounded.row(r)[k], FloatToBFloat16(subnormal ? std::copysign(0.0F, value) : value)) << value;
        }
        if (cols % 2 != 0) {
          EXPECT_EQ(rounded.row(r)[cols], 0) << cols;
        }
      }
    }
  }
}

TEST(RoundToBFloat16, NaN_StaysNaN) {
  if (!HasBFloat16Products(DetectIsa())) GTEST_SKIP() << "this CPU has no products of BF16";
  for (const Isa isa : LevelsHere()) {
    if (!HasBFloat16Products(isa)) continue;
    TestContext context(isa);
    const float x[2] = {std::numeric_limits<float>::quiet_NaN(), 1.0F};
    auto buffer = BFloat16Buffer::Create(1, 2).value();
    const ConstMatrix<uint16_t> rounded = buffer.Round(*context, {x, 1, 2});
    EXPECT_TRUE(std::isnan(BFloat16ToFloat(rounded.row(0)[0])));
    EXPECT_EQ(rounded.row(0)[1], 0x3F80);
  }
}

}  // namespace
}  // namespace tidemill::activations_test
