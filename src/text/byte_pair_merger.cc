#include "text/byte_pair_merger.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

// std::push_heap keeps the greatest in front; we want the lowest rank, then the leftmost.
constexpr auto kLater = [](const auto& a, const auto& b) { return a.rank_and_place > b.rank_and_place; };

}  // namespace

BytePairMerger::BytePairMerger(std::span<const MergeRule> rules, size_t num_tokens, std::span<const uint32_t> ranks) {
  TIDEMILL_CHECK(rules.size() < std::numeric_limits<uint32_t>::max());
  TIDEMILL_CHECK(ranks.empty() || ranks.size() == rules.size());
  begin_.assign(num_tokens + 1, 0);
  for (const MergeRule& rule : rules) {
    const auto in_range = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < num_tokens; };
    TIDEMILL_CHECK(in_range(rule.left) && in_range(rule.right) && in_range(rule.merged));
    ++begin_[static_cast<size_t>(rule.left)];
  }
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  // Each rule goes to the back of what its left side has left: begin_ says where the left sides end, and when all rules have
  // their place, where they begin. Until the ranks stand there, `rank` is the rule's number.
  entries_.resize(rules.size());
  for (size_t i = 0; i < rules.size(); ++i) {
    entries_[--begin_[static_cast<size_t>(rules[i].left)]] = {rules[i].right, rules[i].merged,
                                                              static_cast<uint32_t>(i)};
  }
  // Ascending by right side; of equal pairs the last comes first and stays.
  Entry* kept = entries_.data();
  for (size_t t = 0; t < num_tokens; ++t) {
    Entry* const begin = entries_.data() + begin_[t];
    Entry* const end = entries_.data() + begin_[t + 1];
    std::sort(begin, end,
              [](const Entry& a, const Entry& b) { return a.right != b.right ? a.right < b.right : a.rank > b.rank; });
    Entry* const last = std::unique(begin, end, [](const Entry& a, const Entry& b) { return a.right == b.right; });
    begin_[t] = static_cast<uint32_t>(kept - entries_.data());
    kept = kept == begin ? last : std::move(begin, last, kept);
  }
  begin_[num_tokens] = static_cast<uint32_t>(kept - entries_.data());
  entries_.resize(begin_[num_tokens]);
  if (ranks.empty()) return;
  for (Entry& entry : entries_) entry.rank = ranks[entry.rank];
}

const BytePairMerger::Entry* BytePairMerger::Find(int32_t left, int32_t right) const {
  const auto token = static_cast<size_t>(left);
  const Entry* const end = entries_.data() + begin_[token + 1];
  const Entry* const found = std::lower_bound(entries_.data() + begin_[token], end, right,
                                              [](const Entry& entry, int32_t id) { return entry.right < id; });
  return found != end && found->right == right ? found : nullptr;
}

void BytePairMerger::Push(Scratch& scratch, int32_t place) const {
  const Scratch::Symbol& symbol = scratch.symbols_[static_cast<size_t>(place)];
  if (symbol.after < 0) return;
  const int32_t right = scratch.symbols_[static_cast<size_t>(symbol.after)].id;
  const Entry* const entry = Find(symbol.id, right);
  if (entry == nullptr) return;
  scratch.heap_.push_back({(uint64_t{entry->rank} << 32) | static_cast<uint32_t>(place), symbol.id, right});
}

void BytePairMerger::AppendMerged(std::span<const int32_t> tokens, Scratch& scratch, std::vector<int32_t>& out) const {
  TIDEMILL_CHECK(tokens.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  const auto count = static_cast<int32_t>(tokens.size());
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({tokens[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (int32_t i = 0; i + 1 < count; ++i) Push(scratch, i);
  std::make_heap(heap.begin(), heap.end(), kLater);

  const auto push_pair = [&](int32_t place) {
    const size_t before = heap.size();
    Push(scratch, place);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), kLater);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), kLater);
    const Scratch::Candidate next = heap.back();
    heap.pop_back();
    const auto place = static_cast<uint32_t>(next.rank_and_place);
    Scratch::Symbol& left = symbols[place];
    if (left.id != next.left || left.after < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.after)];
    if (right.id != next.right) continue;
    left.id = Find(next.left, next.right)->merged;
    right.id = -1;
    left.after = right.after;
    if (left.after >= 0) symbols[static_cast<size_t>(left.after)].before = static_cast<int32_t>(place);
    if (left.before >= 0) push_pair(left.before);
    push_pair(static_cast<int32_t>(place));
  }
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = symbols[static_cast<size_t>(i)].after) {
    out.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

}  // namespace tidemill
