#include "decoding/random.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace tidemill::random_test {
namespace {

// Known answers of the authors' Random123 library (its kat_vectors, lines "philox4x32 10").
TEST(Philox, KnownAnswers_Match) {
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformAt, Zeros_IsTheTop53BitsOfTheFirstKnownAnswer) {
  EXPECT_EQ(UniformAt({0, 0}, 0), static_cast<double>(0x6627e8d5e169c58d >> 11) / 9007199254740992.0);
}

// One bit anywhere in seed, sequence or position gives another number, so no part of them is lost on the way.
TEST(UniformAt, EachBitOfEachArgument_Matters) {
  std::set<double> values = {UniformAt({0, 0}, 0)};
  for (int bit = 0; bit < 64; ++bit) {
    values.insert(UniformAt({uint64_t{1} << bit, 0}, 0));
    values.insert(UniformAt({0, uint64_t{1} << bit}, 0));
    if (bit < 32) values.insert(UniformAt({0, 0}, uint32_t{1} << bit));
  }
  EXPECT_EQ(values.size(), 1U + 64 + 64 + 32);
}

TEST(UniformAt, ManyPositions_FillTheUnitIntervalEvenly) {
  constexpr int kDraws = 100000;
  std::vector<int> counts(100, 0);
  for (uint32_t position = 0; position < kDraws; ++position) {
    const double u = UniformAt({42, 7}, position);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++counts[static_cast<size_t>(u * 100)];
  }
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  // 99 degrees of freedom: 148.2 is exceeded by one seed in a thousand, 61.1 not reached by one in a thousand.
  EXPECT_LT(chi_square, 148.2);
  EXPECT_GT(chi_square, 61.1);
}

}  // namespace
}  // namespace tidemill::random_test
