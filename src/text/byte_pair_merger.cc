#include "text/byte_pair_merger.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tidemill {
namespace {

// std::push_heap keeps the greatest in front; we want the lowest rank, then the leftmost.
constexpr auto kLater = [](const auto& a, const auto& b) { return a.rank_and_place > b.rank_and_place; };

}  // namespace

BytePairMerger::BytePairMerger(std::span<const MergeRule> rules, size_t num_tokens, std::span<const uint32_t> ranks) {
  TIDEMILL_CHECK(rules.size() < std::numeric_limits<uint32_t>::max());
  TIDEMILL_CHECK(ranks.empty() || ranks.size() == rules.size());
  struct Rule {
    int32_t left;
    uint32_t place;  // among the rules
    Entry entry;
  };
  std::vector<Rule> sorted;
  sorted.reserve(rules.size());
  for (size_t i = 0; i < rules.size(); ++i) {
    const MergeRule& rule = rules[i];
    const auto place = static_cast<uint32_t>(i);
    const auto in_range = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < num_tokens; };
    TIDEMILL_CHECK(in_range(rule.left) && in_range(rule.right) && in_range(rule.merged));
    sorted.push_back({rule.left, place, {rule.right, rule.merged, ranks.empty() ? place : ranks[i]}});
  }
  // The last of equal pairs first, so that unique() keeps it.
  std::sort(sorted.begin(), sorted.end(), [](const Rule& a, const Rule& b) {
    if (a.left != b.left) return a.left < b.left;
    if (a.entry.right != b.entry.right) return a.entry.right < b.entry.right;
    return a.place > b.place;
  });
  const auto last = std::unique(sorted.begin(), sorted.end(), [](const Rule& a, const Rule& b) {
    return a.left == b.left && a.entry.right == b.entry.right;
  });
  sorted.erase(last, sorted.end());

  begin_.assign(num_tokens + 1, 0);
  entries_.reserve(sorted.size());
  for (const Rule& rule : sorted) {
    ++begin_[static_cast<size_t>(rule.left) + 1];
    entries_.push_back(rule.entry);
  }
  for (size_t t = 0; t < num_tokens; ++t) begin_[t + 1] += begin_[t];
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
