#include "decoding/drafter.h"

namespace tidemill {

void NgramDrafter::Append(int32_t id) {
  ids_.push_back(id);
  parts_.Append(id);
}

DraftTree NgramDrafter::Propose(size_t num_draft_tokens) {
  proposed_.clear();
  const SuffixAutomaton::Repeat repeat = parts_.LongestRepeat();
  if (repeat.length == 0 || repeat.length < shortest_) return {};
  // If the sequence ends before the draft does, the draft continues with itself: a cycle repeats.
  for (size_t i = 0; i < num_draft_tokens; ++i) {
    const size_t at = repeat.end + i;
    const int32_t id = at < ids_.size() ? ids_[at] : proposed_[at - ids_.size()];
    if (static_cast<size_t>(id) >= vocab_size_) break;
    proposed_.push_back(id);
  }
  return {.ids = proposed_};
}

}  // namespace tidemill
