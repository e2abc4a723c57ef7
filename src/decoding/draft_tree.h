// Draft trees: several draft tokens at one place, of which one may be accepted.
#ifndef TIDEMILL_DECODING_DRAFT_TREE_H_
#define TIDEMILL_DECODING_DRAFT_TREE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tidemill {

// Draft tokens for draft tokens after the last sampled token. Nodes stand in order of promise, each behind its parent: the first n are a draft,
// too, and where rows are short the last ones go. A chain is a tree.
struct DraftTree {
  // What was done where there are no ids.
  enum class Empty : uint8_t { kNothing, kReadText, kFoundUnlikely };

  std::span<const int32_t> ids;  // [nodes] within the vocabulary
  std::span<const int32_t> parents =
      {};  // [nodes] parents[i] < i; -1: the last sampled token. Empty: each node follows the one before it
  // kReadText: the drafter ran a part of a text that is new to it. kFoundUnlikely: it was asked, and nothing was likely enough to draft.
  Empty empty = Empty::kNothing;
};

// A tree before its tokens are known: node i is the token of rank ranks[i], from 0, after its parent.
struct DraftShape {
  std::vector<int32_t> parents;  // [nodes] as DraftTree has them
  std::vector<uint32_t> ranks;   // [nodes] different among siblings

  size_t size() const { return parents.size(); }
};

// EAGLE's fixed 25 nodes, five tokens deep (arXiv:2401.15077). Throws std::bad_alloc, as what follows.
DraftShape FixedDraftShape();

// Acceptance rate below accepted parents: acceptance[depth][rank] in [0, 1], depth 0 after the last sampled token. Ranks of a depth sum to
// at most 1. Missing entries are 0.
using DraftAcceptance = std::span<const std::vector<double>>;

// [nodes] how often each is accepted: the product of acceptance along its path. Their sum is the mean of accepted nodes.
std::vector<double> Promises(const DraftShape& shape, DraftAcceptance acceptance);

// The same nodes, the most often accepted first; no node is accepted more often than its parent, so each follows its parent.
DraftShape OrderByPromise(const DraftShape& shape, DraftAcceptance acceptance);

// The shape of at most `nodes` nodes with the greatest sum of promises, which also holds for its first n nodes: since no node promises
// more than its parent, the n most promising nodes are a tree. Sequoia (arXiv:2402.12374) finds the same sum by dynamic programming.
DraftShape OptimalDraftShape(DraftAcceptance acceptance, size_t nodes);

// EAGLE-2's tree (arXiv:2406.16858): a depth's nodes with the greatest product of draft probabilities along their paths get children, and
// the nodes with the greatest products are drafted.
class DynamicDraft {
 public:
  // `width`: nodes of a depth that get children, at least 1.
  explicit DynamicDraft(size_t width) : width_(width) {}

  void Clear();
  // A child of `parent`: -1 for the last sampled token, or a node of Level(). probability in (0, 1], given the parent.
  void Add(int32_t parent, int32_t id, double probability);
  // Nodes added since the last call that get children, best first, without those whose children could not be in Best(most). Valid until
  // the next call.
  std::span<const int32_t> Level(size_t num_draft_tokens = SIZE_MAX);
  // Of a node.
  int32_t id(int32_t node) const { return nodes_[static_cast<size_t>(node)].id; }
  int32_t parent(int32_t node) const { return nodes_[static_cast<size_t>(node)].parent; }

  // The best `num_draft_tokens` nodes, the earlier of equals. Valid until the next call.
  DraftTree Best(size_t num_draft_tokens);

 private:
  struct Node {
    int32_t id, parent;
    double promise;  // product along the path
  };
  // a is better than b.
  bool IsBetter(int32_t a, int32_t b) const;
  // The best `num_draft_tokens` of nodes [first, nodes_.size()) in chosen_.
  void Choose(size_t first, size_t num_draft_tokens);

  size_t width_;
  size_t level_ = 0;  // the first node that Level has not seen
  std::vector<Node> nodes_;
  std::vector<int32_t> chosen_, places_;
  std::vector<int32_t> ids_, parents_;
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFT_TREE_H_
