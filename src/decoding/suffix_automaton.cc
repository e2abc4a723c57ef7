#include "decoding/suffix_automaton.h"

#include <algorithm>

namespace tidemill {
namespace {

// Ends of a part of the text that move to its latest occurrence; shorter ones keep an older one, which is as valid.
constexpr int kRefreshed = 8;

}  // namespace

SuffixAutomaton::SuffixAutomaton(size_t longest) : states_(1), slots_(16, kNone), longest_(longest) {}

size_t SuffixAutomaton::SlotOf(uint32_t state, int32_t id) const {
  uint64_t hash = (uint64_t{state} << 32 | static_cast<uint32_t>(id)) * 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 29;
  size_t slot = hash & (slots_.size() - 1);
  while (slots_[slot] != kNone && (edges_[slots_[slot]].from != state || edges_[slots_[slot]].id != id)) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

uint32_t* SuffixAutomaton::Find(uint32_t state, int32_t id) {
  ++lookups_;
  const uint32_t edge = slots_[SlotOf(state, id)];
  return edge == kNone ? nullptr : &edges_[edge].to;
}

void SuffixAutomaton::Rehash(size_t slots) {
  slots_.assign(slots, kNone);
  for (uint32_t edge = 0; edge < edges_.size(); ++edge) slots_[SlotOf(edges_[edge].from, edges_[edge].id)] = edge;
}

void SuffixAutomaton::AddEdge(uint32_t from, int32_t id, uint32_t to) {
  if (2 * (edges_.size() + 1) > slots_.size()) Rehash(2 * slots_.size());
  const auto edge = static_cast<uint32_t>(edges_.size());
  edges_.push_back({from, id, to, states_[from].first_edge});
  states_[from].first_edge = edge;
  slots_[SlotOf(from, id)] = edge;
}

// The repeat of the text with that id appended, in the automaton of the text without: the longest end of the last repeat that the id
// ever followed. A repeat grows by one id of the text at most and shrinks with each link: constant time on average.
void SuffixAutomaton::FollowRepeat(int32_t id) {
  size_t& length = repeat_.length;
  if (length == longest_ && --length <= states_[states_[repeat_state_].link].length) {
    repeat_state_ = states_[repeat_state_].link;
  }
  const uint32_t* to = nullptr;
  while ((to = Find(repeat_state_, id)) == nullptr && repeat_state_ != 0) {
    repeat_state_ = states_[repeat_state_].link;
    length = states_[repeat_state_].length;
  }
  if (to == nullptr) return;
  repeat_state_ = *to;
  ++length;
}

void SuffixAutomaton::Append(int32_t id) {
  FollowRepeat(id);
  ++size_;
  const auto whole = static_cast<uint32_t>(states_.size());
  states_.push_back({.length = states_[last_].length + 1, .end = static_cast<uint32_t>(size_)});
  uint32_t state = last_;
  uint32_t* to = nullptr;
  for (; state != kNone && (to = Find(state, id)) == nullptr; state = states_[state].link) AddEdge(state, id, whole);
  last_ = whole;
  if (state == kNone) {
    states_[whole].link = 0;
    repeat_ = {};
    return;
  }
  uint32_t same = *to;
  if (states_[state].length + 1 != states_[same].length) {
    // Its longer parts end at fewer positions from now on: the shorter ones move into a state of their own.
    const auto shorter = static_cast<uint32_t>(states_.size());
    State copy = states_[same];
    copy.length = states_[state].length + 1;
    copy.first_edge = kNone;
    states_.push_back(copy);
    for (uint32_t edge = states_[same].first_edge; edge != kNone; edge = edges_[edge].next) {
      AddEdge(shorter, edges_[edge].id, edges_[edge].to);
    }
    for (; state != kNone && (to = Find(state, id)) != nullptr && *to == same; state = states_[state].link)
      *to = shorter;
    states_[same].link = shorter;
    if (repeat_state_ == same && repeat_.length <= states_[shorter].length) repeat_state_ = shorter;
    same = shorter;
  }
  states_[whole].link = same;
  repeat_.end = states_[repeat_state_].end;
  states_[repeat_state_].end = static_cast<uint32_t>(size_);
  for (int i = 0; i < kRefreshed && same != 0; ++i, same = states_[same].link) {
    states_[same].end = static_cast<uint32_t>(size_);
  }
}

}  // namespace tidemill
