#include "decoding/token_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace tidemill::token_history_test {
namespace {

std::set<int32_t> Banned(const TokenHistory& history, size_t n) {
  std::set<int32_t> banned;
  history.ForEachRepeatOfNgram(n, [&](int32_t id) { banned.insert(id); });
  return banned;
}

TEST(TokenHistory, PromptAndAnswer_AreKeptApart) {
  TokenHistory history(10, 4, true);
  history.Prime(std::vector<int32_t>{1, 2});
  history.Accept(3);
  EXPECT_EQ(std::vector<int32_t>(history.ids().begin(), history.ids().end()), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(history.num_prompt_tokens(), 2U);
  EXPECT_EQ(history.num_generated(), 1U);
}

TEST(TokenHistory, Penalties_RepetitionOnBothOthersOnTheAnswer) {
  TokenHistory history(6, 8, true);
  history.Prime(std::vector<int32_t>{0, 1, 1});
  for (const int32_t id : {1, 2, 2}) history.Accept(id);
  std::vector<float> logits = {4.0f, -4.0f, 4.0f, 4.0f, -4.0f, 0.0f};
  history.ApplyPenalties(2.0f, 0.5f, 0.25f, logits);
  EXPECT_EQ(logits, (std::vector<float>{2.0f, -8.75f, 1.0f, 4.0f, -4.0f, 0.0f}));
}

TEST(TokenHistory, PrimeAgain_ForgetsTheFirstSequence) {
  TokenHistory history(4, 8, true);
  history.Prime(std::vector<int32_t>{0, 1});
  history.Accept(2);
  history.Prime(std::vector<int32_t>{3});
  std::vector<float> logits(4, 4.0f);
  history.ApplyPenalties(2.0f, 1.0f, 1.0f, logits);
  EXPECT_EQ(logits, (std::vector<float>{4.0f, 4.0f, 4.0f, 2.0f}));
  EXPECT_EQ(history.num_generated(), 0U);
}

TEST(TokenHistory, Retract_LeavesNoTrace) {
  std::mt19937 random(5);
  constexpr size_t kVocab = 12;
  const auto id = [&] { return static_cast<int32_t>(random() % kVocab); };
  for (int round = 0; round < 200; ++round) {
    TokenHistory history(kVocab, 60, true), plain(kVocab, 60, true);
    std::vector<int32_t> ids(random() % 6);
    for (int32_t& token : ids) token = id();
    history.Prime(ids);
    plain.Prime(ids);
    for (int i = 0; i < 8; ++i) {
      const size_t drafted = random() % 5, kept = random() % 2;
      for (size_t j = 0; j < drafted; ++j) history.Accept(id());
      history.Retract(drafted);
      for (size_t j = 0; j < kept; ++j) {
        const int32_t token = id();
        history.Accept(token);
        plain.Accept(token);
      }
      ASSERT_TRUE(std::ranges::equal(history.ids(), plain.ids()));
      std::vector<float> found(kVocab, 2.0f), expected(kVocab, 2.0f);
      history.ApplyPenalties(1.5f, 0.25f, 0.125f, found);
      plain.ApplyPenalties(1.5f, 0.25f, 0.125f, expected);
      ASSERT_EQ(found, expected);
    }
  }
}

TEST(TokenHistory, PromptIdsOutsideTheVocabulary_AreNotPenalized) {
  TokenHistory history(2, 8, true);
  history.Prime(std::vector<int32_t>{-1, 2, 1000000, 1, 2, -1});
  std::vector<float> logits(2, 4.0f);
  history.ApplyPenalties(2.0f, 0.0f, 0.0f, logits);
  EXPECT_EQ(logits, (std::vector<float>{4.0f, 2.0f}));
  EXPECT_EQ(Banned(history, 1), (std::set<int32_t>{1}));
  EXPECT_EQ(Banned(history, 2), (std::set<int32_t>{}));  // -1 was followed by 2, which the logits do not have
}

TEST(TokenHistory, Ngrams_KnownCases) {
  TokenHistory history(10, 8, false);
  history.Prime(std::vector<int32_t>{1, 2, 3, 1, 2});
  EXPECT_EQ(Banned(history, 1), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(Banned(history, 2), (std::set<int32_t>{3}));
  EXPECT_EQ(Banned(history, 3), (std::set<int32_t>{3}));
  EXPECT_EQ(Banned(history, 4), (std::set<int32_t>{}));
  EXPECT_EQ(Banned(history, 5), (std::set<int32_t>{}));
  EXPECT_EQ(Banned(history, 6), (std::set<int32_t>{})) << "longer than the history";
  history.Prime({});
  EXPECT_EQ(Banned(history, 1), (std::set<int32_t>{}));
  history.Prime(std::vector<int32_t>{4, 4, 4});
  EXPECT_EQ(Banned(history, 3), (std::set<int32_t>{4})) << "an n-gram may overlap its repeat";
}

// Brute force over all n-grams of the extended sequence.
TEST(TokenHistory, RandomHistories_BanExactlyTheRepeats) {
  constexpr uint64_t kSeed = 20240905;
  std::mt19937_64 rng(kSeed);
  for (int round = 0; round < 2000; ++round) {
    const size_t length = rng() % 30;
    const size_t n = 1 + rng() % 5;
    std::vector<int32_t> ids(length);
    for (int32_t& id : ids) id = static_cast<int32_t>(rng() % 4);
    TokenHistory history(4, length, false);
    const size_t prompt = length == 0 ? 0 : rng() % length;
    history.Prime(std::span<const int32_t>(ids).first(prompt));
    for (size_t i = prompt; i < length; ++i) history.Accept(ids[i]);
    std::set<int32_t> expected;
    for (int32_t next = 0; next < 4; ++next) {
      std::vector<int32_t> longer = ids;
      longer.push_back(next);
      std::map<std::vector<int32_t>, int> seen;
      for (size_t i = 0; i + n <= longer.size(); ++i) {
        ++seen[std::vector<int32_t>(longer.begin() + static_cast<std::ptrdiff_t>(i),
                                    longer.begin() + static_cast<std::ptrdiff_t>(i + n))];
      }
      if (longer.size() >= n &&
          seen[std::vector<int32_t>(longer.end() - static_cast<std::ptrdiff_t>(n), longer.end())] > 1) {
        expected.insert(next);
      }
    }
    ASSERT_EQ(Banned(history, n), expected) << "n = " << n << ", round " << round << ", seed " << kSeed;
  }
}

}  // namespace
}  // namespace tidemill::token_history_test
