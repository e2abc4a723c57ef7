#include "decoding/draft_builder.h"

#include "base/check.h"

namespace tidemill {
namespace {

DraftChoice::Options WithoutTokenizer(DraftChoice::Options options) {
  options.tokenizer = nullptr;
  return options;
}

}  // namespace

DraftBuilder::DraftBuilder(const DraftChoice::Options& options, DraftTreeKind tree, bool at_once)
    : choice_(tree == DraftTreeKind::kChain ? WithoutTokenizer(options) : options),
      order_(tree != DraftTreeKind::kChain ? DraftOrder::kTree
             : at_once                     ? DraftOrder::kAtOnce
                                           : DraftOrder::kOneByOne) {
  chain_.reserve(options.num_draft_tokens);
  if (tree == DraftTreeKind::kChain) return;
  TIDEMILL_CHECK(options.tokenizer != nullptr);
  tree_.emplace(tree, options.num_draft_tokens);
}

void DraftBuilder::Begin(size_t num_draft_tokens) {
  max_ = num_draft_tokens;
  chain_.clear();
  next_.reset();
  ended_ = false;
  level_ = {};
  rows_.Clear();
}

void DraftBuilder::BeginText(std::span<const int32_t> ids) {
  if (!tree_) return;
  tree_->Begin(max_, ids.subspan(tree_begin_));
  tree_begin_ = ids.size();
}

// Of draft tokens that are made at once, the first row that says nothing ends them.
void DraftBuilder::Choose(size_t row, std::span<float> logits) {
  if (tree_) return tree_->Add(rows_.nodes().empty() ? -1 : rows_.nodes()[row], choice_.Best(logits));
  if (ended_) return;
  next_ = choice_.Next(logits);
  if (order_ != DraftOrder::kAtOnce) return;
  ended_ = !next_;
  if (next_) chain_.push_back(*next_);
}

bool DraftBuilder::Continue() {
  if (tree_) {
    level_ = tree_->Level();
    return !level_.empty();
  }
  if (order_ == DraftOrder::kAtOnce || !next_) return false;
  chain_.push_back(*next_);
  return chain_.size() != max_;
}

DraftTree DraftBuilder::Made() {
  DraftTree made = tree_ ? tree_->Tree() : DraftTree{.ids = chain_};
  made.empty = DraftTree::Empty::kFoundUnlikely;
  return made;
}

}  // namespace tidemill
