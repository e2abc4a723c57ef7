#include "kernels/append_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/seeded_inputs.h"
#include "tensor/dequantize.h"

namespace tidemill::append_kv_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(AppendKv, EveryLevel_GivesTheBitsOfTheFormulaAndTouchesNothingElse) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    for (const size_t head_dim : {1, 7, 16, 32, 40, 64, 80, 96}) {
      const size_t block = InfoOf(dtype).block_elements;
      if (head_dim % block != 0) continue;
      constexpr size_t kHeads = 3, kLen = 5, kRoom = 9;
      std::vector<float> x = testing::RandomFloats(head_dim, kLen * kHeads * head_dim, 100);
      // Ties, overflow, subnormal halves, infinity, NaN.
      const float special[] = {0x1.002p0F, 0x1.006p0F, 65519.0F,     65520.0F,  -1e9F, 0x1p-24F,
                               0x1p-25F,   0x1.8p-25F, 0x1.ffcp-15F, kInfinity, kNaN,  -0.0F};
      for (size_t i = 0; i < std::size(special) && i < x.size(); ++i) x[i] = special[i];
      const size_t head_stride = kRoom * head_dim + 3 * block, row = 2;
      std::vector<std::byte> expected(RowBytes(dtype, kHeads * head_stride), std::byte{0x5A});
      for (size_t t = 0; t < kLen; ++t) {
        for (size_t h = 0; h < kHeads; ++h) {
          testing::StoreRow(dtype, std::span(x).subspan((t * kHeads + h) * head_dim, head_dim),
                            expected.data() + RowBytes(dtype, h * head_stride + (row + t) * head_dim));
        }
      }
      for (const Isa isa : testing::LevelsHere()) {
        for (const size_t threads : {1, 3}) {
          testing::TestContext context(isa, threads);
          std::vector<std::byte> cache(expected.size(), std::byte{0x5A});
          AppendKv(*context, {x.data(), kLen, kHeads * head_dim}, head_dim, dtype, head_stride,
                   cache.data() + RowBytes(dtype, row * head_dim));
          EXPECT_EQ(cache, expected) << IsaName(isa) << " " << InfoOf(dtype).name << " head_dim " << head_dim;
        }
      }
    }
  }
}

// One block, whatever the level.
std::vector<std::byte> StoredBlock(Isa isa, const std::vector<float>& x) {
  testing::TestContext context(isa);
  std::vector<std::byte> block(RowBytes(DType::kQ8_0, x.size()));
  AppendKv(*context, {x.data(), 1, x.size()}, x.size(), DType::kQ8_0, x.size(), block.data());
  return block;
}

TEST(AppendKv, BlocksOfAnyMagnitude_GiveTheBitsOfTheFormulaWithinItsError) {
  testing::Random random(3);
  for (int exponent = -130; exponent <= 24; ++exponent) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const float amax = std::ldexp(1 + std::fabs(random.Uniform(1)), exponent);
      std::vector<float> x(32);
      for (float& value : x) value = random.Uniform(amax);
      x[random.Below(32)] = amax;
      // Ties between two steps of a scale that is a power of two.
      if (repeat % 4 == 0) {
        for (size_t i = 0; i < 32; ++i) x[i] = std::ldexp(static_cast<float>(i) - 15.5F, exponent);
        x[31] = std::ldexp(127.0F, exponent);
      }
      std::vector<std::byte> expected(34);
      testing::StoreRow(DType::kQ8_0, x, expected.data());
      for (const Isa isa : testing::LevelsHere())
        ASSERT_EQ(StoredBlock(isa, x), expected) << IsaName(isa) << " " << amax;
      std::vector<float> read(32);
      DequantizeRow(DType::kQ8_0, expected, read);
      const double a = static_cast<double>(*std::max_element(x.begin(), x.end()));
      if (a >= 127 * 65520.0) {
        EXPECT_TRUE(std::isnan(read[0]) && std::isnan(read[31]));
        continue;
      }
      for (size_t i = 0; i < 32; ++i) {
        ASSERT_LE(std::fabs(static_cast<double>(read[i]) - static_cast<double>(x[i])), Q8StoreError(a))
            << x[i] << " of " << a;
      }
    }
  }
}

TEST(AppendKv, BlockOfWhatCannotBeStored_ReadsAsNaNAndItsNeighboursAreKept) {
  for (const float bad : {kNaN, -kNaN, kInfinity, -kInfinity, 127 * 65520.0F, -3e38F}) {
    for (const size_t place : {0, 13, 31}) {
      std::vector<float> x = testing::RandomFloats(place, 96, 4);
      x[32 + place] = bad;
      for (const Isa isa : testing::LevelsHere()) {
        const std::vector<std::byte> stored = StoredBlock(isa, x);
        std::vector<float> read(96);
        DequantizeRow(DType::kQ8_0, stored, read);
        for (size_t i = 0; i < 96; ++i) EXPECT_EQ(std::isnan(read[i]), i / 32 == 1) << bad << " at " << i;
      }
    }
  }
  const std::vector<float> zeros(32, -0.0F), tiny(32, 127 * 0x1p-25F);
  for (const Isa isa : testing::LevelsHere()) {
    EXPECT_EQ(StoredBlock(isa, zeros), std::vector<std::byte>(34)) << IsaName(isa);
    EXPECT_EQ(StoredBlock(isa, tiny), std::vector<std::byte>(34)) << IsaName(isa);
  }
}

}  // namespace
}  // namespace tidemill::append_kv_test
