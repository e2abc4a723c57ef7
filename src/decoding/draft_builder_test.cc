#include "decoding/draft_builder.h"

#include <gtest/gtest.h>

#include <vector>

namespace tidemill::draft_builder_test {
namespace {

constexpr size_t kVocab = 8;

// Nothing but `id` is likely; or, where it is negative, all are the same.
std::vector<float> Saying(int32_t id) {
  std::vector<float> logits(kVocab, 0.0F);
  if (id >= 0) logits[static_cast<size_t>(id)] = 20.0F;
  return logits;
}

void Choose(DraftBuilder& draft_tokens, size_t row, int32_t id) {
  std::vector<float> logits = Saying(id);
  draft_tokens.Choose(row, logits);
}

DraftBuilder Chain(bool at_once) {
  return DraftBuilder({.num_draft_tokens = 4, .vocab_size = kVocab, .min_probability = 0.5F}, DraftTreeKind::kChain,
                      at_once);
}

using Ids = std::vector<int32_t>;
Ids IdsOf(const DraftTree& tree) { return {tree.ids.begin(), tree.ids.end()}; }

TEST(DraftBuilder, OneByOne_TakesAStepForEach) {
  DraftBuilder draft_tokens = Chain(false);
  EXPECT_EQ(draft_tokens.order(), DraftOrder::kOneByOne);
  draft_tokens.Begin(3);
  draft_tokens.BeginText(Ids{1, 2});
  for (const int32_t id : {3, 6}) {
    Choose(draft_tokens, 0, id);
    EXPECT_TRUE(draft_tokens.Continue());
    EXPECT_EQ(draft_tokens.chain().back(), id);
  }
  Choose(draft_tokens, 0, 2);
  EXPECT_FALSE(draft_tokens.Continue()) << "there are as many as are wanted";
  EXPECT_EQ(IdsOf(draft_tokens.Made()), (Ids{3, 6, 2}));
}

TEST(DraftBuilder, OneByOne_EndsAtWhatIsUnlikely) {
  DraftBuilder draft_tokens = Chain(false);
  draft_tokens.Begin(4);
  Choose(draft_tokens, 0, 3);
  EXPECT_TRUE(draft_tokens.Continue());
  Choose(draft_tokens, 0, -1);
  EXPECT_FALSE(draft_tokens.Continue());
  EXPECT_EQ(IdsOf(draft_tokens.Made()), Ids{3});
  draft_tokens.Begin(4);
  EXPECT_FALSE(draft_tokens.Continue()) << "nothing was asked";
  const DraftTree made = draft_tokens.Made();
  EXPECT_TRUE(made.ids.empty());
  EXPECT_EQ(made.empty, DraftTree::Empty::kFoundUnlikely);
}

TEST(DraftBuilder, OneByOne_WhatWasNotRunIsNoDraftToken) {
  DraftBuilder draft_tokens = Chain(false);
  draft_tokens.Begin(4);
  Choose(draft_tokens, 0, 3);
  EXPECT_TRUE(draft_tokens.Made().ids.empty()) << "interrupted before its step was run";
}

TEST(DraftBuilder, AtOnce_EachRowIsADraftTokenUntilOneSaysNothing) {
  DraftBuilder draft_tokens = Chain(true);
  EXPECT_EQ(draft_tokens.order(), DraftOrder::kAtOnce);
  draft_tokens.Begin(4);
  Choose(draft_tokens, 0, 3);
  Choose(draft_tokens, 1, 1);
  Choose(draft_tokens, 2, -1);
  Choose(draft_tokens, 3, 2);
  EXPECT_FALSE(draft_tokens.Continue());
  EXPECT_EQ(IdsOf(draft_tokens.Made()), (Ids{3, 1}));
  draft_tokens.Begin(1);
  Choose(draft_tokens, 0, 7);
  EXPECT_EQ(IdsOf(draft_tokens.Made()), Ids{7}) << "the next draft starts over";
}

TEST(DraftBuilder, Never_IsNoDraftToken) {
  DraftBuilder draft_tokens({.num_draft_tokens = 4, .vocab_size = kVocab, .never = 3}, DraftTreeKind::kChain, true);
  draft_tokens.Begin(2);
  std::vector<float> logits = Saying(3);
  logits[5] = 10.0F;
  draft_tokens.Choose(0, logits);
  EXPECT_EQ(IdsOf(draft_tokens.Made()), Ids{5});
}

}  // namespace
}  // namespace tidemill::draft_builder_test
