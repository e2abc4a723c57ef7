#include "decoding/guess_builder.h"

#include "base/check.h"

namespace tidemill {
namespace {

DraftChoice::Options WithoutTokenizer(DraftChoice::Options options) {
  options.tokenizer = nullptr;
  return options;
}

}  // namespace

GuessBuilder::GuessBuilder(const DraftChoice::Options& options, DraftTreeKind tree, bool at_once)
    : choice_(tree == DraftTreeKind::kChain ? WithoutTokenizer(options) : options),
      order_(tree != DraftTreeKind::kChain ? GuessOrder::kTree
             : at_once                     ? GuessOrder::kAtOnce
                                           : GuessOrder::kOneByOne) {
  chain_.reserve(options.most);
  if (tree == DraftTreeKind::kChain) return;
  TIDEMILL_CHECK(options.tokenizer != nullptr);
  tree_.emplace(tree, options.most);
}

void GuessBuilder::Begin(size_t most) {
  most_ = most;
  chain_.clear();
  next_.reset();
  ended_ = false;
  level_ = {};
  rows_.Clear();
}

void GuessBuilder::BeginText(std::span<const int32_t> ids) {
  if (!tree_) return;
  tree_->Begin(most_, ids.subspan(tree_begin_));
  tree_begin_ = ids.size();
}

// Of guesses that are made at once, the first row that says nothing ends them.
void GuessBuilder::Choose(size_t row, std::span<float> logits) {
  if (tree_) return tree_->Add(rows_.nodes().empty() ? -1 : rows_.nodes()[row], choice_.Best(logits));
  if (ended_) return;
  next_ = choice_.Next(logits);
  if (order_ != GuessOrder::kAtOnce) return;
  ended_ = !next_;
  if (next_) chain_.push_back(*next_);
}

bool GuessBuilder::Continue() {
  if (tree_) {
    level_ = tree_->Level();
    return !level_.empty();
  }
  if (order_ == GuessOrder::kAtOnce || !next_) return false;
  chain_.push_back(*next_);
  return chain_.size() != most_;
}

DraftTree GuessBuilder::Made() {
  DraftTree made = tree_ ? tree_->Tree() : DraftTree{.ids = chain_};
  made.empty = DraftTree::Empty::kFoundUnlikely;
  return made;
}

}  // namespace tidemill
