// Grows a draft tree from what a draft model says behind each node, a level at a time.
//
//   Begin(most, ..) -> Add(-1, best behind the pending token) -> while Level() is not empty: Add(node, best) for its nodes -> Tree()
#ifndef TIDEMILL_DECODING_TREE_DRAFT_H_
#define TIDEMILL_DECODING_TREE_DRAFT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decoding/acceptance_counts.h"
#include "decoding/draft_rules.h"
#include "decoding/draft_tree.h"
#include "tidemill/engine.h"

namespace tidemill {

// fixed:   the 25 nodes of FixedDraftShape, in the order of what is assumed before anything was counted
// dynamic: DynamicDraft, by the draft model's probabilities; up to 8 nodes of a level get up to 8 children each, 8 levels deep
// optimal: OptimalDraftShape of what was counted in the text so far, found anew after 1, 2, 4, 8 and every 16 trees
// What the model has no token for (there are fewer than the shape wants) is left out, with all behind it.
class TreeDraft {
 public:
  static constexpr size_t kRanks = AcceptanceCounts::kRanks;
  static constexpr size_t kMostAsked = DraftOptions::kMost;  // nodes of all levels together

  // kind: not kChain. most: nodes of a tree, at most. Throws std::bad_alloc.
  TreeDraft(DraftTreeKind kind, size_t most);

  // A new tree of at most `most` nodes. came: the ids that came since the last Begin. Throws std::bad_alloc: kOptimal allocates where its
  // shape is found anew.
  void Begin(size_t most, std::span<const int32_t> came);
  // What the model thinks follows `node`, -1: the pending token; best first, kRanks at most. Without a call nothing follows it.
  void Add(int32_t node, std::span<const TokenProbability> best);
  // The nodes behind which the model is to be asked next, whose parents it was asked behind before; none: the tree is complete. Valid
  // until the next call. A node's number is above its parent's.
  std::span<const int32_t> Level();
  int32_t id(int32_t node) const;
  int32_t parent(int32_t node) const;

  // What there is so far; valid until the next Begin.
  DraftTree Tree();

 private:
  struct Asked {  // what the model said behind a node of a shape
    std::array<int32_t, kRanks> ids;
    size_t num_ids = 0;
  };
  static constexpr int32_t kNoId = -1;

  void CountRanks(std::span<const int32_t> came);

  DraftTreeKind kind_;
  size_t most_, wanted_ = 0;
  size_t level_ = 0;  // how many there were
  DynamicDraft dynamic_;
  // Of a shape, whose nodes are the tree's.
  DraftShape shape_;
  AcceptanceCounts counts_;
  size_t trees_ = 0;
  std::vector<int32_t> ids_;     // [shape_] kNoId: not known, or left out
  std::vector<bool> was_level_;  // [shape_]
  std::vector<Asked> asked_;     // [1 + shape_] the pending token's first
  std::vector<int32_t> next_, places_, tree_ids_, tree_parents_;
};

// The rows of a step that asks what follows some nodes: their ancestors run again, which costs little beside reading the weights, so that
// a step is all that a tree needs of a state.
class TreeRows {
 public:
  TreeRows();  // throws std::bad_alloc

  // For as many of `nodes`, first ones first, as `most` rows have room for; false where that is none.
  bool Plan(const TreeDraft& tree, std::span<const int32_t> nodes, size_t most);
  // No tree: a step of something else.
  void Clear() { nodes_.clear(); }

  // [rows] Ancestors, which all were asked before, parents before their children; then the asked, whose logits are wanted.
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
