#include "planner/growth_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>

#include "state/kv_growth.h"

namespace tidemill::growth_choice_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr KvPolicy kCopying[] = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc, KvPolicy::kGeometric};

TEST(GrowthIncrement, IsTheLongestWhoseRowsFitAnEighth) {
  constexpr uint64_t kRow = 23040;  // 30 layers, 3 KV heads of 64, F16
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  EXPECT_EQ(ChooseGrowthIncrement(8192, kRow, 16384 * kMiB), 8192U);
  EXPECT_EQ(ChooseGrowthIncrement(8192, kRow, 1024 * kMiB), 4096U);  // 5825 rows
  EXPECT_EQ(ChooseGrowthIncrement(8192, kRow, 64 * kMiB), 256U);     // 364 rows
  EXPECT_EQ(ChooseGrowthIncrement(1000, 1, 8 * 300), 250U);
  EXPECT_EQ(ChooseGrowthIncrement(1001, 1, 8 * 300), 251U);
  EXPECT_EQ(ChooseGrowthIncrement(1000, 1, 8 * 1000), 1000U);
  EXPECT_EQ(ChooseGrowthIncrement(1000, 1, 8 * 1000 - 1), 500U);
}

TEST(GrowthIncrement, Edges) {
  EXPECT_EQ(ChooseGrowthIncrement(1, 100, 0), 1U);
  EXPECT_EQ(ChooseGrowthIncrement(1, 100, UINT64_MAX), 1U);
  EXPECT_EQ(ChooseGrowthIncrement(1000, 100, 0), 1U);
  EXPECT_EQ(ChooseGrowthIncrement(1000, 0, 0), 1000U);  // nothing grows
  EXPECT_EQ(ChooseGrowthIncrement(1000, UINT64_MAX, UINT64_MAX), 1U);
  EXPECT_EQ(ChooseGrowthIncrement(SIZE_MAX, 1, 0), 1U);
  EXPECT_EQ(ChooseGrowthIncrement(SIZE_MAX, 0, 0), SIZE_MAX);
}

TEST(GrowthIncrement, AnyNumbers_FitAndTheNextLongerDoesNot) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 5000; ++i) {
    const size_t n = 1 + random() % (size_t{1} << (random() % 24));
    const uint64_t row = 1 + random() % 100'000, memory = random() % (uint64_t{1} << (20 + random() % 20));
    const size_t increment = ChooseGrowthIncrement(n, row, memory);
    SCOPED_TRACE("N " + std::to_string(n) + ", row " + std::to_string(row) + ", memory " + std::to_string(memory));
    ASSERT_GE(increment, 1U);
    ASSERT_LE(increment, n);
    if (increment > 1) {
      ASSERT_LE(increment * row, memory / kIdlePart);
    }
    if (increment < n) {
      ASSERT_GT(2 * increment * row, memory / kIdlePart);
    }
    ASSERT_GE(ChooseGrowthIncrement(n, row, 2 * memory), increment);
    ASSERT_LE(ChooseGrowthIncrement(n, 2 * row, memory), increment);
  }
}

TEST(GrowthWork, IsWhatTheGrowthRuleDoes) {
  for (const KvPolicy policy : kCopying) {
    for (const size_t increment : {1, 2, 7, 64, 256, 1000}) {
      for (const size_t n : {1, 2, 63, 64, 65, 128, 129, 500, 700}) {
        const KvGrowth growth{.policy = policy, .increment = std::min(increment, n)};
        size_t capacity = 0, copied = 0, idle = 0;
        for (size_t rows = 1; rows <= n; ++rows) {
          if (rows > capacity) {
            copied += rows - 1;
            capacity = growth.Capacity(0, rows, n);
          }
          idle = std::max(idle, capacity - rows);
        }
        SCOPED_TRACE(std::string(KvPolicyName(policy)) + ", increment " + std::to_string(growth.increment) + ", N " +
                     std::to_string(n));
        EXPECT_EQ(RowsCopied(policy, growth.increment, n), static_cast<double>(copied));
        EXPECT_EQ(MaxIdleRows(policy, growth.increment, n), idle);
      }
    }
  }
}

TEST(GrowthWork, PoliciesWithoutCopies_HaveIdleRowsOnly) {
  EXPECT_EQ(RowsCopied(KvPolicy::kReserve, 256, 4096), 0);
  EXPECT_EQ(RowsCopied(KvPolicy::kPaged, 256, 4096), 0);
  EXPECT_EQ(MaxIdleRows(KvPolicy::kReserve, 256, 4096), 256U);
  EXPECT_EQ(MaxIdleRows(KvPolicy::kReserve, 256, 100), 99U);
  EXPECT_EQ(MaxIdleRows(KvPolicy::kPaged, 256, 4096), 255U);
}

TEST(EarlyGrowth, IsTheCopySpreadOverTheRowsThatItGives) {
  const auto seconds = [](KvPolicy policy, size_t length, size_t capacity, size_t rows, size_t expected = 0) {
    const EarlyGrowth growth{
        .growth = {.policy = policy, .increment = 16, .expected = expected}, .most = 200, .row_seconds = 0.5};
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
}  // namespace tidemill::growth_choice_test
