#include "decoding/draft_tree.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <string_view>

#include "base/check.h"

namespace tidemill {
namespace {

// Acceptance rate of a node below a parent at `depth` - 1; 0: unknown.
double At(DraftAcceptance acceptance, size_t depth, size_t rank) {
  return depth < acceptance.size() && rank < acceptance[depth].size() ? acceptance[depth][rank] : 0;
}

}  // namespace

DraftShape FixedDraftShape() {
  // Each node as the ranks along its path.
  constexpr std::string_view kPaths[] = {"0",   "1",   "2",    "3",    "00",   "01",    "02",   "10",  "11",
                                         "20",  "21",  "30",   "000",  "001",  "002",   "010",  "011", "020",
                                         "021", "100", "0000", "0001", "0002", "00000", "00001"};
  DraftShape shape;
  for (const std::string_view& path : kPaths) {
    const auto parent = std::find(std::begin(kPaths), std::end(kPaths), path.substr(0, path.size() - 1));
    shape.parents.push_back(path.size() == 1 ? -1 : static_cast<int32_t>(parent - std::begin(kPaths)));
    shape.ranks.push_back(static_cast<uint32_t>(path.back() - '0'));
  }
  return shape;
}

std::vector<double> Promises(const DraftShape& shape, DraftAcceptance acceptance) {
  std::vector<double> promises(shape.size());
  std::vector<size_t> depth(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool has_parent = shape.parents[i] >= 0;
    const auto parent = static_cast<size_t>(shape.parents[i]);
    depth[i] = has_parent ? depth[parent] + 1 : 0;
    promises[i] = (has_parent ? promises[parent] : 1) * At(acceptance, depth[i], shape.ranks[i]);
  }
  return promises;
}

DraftShape OrderByPromise(const DraftShape& shape, DraftAcceptance acceptance) {
  const std::vector<double> promises = Promises(shape, acceptance);
  std::vector<size_t> order(shape.size()), places(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return promises[a] > promises[b]; });
  DraftShape ordered;
  for (size_t i = 0; i < order.size(); ++i) {
    places[order[i]] = i;
    const int32_t parent = shape.parents[order[i]];
    ordered.parents.push_back(parent < 0 ? -1 : static_cast<int32_t>(places[static_cast<size_t>(parent)]));
    ordered.ranks.push_back(shape.ranks[order[i]]);
  }
  return ordered;
}

DraftShape OptimalDraftShape(DraftAcceptance acceptance, size_t nodes) {
  std::vector<std::vector<uint32_t>> ranks(acceptance.size());  // of each depth, the best first
  for (size_t depth = 0; depth < acceptance.size(); ++depth) {
    ranks[depth].resize(acceptance[depth].size());
    std::iota(ranks[depth].begin(), ranks[depth].end(), 0U);
    std::stable_sort(ranks[depth].begin(), ranks[depth].end(),
                     [&](uint32_t a, uint32_t b) { return acceptance[depth][a] > acceptance[depth][b]; });
  }
  // What may come next: the best child of each node that was taken, and its next best sibling.
  struct Candidate {
    double promise, parent_promise;
    int32_t parent;
    size_t depth, place;  // in ranks[depth]
    size_t order;

    bool operator<(const Candidate& other) const {  // the queue gives the greatest, of equal ones the oldest
      return promise != other.promise ? promise < other.promise : order > other.order;
    }
  };
  std::priority_queue<Candidate> candidates;
  size_t order = 0;
  const auto offer = [&](double parent_promise, int32_t parent, size_t depth, size_t place) {
    if (depth == ranks.size() || place == ranks[depth].size()) return;
    const double promise = parent_promise * acceptance[depth][ranks[depth][place]];
    if (promise > 0) candidates.push({promise, parent_promise, parent, depth, place, order++});
  };
  offer(1, -1, 0, 0);
  DraftShape shape;
  while (shape.size() < nodes && !candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    const auto node = static_cast<int32_t>(shape.size());
    shape.parents.push_back(best.parent);
    shape.ranks.push_back(ranks[best.depth][best.place]);
    offer(best.promise, node, best.depth + 1, 0);
    offer(best.parent_promise, best.parent, best.depth, best.place + 1);
  }
  return shape;
}

void DynamicDraft::Clear() {
  nodes_.clear();
  level_ = 0;
}

void DynamicDraft::Add(int32_t parent, int32_t id, double probability) {
  TIDEMILL_DCHECK(parent < static_cast<int32_t>(level_) && probability > 0 && probability <= 1);
  const double before = parent < 0 ? 1 : nodes_[static_cast<size_t>(parent)].promise;
  nodes_.push_back({id, parent, before * probability});
}

bool DynamicDraft::IsBetter(int32_t a, int32_t b) const {
  const double of_a = nodes_[static_cast<size_t>(a)].promise, of_b = nodes_[static_cast<size_t>(b)].promise;
  return of_a != of_b ? of_a > of_b : a < b;
}

void DynamicDraft::Choose(size_t first, size_t num_draft_tokens) {
  chosen_.resize(nodes_.size() - first);
  std::iota(chosen_.begin(), chosen_.end(), static_cast<int32_t>(first));
  const size_t count = std::min(num_draft_tokens, chosen_.size());
  std::partial_sort(chosen_.begin(), chosen_.begin() + static_cast<std::ptrdiff_t>(count), chosen_.end(),
                    [this](int32_t a, int32_t b) { return IsBetter(a, b); });
  chosen_.resize(count);
}

std::span<const int32_t> DynamicDraft::Level(size_t num_draft_tokens) {
  Choose(level_, width_);
  level_ = nodes_.size();
  // A child follows its parent in the order.
  while (!chosen_.empty()) {
    size_t before = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) before += IsBetter(static_cast<int32_t>(i), chosen_.back()) ? 1U : 0U;
    if (before + 1 < num_draft_tokens) break;
    chosen_.pop_back();
  }
  return chosen_;
}

DraftTree DynamicDraft::Best(size_t num_draft_tokens) {
  Choose(0, num_draft_tokens);  // a parent promises at least as much as its child, and was added before it
  places_.resize(nodes_.size());
  ids_.clear();
  parents_.clear();
  for (size_t i = 0; i < chosen_.size(); ++i) {
    const Node& node = nodes_[static_cast<size_t>(chosen_[i])];
    places_[static_cast<size_t>(chosen_[i])] = static_cast<int32_t>(i);
    ids_.push_back(node.id);
    parents_.push_back(node.parent < 0 ? -1 : places_[static_cast<size_t>(node.parent)]);
  }
  return {.ids = ids_, .parents = parents_};
}

}  // namespace tidemill
