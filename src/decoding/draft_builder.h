// One draft, from the logits of a draft model's steps: a chain, token by token or all at once, or a tree, depth by depth.
//
//   Begin(most) -> BeginText(ids) -> a step of the text: Choose(..) for each wanted row -> while Continue(): a step, Choose(..) -> Made()
//
// The next step of a chain runs its last draft token; that of a tree runs PlanLevel's rows.
#ifndef TIDEMILL_DECODING_DRAFT_BUILDER_H_
#define TIDEMILL_DECODING_DRAFT_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decoding/draft_choice.h"
#include "decoding/draft_tree.h"
#include "decoding/num_draft_tokens.h"
#include "decoding/tree_draft.h"
#include "tidemill/engine.h"

namespace tidemill {

class DraftBuilder {
 public:
  // A tree needs options.tokenizer; a chain does not read it. at_once: each wanted row gives the next token of a chain. Throws
  // std::bad_alloc.
  DraftBuilder(const DraftChoice::Options& options, DraftTreeKind tree, bool at_once);

  DraftOrder order() const { return order_; }

  void Begin(size_t num_draft_tokens);  // nodes
  // Before the text's step, with all its ids. Throws std::bad_alloc.
  void BeginText(std::span<const int32_t> ids);
  // The logits of a wanted row, in ascending order. Changes the logits.
  void Choose(size_t row, std::span<float> logits);
  // After a step: whether there is another.
  bool Continue();
  // The next step of a tree in at most `max_rows` rows; false: too few for any node.
  bool PlanLevel(size_t max_rows) { return rows_.Plan(*tree_, level_, max_rows); }
  const TreeRows& rows() const { return rows_; }
  int32_t parent(int32_t node) const { return tree_->parent(node); }
  std::span<const int32_t> chain() const { return chain_; }

  // The draft so far; valid until the next Begin. No node: nothing was likely enough.
  DraftTree Made();

 private:
  DraftChoice choice_;
  DraftOrder order_;
  std::optional<TreeDraft> tree_;
  size_t max_ = 0;
  std::vector<int32_t> chain_;
  std::optional<int32_t> next_;     // of a chain, from the last logits; none: nothing likely enough
  bool ended_ = false;              // of a draft made at once: a row gave nothing
  size_t tree_begin_ = 0;           // number of ids when the last tree began
  std::span<const int32_t> level_;  // nodes of tree_
  TreeRows rows_;                   // of the step; none: a step of the text
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFT_BUILDER_H_
