// Grows a draft tree from a draft model's probabilities after each node, a depth at a time.
//
//   Begin(most, ..) -> Add(-1, best after the last sampled token) -> while Level() is not empty: Add(node, best) for its nodes -> Tree()
#ifndef TIDEMILL_DECODING_TREE_DRAFT_H_
#define TIDEMILL_DECODING_TREE_DRAFT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decoding/acceptance_counts.h"
#include "decoding/draft_tree.h"
#include "decoding/token_probability.h"
#include "tidemill/engine.h"

namespace tidemill {

// fixed:   the 25 nodes of FixedDraftShape, ordered by the assumed acceptance.
// dynamic: DynamicDraft; up to 8 nodes at each depth get up to 8 children each, 8 deep.
// optimal: OptimalDraftShape of the text's counts, recomputed after 1, 2, 4, 8 and every 16 trees.
// A node for which the model has no token is left out with its descendants.
class TreeDraft {
 public:
  static constexpr size_t kRanks = AcceptanceCounts::kRanks;
  static constexpr size_t kMaxAsked = DraftOptions::kMax;  // nodes of all depths together

  // kind: not kChain. most: nodes of a tree, at most. Throws std::bad_alloc.
  TreeDraft(DraftTreeKind kind, size_t num_draft_tokens);

  // A new tree of at most `num_draft_tokens` nodes. came: the ids since the last Begin. Throws std::bad_alloc: kOptimal allocates when it recomputes
  // its shape.
  void Begin(size_t num_draft_tokens, std::span<const int32_t> came);
  // The model's best tokens after `node` (-1: the last sampled token), best first, kRanks at most. Without a call none follows.
  void Add(int32_t node, std::span<const TokenProbability> best);
  // The nodes to add tokens after next, parents before children; none: the tree is complete. Valid until the next call. A node's number is
  // above its parent's.
  std::span<const int32_t> Level();
  int32_t id(int32_t node) const;
  int32_t parent(int32_t node) const;

  // The tree so far; valid until the next Begin.
  DraftTree Tree();

 private:
  struct Asked {  // the model's best tokens after a node of a shape
    std::array<int32_t, kRanks> ids;
    size_t num_ids = 0;
  };
  static constexpr int32_t kNoId = -1;

  void CountRanks(std::span<const int32_t> came);

  DraftTreeKind kind_;
  size_t max_, wanted_ = 0;
  size_t level_ = 0;  // depths so far
  DynamicDraft dynamic_;
  // Of a shape, whose nodes are the tree's.
  DraftShape shape_;
  AcceptanceCounts counts_;
  size_t trees_ = 0;
  std::vector<int32_t> ids_;     // [shape_] kNoId: unknown or left out
  std::vector<bool> was_level_;  // [shape_]
  std::vector<Asked> asked_;     // [1 + shape_] the last sampled token's first
  std::vector<int32_t> next_, places_, tree_ids_, tree_parents_;
};

// The rows of a step that computes what follows some nodes. Their ancestors run again, which costs little beside reading the weights, so
// a tree leaves nothing in the state.
class TreeRows {
 public:
  TreeRows();  // throws std::bad_alloc

  // For as many first `nodes` as fit into `max_rows` rows; false: none fits.
  bool Plan(const TreeDraft& tree, std::span<const int32_t> nodes, size_t max_rows);
  // No tree: a step of something else.
  void Clear() { nodes_.clear(); }

  // [rows] Ancestors, parents before children; then the nodes whose logits are wanted.
  std::span<const int32_t> nodes() const { return nodes_; }
  std::span<const int32_t> ids() const { return ids_; }
  std::span<const int32_t> parents() const { return parents_; }  // as StepSequence::parents
  size_t num_asked() const { return num_asked_; }

 private:
  std::vector<int32_t> nodes_, ids_, parents_;
  size_t num_asked_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_TREE_DRAFT_H_
