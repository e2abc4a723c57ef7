// The guesses of one draft, as they come from what the steps of a draft model say: a chain, token by token or all at once, or a tree, level by
// level.
//
//   Begin(most) -> BeginText(ids) -> a step behind the text: Choose(..) for each row that it asks -> while Continue(): a step, Choose(..) -> Made()
//
// The next step of a chain runs its last guess; that of a tree runs PlanLevel's rows.
#ifndef TIDEMILL_DECODING_GUESS_BUILDER_H_
#define TIDEMILL_DECODING_GUESS_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decoding/draft_choice.h"
#include "decoding/draft_tree.h"
#include "decoding/draft_width.h"
#include "decoding/tree_draft.h"
#include "tidemill/engine.h"

namespace tidemill {

class GuessBuilder {
 public:
  // A tree needs options.tokenizer; a chain does not read it. at_once: each row that is asked says the next guess of a chain. Throws
  // std::bad_alloc.
  GuessBuilder(const DraftChoice::Options& options, DraftTreeKind tree, bool at_once);

  GuessOrder order() const { return order_; }

  void Begin(size_t most);  // nodes
  // Before the step behind the text, of all its ids. Throws std::bad_alloc.
  void BeginText(std::span<const int32_t> ids);
  // What follows a row that was asked, the first rows first. position: of the first guess. Changes the logits.
  void Choose(size_t row, std::span<float> logits, size_t position);
  // The step was run: whether there is another.
  bool Continue();
  // The next step of a tree, in as many rows as there may be; false where nothing can be asked in so few.
  bool PlanLevel(size_t most) { return rows_.Plan(*tree_, level_, most); }
  const TreeRows& rows() const { return rows_; }
  int32_t parent(int32_t node) const { return tree_->parent(node); }
  std::span<const int32_t> chain() const { return chain_; }

  // What there is so far; valid until the next Begin. Without a node it was found unlikely.
  DraftTree Made();

 private:
  DraftChoice choice_;
  GuessOrder order_;
  std::optional<TreeDraft> tree_;
  size_t most_ = 0;
  std::vector<int32_t> chain_;
  std::optional<int32_t> next_;     // of a chain, what the last logits say; none: nothing that is likely enough
  bool ended_ = false;              // of guesses at once: a row said nothing
  size_t tree_begin_ = 0;           // ids that there were when the last tree began
  std::span<const int32_t> level_;  // nodes of tree_
  TreeRows rows_;                   // of the step; none: it runs ids of the text
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_GUESS_BUILDER_H_
