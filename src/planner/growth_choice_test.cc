#include "planner/growth_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "state/kv_growth.h"

namespace tidemill {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr KvPolicy kCopying[] = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc, KvPolicy::kGeometric};

// cost(T) of the header, what does not depend on T left out.
double PaddedSeconds(double n, double t, const PaddedCosts& costs) {
  return n * n * costs.attend_seconds / (2 * t) + n * t * costs.grow_seconds / 2;
}

void ExpectPadded(size_t n, const PaddedCosts& costs, double wanted, size_t blocks, size_t period) {
  const PaddedGrowth growth = ChoosePaddedPeriod(n, costs);
  EXPECT_NEAR(growth.blocks_wanted, wanted, 1e-3 * wanted) << "N " << n;
  EXPECT_EQ(growth.blocks, blocks) << "N " << n;
  EXPECT_EQ(growth.period, period) << "N " << n;
}

TEST(PaddedPeriod, SquareRootLaw_RoundedToAPowerOfTwo) {
  ExpectPadded(1024, {.attend_seconds = 1, .grow_seconds = 16}, 8, 8, 128);
  // The paper's machine, C' = 0.1, where it reports 8 blocks for 512 rows.
  ExpectPadded(128, {.attend_seconds = 0.1, .grow_seconds = 1}, 3.578, 4, 32);
  ExpectPadded(512, {.attend_seconds = 0.1, .grow_seconds = 1}, 7.155, 8, 64);
  ExpectPadded(2048, {.attend_seconds = 0.1, .grow_seconds = 1}, 14.31, 16, 128);
  ExpectPadded(1000, {.attend_seconds = 9, .grow_seconds = 1000}, 3, 4, 250);  // sqrt(8) < 3
  ExpectPadded(1001, {.attend_seconds = 9, .grow_seconds = 1001}, 3, 4, 251);
}

TEST(PaddedPeriod, Rounding_IsByRatio) {
  const auto blocks = [](double wanted) {
    return ChoosePaddedPeriod(1024, {.attend_seconds = wanted * wanted / 1024, .grow_seconds = 1}).blocks;
  };
  EXPECT_EQ(blocks(11.30), 8U);  // 8 sqrt(2) = 11.314
  EXPECT_EQ(blocks(11.33), 16U);
}

TEST(PaddedPeriod, Drafts_MakeBlocksMore) {
  // sqrt(1024 * 26 / 4 / 16) = 20.4; below 16 sqrt(2)
  ExpectPadded(1024, {.attend_seconds = 1, .grow_seconds = 16, .drafted = 26, .accepted = 4}, 20.396, 16, 64);
}

TEST(PaddedPeriod, WhatCostsNothing_Decides) {
  ExpectPadded(1000, {.attend_seconds = 1, .grow_seconds = 0}, 1000, 1000, 1);
  ExpectPadded(1000, {.attend_seconds = 0, .grow_seconds = 1}, 1, 1, 1000);
  ExpectPadded(1000, {.attend_seconds = 0, .grow_seconds = 0}, 1, 1, 1000);
  ExpectPadded(1, {.attend_seconds = 1, .grow_seconds = 1}, 1, 1, 1);
  ExpectPadded(1, {.attend_seconds = 1e9, .grow_seconds = 0}, 1, 1, 1);
}

TEST(PaddedPeriod, ExtremeNumbers_StayBetween1AndN) {
  constexpr size_t kHuge = size_t{1} << 40;
  EXPECT_EQ(ChoosePaddedPeriod(kHuge, {.attend_seconds = 1e300, .grow_seconds = 1e-300}).blocks, kHuge);
  EXPECT_EQ(ChoosePaddedPeriod(kHuge, {.attend_seconds = 1e-300, .grow_seconds = 1e300}).blocks, 1U);
  EXPECT_EQ(ChoosePaddedPeriod(kHuge, {.attend_seconds = kInfinity, .grow_seconds = 1}).blocks, kHuge);
  EXPECT_EQ(ChoosePaddedPeriod(kHuge, {.attend_seconds = kInfinity, .grow_seconds = kInfinity}).blocks, 1U);
  EXPECT_EQ(ChoosePaddedPeriod(kHuge, {.attend_seconds = NAN, .grow_seconds = 1}).blocks, 1U);
  EXPECT_EQ(ChoosePaddedPeriod(SIZE_MAX, {.attend_seconds = 1, .grow_seconds = 0}).period, 1U);
}

