// Drafts that are trees: several guesses at the same place, of which one may be right.
#ifndef TIDEMILL_DECODING_DRAFT_TREE_H_
#define TIDEMILL_DECODING_DRAFT_TREE_H_

#include <cstdint>
#include <span>

namespace tidemill {

// Guesses at the tokens that follow the pending one. Nodes stand in order of promise, each behind its parent: the first n are a draft,
// too, and where rows are short the last ones go. A chain is a tree.
struct DraftTree {
  std::span<const int32_t> ids;           // [nodes] within the vocabulary
  std::span<const int32_t> parents = {};  // [nodes] parents[i] < i; -1: the pending token. Empty: each node follows the one before it
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFT_TREE_H_
