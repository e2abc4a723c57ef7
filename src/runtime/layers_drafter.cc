#include "runtime/layers_drafter.h"

#include <algorithm>

#include "state/linear_layer.h"

namespace tidemill {

// Linear layers keep the entries of all these rows.
static_assert(1 + std::max(TreeDraft::kMaxAsked, DraftOptions::kMax) <= LinearLayer::kMaxStagedRows);

LayersDrafter::LayersDrafter(const Options& options)
    : options_(options), builder_(options.choice, options.tree, /*at_once=*/false) {
  ids_.reserve(std::min(options.state->max_length(), kReservedDraftIds));
  rows_ids_.reserve(1 + TreeDraft::kMaxAsked);
  rows_parents_.reserve(1 + TreeDraft::kMaxAsked);
}

void LayersDrafter::Begin(size_t num_draft_tokens) {
  was_asked_ = false;
  goes_on_ = false;
  if (num_draft_tokens == 0 || options_.state->length() + 1 != ids_.size()) return;
  const size_t unused = UnusedRows(1 + num_draft_tokens);
  goes_on_ = unused >= 2;
  if (!goes_on_) {
    if (!had_unused_) trouble_ = "the cache has no unused rows for draft tokens";
    return;
  }
  had_unused_ = true;
  trouble_ = {};
  num_rows_ = std::min(num_draft_tokens, unused - 1);  // one row of the verifying step is the last sampled token's
  builder_.Begin(num_rows_);
  builder_.BeginText(ids_);
}

size_t LayersDrafter::UnusedRows(size_t max_rows) const {
  const SequenceState& state = *options_.state;
  size_t rows = std::min({max_rows, options_.executor->max_rows(), state.max_length() - state.length()});
  while (rows != 0 && state.GrowthBytes(rows) != 0) --rows;
  return rows;
}

DraftNext LayersDrafter::Next(size_t rows, StepSequence* step) {
  const bool is_tree = was_asked_ && draft_order() == DraftOrder::kTree;
  if (!goes_on_) return DraftNext::kDone;
  goes_on_ = false;
  rows_ids_.assign(1, ids_.back());
  rows_parents_.clear();
  size_t num_asked = 1, slot = 0;
  if (!is_tree) {
    rows_ids_.insert(rows_ids_.end(), builder_.chain().begin(), builder_.chain().end());
    if (options_.keeps_rows) {
      slot = rows_ids_.size() - 1;
      rows_ids_.assign(1, rows_ids_.back());
    }
  } else {
    const size_t unused = UnusedRows(1 + TreeDraft::kMaxAsked);
    if (unused < 2 || !builder_.PlanLevel(unused - 1)) return DraftNext::kDone;
    const TreeRows& level = builder_.rows();
    rows_ids_.insert(rows_ids_.end(), level.ids().begin(), level.ids().end());
    rows_parents_.push_back(-1);
    for (const int32_t parent : level.parents())
      rows_parents_.push_back(parent + 1);  // the last sampled token is row 0
    num_asked = level.num_asked();
  }
  goes_on_ = true;
  if (rows_ids_.size() > rows) return DraftNext::kWait;
  // Rows of a chain are reserved once: a Reserve may move what is committed, and nothing else.
  if (slot == 0) goes_on_ = options_.state->Reserve(std::max(rows_ids_.size(), is_tree ? 0 : num_rows_)).ok();
  if (!goes_on_) return DraftNext::kDone;
  *step = {.state = options_.state,
           .tokens = rows_ids_,
           .rows = Wanted::kLast,
           .parents = rows_parents_,
           .num_last = num_asked,
           .slot = slot,
           .sparse_from = options_.is_sparse ? 0 : SIZE_MAX};
  return DraftNext::kStep;
}

void LayersDrafter::Choose(size_t row, std::span<float> logits) {
  builder_.Choose(row - (rows_parents_.empty() ? 0 : 1), logits);
}

void LayersDrafter::Ran(size_t /*first_row*/) {
  was_asked_ = true;
  goes_on_ = builder_.Continue();
}

DraftTree LayersDrafter::End() {
  goes_on_ = false;
  if (!was_asked_) return {.ids = {}, .empty = DraftTree::Empty::kNothing};
  return builder_.Made();
}

}  // namespace tidemill