TEST(PaddedPeriod, SharingFactor_IsTheRootOfGTimesQ) {
  EXPECT_DOUBLE_EQ(ChoosePaddedPeriod(8, {.sharing = 4}).sharing_factor, 2);
  EXPECT_DOUBLE_EQ(ChoosePaddedPeriod(8, {.sharing = 3, .shrinking = 64.0 / 34}).sharing_factor, std::sqrt(96.0 / 17));
}

// Seeded; the message has the numbers.
TEST(PaddedPeriod, AnyCosts_AreMonotoneAndNoNeighbourIsCheaper) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-12, 3);
  for (int i = 0; i < 5000; ++i) {
    const size_t n = 1 + random() % (size_t{1} << (random() % 24));
    PaddedCosts costs{.attend_seconds = std::pow(10, exponent(random)), .grow_seconds = std::pow(10, exponent(random))};
    const PaddedGrowth growth = ChoosePaddedPeriod(n, costs);
    SCOPED_TRACE("N " + std::to_string(n) + ", s " + std::to_string(costs.attend_seconds) + ", c " +
                 std::to_string(costs.grow_seconds));
    ASSERT_GE(growth.blocks, 1U);
    ASSERT_LE(growth.blocks, n);
    ASSERT_EQ(growth.period, (n + growth.blocks - 1) / growth.blocks);
    const auto dn = static_cast<double>(n), t = static_cast<double>(growth.blocks);
    const double chosen = PaddedSeconds(dn, t, costs) * (1 - 1e-9);
    if (2 * growth.blocks <= n) {
      ASSERT_LE(chosen, PaddedSeconds(dn, 2 * t, costs));
    }
    if (growth.blocks > 1 && growth.blocks < n) {
      ASSERT_LE(chosen, PaddedSeconds(dn, t / 2, costs));
    }
    PaddedCosts more = costs;
    more.attend_seconds *= 3;
    ASSERT_GE(ChoosePaddedPeriod(n, more).blocks, growth.blocks);
    more = costs;
    more.grow_seconds *= 3;
    ASSERT_LE(ChoosePaddedPeriod(n, more).blocks, growth.blocks);
    ASSERT_GE(ChoosePaddedPeriod(2 * n, costs).blocks, growth.blocks);
  }
}

TEST(ExactPeriod, IsTheLongestWhoseRowsFitAnEighth) {
  constexpr uint64_t kRow = 23040;  // 30 layers, 3 KV heads of 64, F16
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  EXPECT_EQ(ChooseExactPeriod(8192, kRow, 16384 * kMiB), 8192U);
  EXPECT_EQ(ChooseExactPeriod(8192, kRow, 1024 * kMiB), 4096U);  // 5825 rows
  EXPECT_EQ(ChooseExactPeriod(8192, kRow, 64 * kMiB), 256U);     // 364 rows
  EXPECT_EQ(ChooseExactPeriod(1000, 1, 8 * 300), 250U);
  EXPECT_EQ(ChooseExactPeriod(1001, 1, 8 * 300), 251U);
  EXPECT_EQ(ChooseExactPeriod(1000, 1, 8 * 1000), 1000U);
  EXPECT_EQ(ChooseExactPeriod(1000, 1, 8 * 1000 - 1), 500U);
}

TEST(ExactPeriod, Edges) {
  EXPECT_EQ(ChooseExactPeriod(1, 100, 0), 1U);
  EXPECT_EQ(ChooseExactPeriod(1, 100, UINT64_MAX), 1U);
  EXPECT_EQ(ChooseExactPeriod(1000, 100, 0), 1U);
  EXPECT_EQ(ChooseExactPeriod(1000, 0, 0), 1000U);  // nothing grows
  EXPECT_EQ(ChooseExactPeriod(1000, UINT64_MAX, UINT64_MAX), 1U);
  EXPECT_EQ(ChooseExactPeriod(SIZE_MAX, 1, 0), 1U);
  EXPECT_EQ(ChooseExactPeriod(SIZE_MAX, 0, 0), SIZE_MAX);
}

