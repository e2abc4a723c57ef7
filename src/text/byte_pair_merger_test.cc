#include "text/byte_pair_merger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

namespace tidemill::byte_pair_merger_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> Merge(const BytePairMerger& merger, const std::vector<int32_t>& tokens) {
  BytePairMerger::Scratch scratch;
  std::vector<int32_t> merged;
  merger.AppendMerged(tokens, scratch, merged);
  return merged;
}

// The definition, word for word: quadratic.
std::vector<int32_t> MergeByDefinition(const std::vector<MergeRule>& rules, std::vector<int32_t> tokens) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t rank = 0; rank < rules.size(); ++rank) ranks[{rules[rank].left, rules[rank].right}] = rank;
  while (true) {
    size_t best_rank = rules.size();
    size_t best_place = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = ranks.find({tokens[i], tokens[i + 1]});
      if (found != ranks.end() && found->second < best_rank) {
        best_rank = found->second;
        best_place = i;
      }
    }
    if (best_rank == rules.size()) return tokens;
    tokens[best_place] = rules[best_rank].merged;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best_place) + 1);
  }
}

TEST(BytePairMerger, NoRulesOrNoTokens_Unchanged) {
  const BytePairMerger merger({}, 4);
  EXPECT_THAT(Merge(merger, {}), IsEmpty());
  EXPECT_THAT(Merge(merger, {3}), ElementsAre(3));
  EXPECT_THAT(Merge(merger, {3, 3, 0}), ElementsAre(3, 3, 0));
}

TEST(BytePairMerger, EqualRanks_LeftmostFirst) {
  const BytePairMerger merger(std::vector<MergeRule>{{0, 0, 1}}, 2);
  EXPECT_THAT(Merge(merger, {0, 0, 0}), ElementsAre(1, 0));
}

TEST(BytePairMerger, LowerRankFurtherRight_GoesFirst) {
  const BytePairMerger merger(std::vector<MergeRule>{{1, 2, 3}, {0, 1, 4}}, 5);
  EXPECT_THAT(Merge(merger, {0, 1, 2}), ElementsAre(0, 3));
}

TEST(BytePairMerger, OnePairTwice_LaterRankCounts) {
  const BytePairMerger merger(std::vector<MergeRule>{{0, 1, 3}, {1, 2, 4}, {0, 1, 3}}, 5);
  EXPECT_THAT(Merge(merger, {0, 1, 2}), ElementsAre(0, 4));
}

TEST(BytePairMerger, RanksGiven_LowestThenLeftmostOfAnyRule) {
  const std::vector<MergeRule> rules = {{0, 0, 2}, {1, 1, 3}, {0, 1, 4}};
  const std::vector<uint32_t> ranks = {5, 5, 1};
  BytePairMerger::Scratch scratch;
  std::vector<int32_t> merged;
  BytePairMerger(rules, 5, ranks).AppendMerged(std::vector<int32_t>{1, 1, 1, 0, 0, 0, 1}, scratch, merged);
  EXPECT_THAT(merged, ElementsAre(3, 1, 2, 4));
}

TEST(BytePairMerger, RanksGivenAndOnePairTwice_RankOfTheLaterRuleCounts) {
  const std::vector<MergeRule> rules = {{0, 1, 3}, {1, 2, 4}, {0, 1, 3}};
  EXPECT_THAT(Merge(BytePairMerger(rules, 5, std::vector<uint32_t>{0, 5, 9}), {0, 1, 2}), ElementsAre(0, 4));
  EXPECT_THAT(Merge(BytePairMerger(rules, 5, std::vector<uint32_t>{9, 5, 0}), {0, 1, 2}), ElementsAre(3, 2));
}

TEST(BytePairMerger, RandomRules_AsTheDefinition) {
  std::mt19937 random(3);
  constexpr int32_t kTokens = 12;
  const auto any_token = [&random] { return static_cast<int32_t>(random() % kTokens); };
  for (int round = 0; round < 3000; ++round) {
    std::vector<MergeRule> rules;
    for (size_t i = random() % 40; i > 0; --i) rules.push_back({any_token(), any_token(), any_token()});
    std::vector<int32_t> tokens;
    for (size_t i = random() % 30; i > 0; --i) tokens.push_back(any_token());
    ASSERT_EQ(Merge(BytePairMerger(rules, kTokens), tokens), MergeByDefinition(rules, tokens)) << "round " << round;
  }
}

}  // namespace
}  // namespace tidemill::byte_pair_merger_test
