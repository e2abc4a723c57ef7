#include "decoding/acceptance_counts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace tidemill::acceptance_counts_test {
namespace {

void ExpectRates(const std::vector<std::vector<double>>& rates) {
  ASSERT_EQ(rates.size(), AcceptanceCounts::kDepths);
  for (const auto& ranks : rates) {
    ASSERT_EQ(ranks.size(), AcceptanceCounts::kRanks);
    for (const double share : ranks) EXPECT_GT(share, 0);
    EXPECT_LT(std::accumulate(ranks.begin(), ranks.end(), 0.0), 1);
  }
}

TEST(AcceptanceCounts, BeforeAnyCount_EarlierRanksAreLikelier) {
  const auto rates = AcceptanceCounts().Rates();
  ExpectRates(rates);
  EXPECT_DOUBLE_EQ(rates[0][0], 0.6);
  EXPECT_DOUBLE_EQ(rates[7][1], 0.15);
}

TEST(AssumedAcceptance, OfTheAssumedRateAreThoseBeforeAnyCount) {
  const auto rates = AcceptanceCounts().Rates(), assumed = AssumedAcceptance(AcceptanceCounts::kAssumedAcceptance);
  for (size_t depth = 0; depth < AcceptanceCounts::kDepths; ++depth) {
    for (size_t rank = 0; rank < AcceptanceCounts::kRanks; ++rank)
      EXPECT_NEAR(assumed[depth][rank], rates[depth][rank], 1e-12);
  }
  for (const double first : {0.1, 0.3, 0.9}) {
    ExpectRates(AssumedAcceptance(first));
    EXPECT_EQ(AssumedAcceptance(first)[3][0], first);
  }
  EXPECT_EQ(AssumedAcceptance(1)[0][1], 0);
}

TEST(AcceptanceCounts, ManyCounts_GiveTheirShares) {
  AcceptanceCounts counts;
  std::mt19937_64 random(1);
  for (int i = 0; i < 4000; ++i) {
    counts.Count(0, std::discrete_distribution<size_t>({0.2, 0.5, 0.1})(random));
    counts.Count(1, AcceptanceCounts::kRanks);
  }
  const auto rates = counts.Rates();
  ExpectRates(rates);
  EXPECT_NEAR(rates[0][0], 0.25, 0.03);
  EXPECT_NEAR(rates[0][1], 0.625, 0.03);
  EXPECT_NEAR(rates[1][1], 0, 0.01);
  EXPECT_NEAR(rates[5][1], 0.3125, 0.03) << "of a depth that was not reached the others say what there is to say";
}

TEST(AcceptanceCounts, Fade_FollowsTheText) {
  AcceptanceCounts counts;
  for (size_t i = 0; i < 600; ++i) {
    counts.Fade();
    counts.Count(0, i < 300 ? 0 : 2);
  }
  EXPECT_LT(counts.Rates()[0][0], 0.05);
  EXPECT_GT(counts.Rates()[0][2], 0.9);
}

}  // namespace
}  // namespace tidemill::acceptance_counts_test
