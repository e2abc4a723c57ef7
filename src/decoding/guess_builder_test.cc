#include "decoding/guess_builder.h"

#include <gtest/gtest.h>

#include <vector>

namespace tidemill::guess_builder_test {
namespace {

constexpr size_t kVocab = 8;

// Nothing but `id` is likely; or, where it is negative, all are the same.
std::vector<float> Saying(int32_t id) {
  std::vector<float> logits(kVocab, 0.0F);
  if (id >= 0) logits[static_cast<size_t>(id)] = 20.0F;
  return logits;
}

void Choose(GuessBuilder& guesses, size_t row, int32_t id) {
  std::vector<float> logits = Saying(id);
  guesses.Choose(row, logits);
}

GuessBuilder Chain(bool at_once) {
  return GuessBuilder({.most = 4, .vocab_size = kVocab, .least_probability = 0.5F}, DraftTreeKind::kChain, at_once);
}

using Ids = std::vector<int32_t>;
Ids IdsOf(const DraftTree& tree) { return {tree.ids.begin(), tree.ids.end()}; }

TEST(GuessBuilder, OneByOne_TakesAStepForEach) {
  GuessBuilder guesses = Chain(false);
  EXPECT_EQ(guesses.order(), GuessOrder::kOneByOne);
  guesses.Begin(3);
  guesses.BeginText(Ids{1, 2});
  for (const int32_t id : {3, 6}) {
    Choose(guesses, 0, id);
    EXPECT_TRUE(guesses.Continue());
    EXPECT_EQ(guesses.chain().back(), id);
  }
  Choose(guesses, 0, 2);
  EXPECT_FALSE(guesses.Continue()) << "there are as many as are wanted";
  EXPECT_EQ(IdsOf(guesses.Made()), (Ids{3, 6, 2}));
}

TEST(GuessBuilder, OneByOne_EndsAtWhatIsUnlikely) {
  GuessBuilder guesses = Chain(false);
  guesses.Begin(4);
  Choose(guesses, 0, 3);
  EXPECT_TRUE(guesses.Continue());
  Choose(guesses, 0, -1);
  EXPECT_FALSE(guesses.Continue());
  EXPECT_EQ(IdsOf(guesses.Made()), Ids{3});
  guesses.Begin(4);
  EXPECT_FALSE(guesses.Continue()) << "nothing was asked";
  const DraftTree made = guesses.Made();
  EXPECT_TRUE(made.ids.empty());
  EXPECT_EQ(made.empty, DraftTree::Empty::kFoundUnlikely);
}

TEST(GuessBuilder, OneByOne_WhatWasNotRunIsNoGuess) {
  GuessBuilder guesses = Chain(false);
  guesses.Begin(4);
  Choose(guesses, 0, 3);
  EXPECT_TRUE(guesses.Made().ids.empty()) << "interrupted before its step was run";
}

TEST(GuessBuilder, AtOnce_EachRowIsAGuessUntilOneSaysNothing) {
  GuessBuilder guesses = Chain(true);
  EXPECT_EQ(guesses.order(), GuessOrder::kAtOnce);
  guesses.Begin(4);
  Choose(guesses, 0, 3);
  Choose(guesses, 1, 1);
  Choose(guesses, 2, -1);
  Choose(guesses, 3, 2);
  EXPECT_FALSE(guesses.Continue());
  EXPECT_EQ(IdsOf(guesses.Made()), (Ids{3, 1}));
  guesses.Begin(1);
  Choose(guesses, 0, 7);
  EXPECT_EQ(IdsOf(guesses.Made()), Ids{7}) << "the next draft begins anew";
}

TEST(GuessBuilder, Never_IsNoGuess) {
  GuessBuilder guesses({.most = 4, .vocab_size = kVocab, .never = 3}, DraftTreeKind::kChain, true);
  guesses.Begin(2);
  std::vector<float> logits = Saying(3);
  logits[5] = 10.0F;
  guesses.Choose(0, logits);
  EXPECT_EQ(IdsOf(guesses.Made()), Ids{5});
}

}  // namespace
}  // namespace tidemill::guess_builder_test
