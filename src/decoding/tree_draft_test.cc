#include "decoding/tree_draft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tidemill::tree_draft_test {
namespace {

constexpr DraftTreeKind kKinds[] = {DraftTreeKind::kFixed, DraftTreeKind::kDynamic, DraftTreeKind::kOptimal};

// A model whose tokens spell their ranks: 1 + the rank is the last digit, in front of it is what it follows.
std::vector<TokenProbability> Behind(int32_t id, size_t count) {
  std::vector<TokenProbability> best;
  double probability = 0.5;
  for (size_t rank = 0; rank < count; ++rank, probability *= 0.4)
    best.push_back({10 * id + static_cast<int32_t>(rank) + 1, probability});
  return best;
}

struct Grown {
  DraftTree tree;
  size_t levels = 0, asked = 0;
};

Grown Grow(TreeDraft& draft, size_t num_draft_tokens, std::span<const int32_t> came, size_t ranks = TreeDraft::kRanks) {
  Grown grown;
  draft.Begin(num_draft_tokens, came);
  draft.Add(-1, Behind(0, ranks));
  for (auto level = draft.Level(); !level.empty(); level = draft.Level()) {
    ++grown.levels;
    const std::vector<int32_t> nodes(level.begin(), level.end());
    grown.asked += nodes.size();
    for (const int32_t node : nodes) {
      EXPECT_EQ(draft.id(node) / 10, draft.parent(node) < 0 ? 0 : draft.id(draft.parent(node)));
      draft.Add(node, Behind(draft.id(node), ranks));
    }
  }
  grown.tree = draft.Tree();
  return grown;
}

// Each node's token says that it follows its parent, and no two are equal.
void ExpectTree(const DraftTree& tree, const std::string& where) {
  ASSERT_EQ(tree.ids.size(), tree.parents.size()) << where;
  for (size_t i = 0; i < tree.ids.size(); ++i) {
    ASSERT_LT(tree.parents[i], static_cast<int32_t>(i)) << where;
    EXPECT_EQ(tree.ids[i] / 10, tree.parents[i] < 0 ? 0 : tree.ids[static_cast<size_t>(tree.parents[i])]) << where;
    EXPECT_EQ(std::count(tree.ids.begin(), tree.ids.end(), tree.ids[i]), 1) << where;
  }
}

TEST(TreeDraft, EveryKind_GivesTreesOfAtMostSoManyNodes) {
  for (const DraftTreeKind kind : kKinds) {
    TreeDraft draft(kind, 25);
    for (const size_t num_draft_tokens : {25, 1, 2, 7, 64}) {
      const std::string where =
          "kind " + std::to_string(static_cast<int>(kind)) + ", most " + std::to_string(num_draft_tokens);
      const Grown grown = Grow(draft, num_draft_tokens, {});
      ExpectTree(grown.tree, where);
      EXPECT_EQ(grown.tree.ids.size(), std::min<size_t>(num_draft_tokens, 25)) << where;
      EXPECT_LE(grown.levels, 7U) << where;
      // Likely nodes may turn out to be too many once the next depth is known.
      const size_t max_asked = kind == DraftTreeKind::kDynamic ? TreeDraft::kMaxAsked : grown.tree.ids.size() - 1;
      EXPECT_LE(grown.asked, max_asked) << where;
      if (num_draft_tokens == 25) {
        EXPECT_GE(grown.levels, 3U) << where;
      }
    }
  }
}

TEST(TreeDraft, FixedKind_HasTheFixedNodes) {
  TreeDraft draft(DraftTreeKind::kFixed, 64);
  const DraftTree tree = Grow(draft, 64, {}).tree;
  std::vector<int32_t> found(tree.ids.begin(), tree.ids.end());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector<int32_t>{1,   2,   3,   4,   11,  12,  13,  21,   22,   31,   32,    41,   111,
                                         112, 113, 121, 122, 131, 132, 211, 1111, 1112, 1113, 11111, 11112}));
}

TEST(TreeDraft, TokensThatThereAreNot_AreLeftOutWithAllBehindThem) {
  for (const DraftTreeKind kind : kKinds) {
    TreeDraft draft(kind, 25);
    const DraftTree tree = Grow(draft, 25, {}, 1).tree;
    ExpectTree(tree, "one token");
    EXPECT_GE(tree.ids.size(), 4U);
    EXPECT_LE(tree.ids.size(), 8U) << "a chain";
    EXPECT_TRUE(Grow(draft, 25, {}, 0).tree.ids.empty());
  }
}

// If the second rank is accepted and the first is not, the tree becomes a chain of second ranks, and back again.
TEST(TreeDraft, OptimalKind_FollowsWhatCame) {
  TreeDraft draft(DraftTreeKind::kOptimal, 16);
  EXPECT_EQ(Grow(draft, 4, {}).tree.ids[0], 1);
  for (const auto& [came, first_ones] :
       {std::pair{std::vector<int32_t>{2, 22, 222, 2222, 22222}, std::vector<int32_t>{2, 22, 222}},
        std::pair{std::vector<int32_t>{1, 11, 111, 1111, 11111}, std::vector<int32_t>{1, 11, 111}}}) {
    for (int i = 0; i < 400; ++i) Grow(draft, 16, came);
    const DraftTree tree = Grow(draft, 3, came).tree;
    EXPECT_EQ(std::vector<int32_t>(tree.ids.begin(), tree.ids.end()), first_ones);
  }
}

}  // namespace
}  // namespace tidemill::tree_draft_test
