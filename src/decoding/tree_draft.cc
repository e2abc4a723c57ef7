#include "decoding/tree_draft.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr size_t kLevels = AcceptanceCounts::kDepths;
constexpr size_t kLevelNodes = 8;     // of a dynamic tree, that get children
constexpr size_t kTreesOfShape = 16;  // before the best one is recomputed
static_assert(kLevelNodes * (kLevels - 1) <= TreeDraft::kMaxAsked);

}  // namespace

TreeDraft::TreeDraft(DraftTreeKind kind, size_t num_draft_tokens)
    : kind_(kind), max_(num_draft_tokens), dynamic_(kLevelNodes) {
  TIDEMILL_CHECK(kind != DraftTreeKind::kChain);
  if (kind == DraftTreeKind::kFixed) shape_ = OrderByPromise(FixedDraftShape(), counts_.Rates());
}

void TreeDraft::Begin(size_t num_draft_tokens, std::span<const int32_t> came) {
  wanted_ = std::min(num_draft_tokens, max_);
  level_ = 0;
  dynamic_.Clear();
  if (kind_ == DraftTreeKind::kDynamic) return;
  if (kind_ == DraftTreeKind::kOptimal) {
    CountRanks(came);
    if (trees_ % kTreesOfShape == 0 || std::has_single_bit(trees_)) shape_ = OptimalDraftShape(counts_.Rates(), max_);
    ++trees_;
  }
  ids_.assign(shape_.size(), kNoId);
  was_level_.assign(shape_.size(), false);
  asked_.assign(1 + shape_.size(), {});
}

// Follows the new ids through the last tree.
void TreeDraft::CountRanks(std::span<const int32_t> came) {
  if (asked_.empty()) return;
  counts_.Fade();
  int32_t at = -1;
  for (size_t depth = 0; depth < std::min(came.size(), kLevels); ++depth) {
    const Asked& asked = asked_[static_cast<size_t>(at + 1)];
    if (asked.num_ids == 0) return;
    const auto ids = std::span(asked.ids).first(asked.num_ids);
    const auto rank = static_cast<size_t>(std::find(ids.begin(), ids.end(), came[depth]) - ids.begin());
    const bool is_found = rank < ids.size();
    counts_.Count(depth, is_found ? rank : kRanks);
    if (!is_found) return;
    size_t child = 0;
    while (child < shape_.size() && !(shape_.parents[child] == at && shape_.ranks[child] == rank)) ++child;
    if (child == shape_.size()) return;
    at = static_cast<int32_t>(child);
  }
}

void TreeDraft::Add(int32_t node, std::span<const TokenProbability> best) {
  TIDEMILL_DCHECK(best.size() <= kRanks);
  if (kind_ == DraftTreeKind::kDynamic) {
    for (const TokenProbability& token : best) dynamic_.Add(node, token.id, token.probability);
    return;
  }
  Asked& asked = asked_[static_cast<size_t>(node + 1)];
  asked.num_ids = best.size();
  for (size_t i = 0; i < best.size(); ++i) asked.ids[i] = best[i].id;
  for (size_t child = static_cast<size_t>(node + 1); child < std::min(wanted_, shape_.size()); ++child) {
    if (shape_.parents[child] == node && shape_.ranks[child] < best.size()) ids_[child] = best[shape_.ranks[child]].id;
  }
}

std::span<const int32_t> TreeDraft::Level() {
  if (++level_ == kLevels) return {};
  if (kind_ == DraftTreeKind::kDynamic) return dynamic_.Level(wanted_);
  next_.clear();
  for (size_t child = 0; child < std::min(wanted_, shape_.size()); ++child) {
    const int32_t parent = shape_.parents[child];
    if (parent < 0 || ids_[static_cast<size_t>(parent)] == kNoId || was_level_[static_cast<size_t>(parent)]) continue;
    if (std::find(next_.begin(), next_.end(), parent) == next_.end()) next_.push_back(parent);
  }
  for (const int32_t node : next_) was_level_[static_cast<size_t>(node)] = true;
  return next_;
}

int32_t TreeDraft::id(int32_t node) const {
  return kind_ == DraftTreeKind::kDynamic ? dynamic_.id(node) : ids_[static_cast<size_t>(node)];
}

int32_t TreeDraft::parent(int32_t node) const {
  return kind_ == DraftTreeKind::kDynamic ? dynamic_.parent(node) : shape_.parents[static_cast<size_t>(node)];
}

DraftTree TreeDraft::Tree() {
  if (kind_ == DraftTreeKind::kDynamic) return dynamic_.Best(wanted_);
  places_.resize(shape_.size());
  tree_ids_.clear();
  tree_parents_.clear();
  for (size_t i = 0; i < std::min(wanted_, shape_.size()); ++i) {
    if (ids_[i] == kNoId) continue;
    const int32_t parent = shape_.parents[i];
    places_[i] = static_cast<int32_t>(tree_ids_.size());
    tree_parents_.push_back(parent < 0 ? -1 : places_[static_cast<size_t>(parent)]);
    tree_ids_.push_back(ids_[i]);
  }
  return {.ids = tree_ids_, .parents = tree_parents_};
}

TreeRows::TreeRows() {
  for (std::vector<int32_t>* of_rows : {&nodes_, &ids_, &parents_}) of_rows->reserve(TreeDraft::kMaxAsked);
}

bool TreeRows::Plan(const TreeDraft& tree, std::span<const int32_t> nodes, size_t max_rows) {
  nodes_.clear();
  num_asked_ = 0;
  for (; num_asked_ < nodes.size(); ++num_asked_) {
    const size_t before = nodes_.size();
    for (int32_t at = tree.parent(nodes[num_asked_]);
         at >= 0 && std::find(nodes_.begin(), nodes_.end(), at) == nodes_.end(); at = tree.parent(at))
      nodes_.push_back(at);
    if (nodes_.size() + num_asked_ + 1 > max_rows) {
      nodes_.resize(before);
      break;
    }
  }
  if (num_asked_ == 0) return false;
  std::sort(nodes_.begin(), nodes_.end());
  nodes_.insert(nodes_.end(), nodes.begin(), nodes.begin() + static_cast<ptrdiff_t>(num_asked_));
  ids_.clear();
  parents_.clear();
  for (const int32_t node : nodes_) {
    const auto parent = std::find(nodes_.begin(), nodes_.end(), tree.parent(node));
    ids_.push_back(tree.id(node));
    parents_.push_back(parent == nodes_.end() ? -1 : static_cast<int32_t>(parent - nodes_.begin()));
  }
  return true;
}

}  // namespace tidemill
