#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::rope_test {
namespace {

using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

// The C library's sine and cosine are themselves within 1 ulp: 2^-53.
TEST(SinCos, UpToTheLargestAngle_StaysBelowItsError) {
  testing::Random random(1);
  const auto check = [](float x) {
    double s = 0, c = 0;
    SinCos(static_cast<double>(x), &s, &c);
    ASSERT_LE(std::fabs(s - std::sin(static_cast<double>(x))), 0x1p-50) << "x = " << x;
    ASSERT_LE(std::fabs(c - std::cos(static_cast<double>(x))), 0x1p-50) << "x = " << x;
  };
  for (int exponent = -30; exponent < 26; ++exponent) {
    for (int i = 0; i < 2000; ++i)
      check(std::ldexp(1 + std::fabs(random.Uniform(1)), exponent) * (i % 2 == 0 ? 1.0F : -1.0F));
  }
  for (uint32_t n = 0; n < 50000; ++n) check(static_cast<float>(n));
  for (uint32_t n = 0; n < 20000; ++n)
    check(static_cast<float>(n) * 1.57079632679489661923F);  // beside the multiples of pi / 2
  check(0x1p26F);
  check(-0x1p26F);
}

TEST(SinCos, Zero_IsExact) {
  double s = 1, c = 0;
  SinCos(0, &s, &c);
  EXPECT_EQ(s, 0);
  EXPECT_EQ(c, 1);
}

std::vector<float> InverseFrequencies(size_t rotary_dim, double theta) {
  std::vector<float> inv_freq(rotary_dim / 2);
  for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] = static_cast<float>(RopeFrequency(theta, i, rotary_dim));
  return inv_freq;
}

TEST(RopeFrequency, KnownDimensions_GiveTheFormula) {
  const std::vector<float> inv_freq = InverseFrequencies(64, 10000);
  ASSERT_EQ(inv_freq.size(), 32u);
  EXPECT_EQ(inv_freq[0], 1.0F);
  EXPECT_EQ(inv_freq[8], 0.1F);
  EXPECT_EQ(inv_freq[16], 0.01F);
  EXPECT_EQ(inv_freq[31], static_cast<float>(std::pow(10000.0, -62.0 / 64)));
}

TEST(RopeAngles, EveryPosition_IsTheRoundedSineOfTheF32Product) {
  const std::vector<float> inv_freq = InverseFrequencies(80, 100000);
  std::vector<uint32_t> positions = {0, 1, 2, 127, 128, 4095, 8191, 131071, 1000003, 16777215};
  for (uint32_t i = 0; i < 50; ++i) positions.push_back(i * 37);
  const size_t tokens = positions.size(), half = inv_freq.size();
  std::vector<float> expected_cos(tokens * half), expected_sin(tokens * half);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(positions[t]) * inv_freq[i];
      expected_cos[t * half + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      expected_sin[t * half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  for (const size_t threads : {1, 2, 3}) {
    TestContext context(Isa::kBaseline, threads);
    std::vector<float> cos(tokens * half), sin(tokens * half);
    RopeAngles(*context, positions, inv_freq, {cos.data(), tokens, half}, {sin.data(), tokens, half});
    EXPECT_TRUE(SameBits(expected_cos, cos));
    EXPECT_TRUE(SameBits(expected_sin, sin));
  }
}

TEST(ApplyRope, EveryLevel_GivesTheBitsOfTheFormula) {
  struct Shape {
    size_t tokens, heads, head_dim, half;
  };
  for (const Shape s : {Shape{1, 1, 2, 1}, Shape{3, 9, 64, 32}, Shape{70, 3, 64, 32}, Shape{5, 4, 40, 20},
                        Shape{5, 2, 80, 10}, Shape{2, 3, 6, 3}, Shape{2, 2, 7, 3}}) {
    const std::vector<float> x = RandomFloats(1, s.tokens * s.heads * s.head_dim),
                             cos = RandomFloats(2, s.tokens * s.half), sin = RandomFloats(3, s.tokens * s.half);
    std::vector<float> expected = x;
    for (size_t t = 0; t < s.tokens; ++t) {
      for (size_t h = 0; h < s.heads; ++h) {
        for (size_t i = 0; i < s.half; ++i) {
          const size_t a = (t * s.heads + h) * s.head_dim + i, b = a + s.half;
          const float c = cos[t * s.half + i], n = sin[t * s.half + i];
          const float ac = x[a] * c, bn = x[b] * n, bc = x[b] * c, an = x[a] * n;
          expected[a] = ac - bn;
          expected[b] = bc + an;
        }
      }
    }
    for (const Isa isa : testing::LevelsHere()) {
      for (const size_t threads : {1, 3}) {
        TestContext context(isa, threads);
        std::vector<float> y = x;
        ApplyRope(*context, {cos.data(), s.tokens, s.half}, {sin.data(), s.tokens, s.half}, s.head_dim,
                  {y.data(), s.tokens, s.heads * s.head_dim});
        EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa) << " tokens " << s.tokens << " head_dim " << s.head_dim;
      }
    }
  }
}

TEST(Rope, Angles_GiveTheKeptHash) {
  const std::vector<float> inv_freq = InverseFrequencies(64, 100000);
  std::vector<uint32_t> positions(500);
  for (uint32_t i = 0; i < 500; ++i) positions[i] = i * i;
  TestContext context(Isa::kBaseline);
  std::vector<float> cos(500 * 32), sin(500 * 32);
  RopeAngles(*context, positions, inv_freq, {cos.data(), 500, 32}, {sin.data(), 500, 32});
  EXPECT_TRUE(testing::SameHash(0x336BA750F216A904, testing::HashOf<float>(sin, testing::HashOf<float>(cos))));
}

}  // namespace
}  // namespace tidemill::rope_test
