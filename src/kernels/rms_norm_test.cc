#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::rms_norm_test {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

constexpr size_t kHiddens[] = {1, 2, 3, 4, 7, 8, 12, 15, 16, 17, 20, 31, 32, 33, 63, 64, 65, 576, 2048, 4099};

TEST(RmsNorm, EveryLevel_MatchesReference) {
  for (const size_t hidden : kHiddens) {
    const std::vector<float> x = RandomFloats(hidden, 3 * hidden, 5), w = RandomFloats(hidden + 1, hidden, 2);
    std::vector<float> expected(x.size()), y(x.size());
    reference::RmsNorm({x.data(), 3, hidden}, w, 1e-5F, {expected.data(), 3, hidden});
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      RmsNorm(*context, {x.data(), 3, hidden}, w, 1e-5F, {y.data(), 3, hidden});
      EXPECT_TRUE(testing::Within(
          expected, y,
          [&](size_t i) { return RmsNormTolerance(hidden) * std::fabs(static_cast<double>(expected[i])); }))
          << IsaName(isa) << " hidden " << hidden;
    }
  }
}

TEST(RmsNorm, EveryLevel_GivesTheBitsOfTheFormula) {
  for (const size_t hidden : kHiddens) {
    const std::vector<float> x = RandomFloats(hidden + 7, 3 * hidden, 5), w = RandomFloats(hidden + 8, hidden, 2);
    for (const Isa isa : LevelsHere()) {
      std::vector<float> expected;
      for (size_t t = 0; t < 3; ++t) {
        const auto row = testing::RmsNorm(Arithmetic::Of(isa), std::span(x).subspan(t * hidden, hidden), w, 1e-6F);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      TestContext context(isa);
      std::vector<float> y(x.size());
      RmsNorm(*context, {x.data(), 3, hidden}, w, 1e-6F, {y.data(), 3, hidden});
      EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa) << " hidden " << hidden;
    }
  }
}

TEST(RmsNorm, InPlaceAndAnyNumberOfThreads_GiveTheSameBits) {
  constexpr size_t kTokens = 120, kHidden = 577;
  const std::vector<float> x = RandomFloats(1, kTokens * kHidden), w = RandomFloats(2, kHidden);
  for (const Isa isa : LevelsHere()) {
    TestContext one(isa);
    std::vector<float> expected(x.size());
    RmsNorm(*one, {x.data(), kTokens, kHidden}, w, 1e-5F, {expected.data(), kTokens, kHidden});
    for (const size_t threads : {1, 2, 3}) {
      TestContext context(isa, threads);
      std::vector<float> y = x;
      RmsNorm(*context, {y.data(), kTokens, kHidden}, w, 1e-5F, {y.data(), kTokens, kHidden});
      EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa) << " threads " << threads;
    }
  }
}

TEST(RmsNorm, RowOfZeros_StaysZero) {
  const std::vector<float> x(33), w(33, 2.0F);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y(33, 1.0F);
    RmsNorm(*context, {x.data(), 1, 33}, w, 1e-5F, {y.data(), 1, 33});
    EXPECT_TRUE(SameBits(x, y)) << IsaName(isa);
  }
}

TEST(RmsNormHeads, EveryLevel_MatchesReferenceAndGivesTheBitsOfEachHeadAlone) {
  struct Shape {
    size_t tokens, heads, head_dim, stride;
  };
  for (const Shape s : {Shape{1, 1, 1, 1}, Shape{3, 2, 7, 14}, Shape{3, 4, 16, 64}, Shape{2, 3, 20, 61},
                        Shape{5, 8, 128, 1024}, Shape{70, 4, 256, 1040}}) {
    const std::vector<float> x = RandomFloats(s.head_dim, s.tokens * s.stride, 5), w = RandomFloats(1, s.head_dim, 2);
    std::vector<float> exact = x;
    reference::RmsNormHeads({exact.data(), s.tokens, s.heads * s.head_dim, s.stride}, s.head_dim, w, 1e-6F);
    for (const Isa isa : LevelsHere()) {
      std::vector<float> expected = x;  // what lies between rows stays
      for (size_t t = 0; t < s.tokens; ++t) {
        for (size_t h = 0; h < s.heads; ++h) {
          const size_t at = t * s.stride + h * s.head_dim;
          const auto head = testing::RmsNorm(Arithmetic::Of(isa), std::span(x).subspan(at, s.head_dim), w, 1e-6F);
          std::copy(head.begin(), head.end(), expected.begin() + static_cast<std::ptrdiff_t>(at));
        }
      }
      for (const size_t threads : {1, 3}) {
        TestContext context(isa, threads);
        std::vector<float> y = x;
        RmsNormHeads(*context, {y.data(), s.tokens, s.heads * s.head_dim, s.stride}, s.head_dim, w, 1e-6F);
        EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa) << " head_dim " << s.head_dim << " threads " << threads;
        EXPECT_TRUE(testing::Within(
            exact, y,
            [&](size_t i) { return RmsNormTolerance(s.head_dim) * std::fabs(static_cast<double>(exact[i])); }))
            << IsaName(isa) << " head_dim " << s.head_dim;
      }
    }
  }
}

TEST(RmsNormHeads, EveryLevel_GivesTheKeptHash) {
  const std::vector<float> x = RandomFloats(102, 7 * 8 * 128, 3), w = RandomFloats(103, 128);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y = x;
    RmsNormHeads(*context, {y.data(), 7, 8 * 128}, 128, w, 1e-6F);
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0xB2D2359ED05DBA8E : 0xD6FBC4DB1B524D9B, testing::HashOf<float>(y)))
        << IsaName(isa);
  }
}

TEST(RmsNorm, EveryLevel_GivesTheKeptHash) {
  const std::vector<float> x = RandomFloats(100, 4 * 576, 3), w = RandomFloats(101, 576);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y(x.size());
    RmsNorm(*context, {x.data(), 4, 576}, w, 1e-5F, {y.data(), 4, 576});
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0x32A8F5813D06F5BD : 0x136B48FEE73779E2, testing::HashOf<float>(y)))
        << IsaName(isa);
  }
}

}  // namespace
}  // namespace tidemill::rms_norm_test
