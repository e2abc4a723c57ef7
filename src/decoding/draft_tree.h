// Drafts that are trees: several guesses at the same place, of which one may be right.
#ifndef TIDEMILL_DECODING_DRAFT_TREE_H_
#define TIDEMILL_DECODING_DRAFT_TREE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decoding/draft_rules.h"

namespace tidemill {

// Guesses at the tokens that follow the pending one. Nodes stand in order of promise, each behind its parent: the first n are a draft,
// too, and where rows are short the last ones go. A chain is a tree.
struct DraftTree {
  // What was done where there are no ids.
  enum class Empty : uint8_t { kNothing, kReadText, kFoundUnlikely };

  std::span<const int32_t> ids;  // [nodes] within the vocabulary
  std::span<const int32_t> parents =
      {};  // [nodes] parents[i] < i; -1: the pending token. Empty: each node follows the one before it
  // [nodes] of a chain that was drawn: from what, by ascending id. Else empty.
  std::span<const std::vector<TokenProbability>> drawn_from = {};
  // kReadText: the drafter ran a part of a text that is new to it. kFoundUnlikely: it was asked, and nothing was likely enough to guess.
  Empty empty = Empty::kNothing;
};

// A tree before its tokens are known: node i is the token that the drafter ranks ranks[i]-th, from 0, behind that of its parent.
struct DraftShape {
  std::vector<int32_t> parents;  // [nodes] as DraftTree has them
  std::vector<uint32_t> ranks;   // [nodes] different among siblings

  size_t size() const { return parents.size(); }
};

// The 25 nodes, five tokens deep, that EAGLE drafts whatever the model says (arXiv:2401.15077). Throws std::bad_alloc, as what follows.
DraftShape FixedDraftShape();

// How often a guess is right behind parents that are: acceptance[depth][rank] in [0, 1], depth 0 behind the pending token, at most 1 in
// sum over the ranks of a depth. Beyond what it has nothing is right.
using DraftAcceptance = std::span<const std::vector<double>>;

// Nodes of the shape that will be right on average: the sum over them of the product of acceptance along their paths.
double ExpectedAccepted(const DraftShape& shape, DraftAcceptance acceptance);

// The same nodes, those first that are right most often: each behind its parent, as none is right more often than that.
DraftShape OrderByPromise(const DraftShape& shape, DraftAcceptance acceptance);

// The shape of at most `nodes` nodes with the greatest ExpectedAccepted. None of its first n nodes could be better spent, either: no node
// promises more than its parent, so that the n nodes that promise most are always a tree. Sequoia (arXiv:2402.12374) finds the same sum by
// dynamic programming, a budget at a time.
DraftShape OptimalDraftShape(DraftAcceptance acceptance, size_t nodes);

// A tree that follows what the drafter says (EAGLE-2, arXiv:2406.16858): the nodes of each level with the greatest product of
// probabilities along their paths get children, and of all nodes those with the greatest products are proposed.
class DynamicDraft {
 public:
  // `width`: nodes of a level that get children, at least 1.
  explicit DynamicDraft(size_t width) : width_(width) {}

  void Clear();
  // A child of `parent`: -1 for the pending token, or a node of Level(). probability in (0, 1], behind the parent.
  void Add(int32_t parent, int32_t id, double probability);
  // The nodes added since the last call that are to get children, best first. Valid until the next. Where Best(most) is all that is
  // wanted, without those whose children could not be in it.
  std::span<const int32_t> Level(size_t most = SIZE_MAX);
  // Of a node: for the tokens that a child stands behind.
  int32_t id(int32_t node) const { return nodes_[static_cast<size_t>(node)].id; }
  int32_t parent(int32_t node) const { return nodes_[static_cast<size_t>(node)].parent; }

  // The best `most` nodes; of equal ones those that were added first. Valid until the next call.
  DraftTree Best(size_t most);

 private:
  struct Node {
    int32_t id, parent;
    double promise;  // product along the path
  };
  // a is better than b.
  bool IsBetter(int32_t a, int32_t b) const;
  // The best `most` of nodes [first, nodes_.size()) in chosen_.
  void Choose(size_t first, size_t most);

  size_t width_;
  size_t level_ = 0;  // the first node that Level has not seen
  std::vector<Node> nodes_;
  std::vector<int32_t> chosen_, places_;
  std::vector<int32_t> ids_, parents_;
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFT_TREE_H_
