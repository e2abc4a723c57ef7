#include "base/checked_math.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tidemill::checked_math_test {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(CheckedMath, Add_AtTheEdge) {
  uint64_t out = 7;
  EXPECT_TRUE(CheckedAdd<uint64_t>(kMax, 0, &out));
  EXPECT_EQ(out, kMax);
  out = 7;
  EXPECT_FALSE(CheckedAdd<uint64_t>(kMax, 1, &out));
  EXPECT_EQ(out, 7U);
}

TEST(CheckedMath, Mul_AtTheEdge) {
  uint64_t out = 7;
  EXPECT_TRUE(CheckedMul<uint64_t>(0, kMax, &out));
  EXPECT_EQ(out, 0U);
  EXPECT_TRUE(CheckedMul<uint64_t>(uint64_t{1} << 32, (uint64_t{1} << 32) - 1, &out));
  EXPECT_EQ(out, kMax - ((uint64_t{1} << 32) - 1));
  out = 7;
  EXPECT_FALSE(CheckedMul<uint64_t>(uint64_t{1} << 32, uint64_t{1} << 32, &out));
  EXPECT_EQ(out, 7U);
}

TEST(CheckedMath, AlignUp_RefusesWrapAndOddAlignments) {
  uint64_t out = 0;
  EXPECT_TRUE(CheckedAlignUp<uint64_t>(65, 64, &out));
  EXPECT_EQ(out, 128U);
  EXPECT_TRUE(CheckedAlignUp<uint64_t>(0, 64, &out));
  EXPECT_EQ(out, 0U);
  EXPECT_FALSE(CheckedAlignUp<uint64_t>(kMax - 62, 64, &out));
  EXPECT_FALSE(CheckedAlignUp<uint64_t>(8, 48, &out));
  EXPECT_FALSE(CheckedAlignUp<uint64_t>(8, 0, &out));
}

TEST(CheckedMath, EqualPart_IsTheLargestOfTheFewestParts) {
  EXPECT_EQ(EqualPart<size_t>(512, 127), 103U);  // 5 parts, where four of 127 would leave a fifth of 4
  EXPECT_EQ(EqualPart<size_t>(512, 256), 256U);
  EXPECT_EQ(EqualPart<size_t>(513, 256), 171U);
  EXPECT_EQ(EqualPart<size_t>(5, 256), 5U);
  EXPECT_EQ(EqualPart<size_t>(1, 1), 1U);
  EXPECT_EQ(EqualPart<size_t>(0, 256), 0U);
  for (size_t all = 1; all < 100; ++all) {
    for (size_t most = 1; most < 100; ++most) {
      const size_t part = EqualPart(all, most);
      EXPECT_LE(part, most);
      EXPECT_EQ(DivideRoundUp(all, part), DivideRoundUp(all, most)) << all << " in parts of " << most;
    }
  }
}

}  // namespace
}  // namespace tidemill::checked_math_test