TEST(ExactPeriod, AnyNumbers_FitAndTheNextLongerDoesNot) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 5000; ++i) {
    const size_t n = 1 + random() % (size_t{1} << (random() % 24));
    const uint64_t row = 1 + random() % 100'000, memory = random() % (uint64_t{1} << (20 + random() % 20));
    const size_t period = ChooseExactPeriod(n, row, memory);
    SCOPED_TRACE("N " + std::to_string(n) + ", row " + std::to_string(row) + ", memory " + std::to_string(memory));
    ASSERT_GE(period, 1U);
    ASSERT_LE(period, n);
    if (period > 1) {
      ASSERT_LE(period * row, memory / kIdlePart);
    }
    if (period < n) {
      ASSERT_GT(2 * period * row, memory / kIdlePart);
    }
    ASSERT_GE(ChooseExactPeriod(n, row, 2 * memory), period);
    ASSERT_LE(ChooseExactPeriod(n, 2 * row, memory), period);
  }
}

TEST(GrowthWork, IsWhatTheGrowthRuleDoes) {
  for (const KvPolicy policy : kCopying) {
    for (const size_t period : {1, 2, 7, 64, 256, 1000}) {
      for (const size_t n : {1, 2, 63, 64, 65, 128, 129, 500, 700}) {
        const KvGrowth growth{.policy = policy, .period = std::min(period, n)};
        size_t capacity = 0, copied = 0, idle = 0;
        for (size_t rows = 1; rows <= n; ++rows) {
          if (rows > capacity) {
            copied += rows - 1;
            capacity = growth.Capacity(0, rows, n);
          }
          idle = std::max(idle, capacity - rows);
        }
        SCOPED_TRACE(std::string(KvPolicyName(policy)) + ", period " + std::to_string(growth.period) + ", N " +
                     std::to_string(n));
        EXPECT_EQ(RowsCopied(policy, growth.period, n), static_cast<double>(copied));
        EXPECT_EQ(MostIdleRows(policy, growth.period, n), idle);
      }
    }
  }
}

TEST(GrowthWork, PoliciesWithoutCopies_HaveIdleRowsOnly) {
  EXPECT_EQ(RowsCopied(KvPolicy::kReserve, 256, 4096), 0);
  EXPECT_EQ(RowsCopied(KvPolicy::kPaged, 256, 4096), 0);
  EXPECT_EQ(MostIdleRows(KvPolicy::kReserve, 256, 4096), 256U);
  EXPECT_EQ(MostIdleRows(KvPolicy::kReserve, 256, 100), 99U);
  EXPECT_EQ(MostIdleRows(KvPolicy::kPaged, 256, 4096), 255U);
}

TEST(EarlyGrowth, IsTheCopySpreadOverTheRowsThatItGives) {
  const auto seconds = [](KvPolicy policy, size_t length, size_t capacity, size_t rows, size_t expected = 0) {
    const EarlyGrowth growth{
        .growth = {.policy = policy, .period = 16, .expected = expected}, .most = 200, .row_seconds = 0.5};
    return growth.Seconds(length, capacity, rows);
  };
  // 30 rows are copied for 16 more, of which 3 are wanted now.
  EXPECT_EQ(seconds(KvPolicy::kBmc, 30, 32, 35), 0.5 * 30 * 3 / 16);
  EXPECT_EQ(seconds(KvPolicy::kBmc, 30, 32, 50), 0.5 * 30 * 18 / 32);
  EXPECT_EQ(seconds(KvPolicy::kBmc, 30, 32, 35, 40), 0.5 * 30 * 3 / 8) << "the last block has 8 rows more";
  EXPECT_EQ(seconds(KvPolicy::kIterative, 30, 32, 35), 0.5 * 30);
  EXPECT_EQ(seconds(KvPolicy::kGeometric, 60, 64, 70), 0.5 * 60 * 6 / 64);
  EXPECT_EQ(seconds(KvPolicy::kReserve, 30, 32, 35), 0);
  EXPECT_EQ(seconds(KvPolicy::kPaged, 30, 32, 35), kInfinity);
  EXPECT_EQ(seconds(KvPolicy::kUpfront, 30, 32, 35), kInfinity);
}

}  // namespace
}  // namespace tidemill
