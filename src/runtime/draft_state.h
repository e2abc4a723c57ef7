// A drafter's state of one request, within the byte limit of all drafters of an engine.
#ifndef TIDEMILL_RUNTIME_DRAFT_STATE_H_
#define TIDEMILL_RUNTIME_DRAFT_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "state/sequence_state.h"

namespace tidemill {

// Bytes of the states of all drafters of an engine.
struct DraftMemory {
  uint64_t limit = 0, held = 0;
};

enum class DraftRoom : uint8_t {
  kYes,
  kNotNow,    // until other requests free theirs
  kNoMemory,  // the system has none
};

class DraftState {
 public:
  // Borrows `memory`.
  DraftState(std::unique_ptr<SequenceState> state, DraftMemory* memory) : state_(std::move(state)), memory_(memory) {}
  DraftState(const DraftState&) = delete;
  DraftState& operator=(const DraftState&) = delete;
  ~DraftState() { memory_->held -= held_; }

  SequenceState* operator->() const { return state_.get(); }
  SequenceState* get() const { return state_.get(); }
  size_t unused() const { return state_->max_length() - state_->length(); }

  // At most unused() rows.
  DraftRoom Reserve(size_t rows) {
    const uint64_t room = memory_->limit - std::min(memory_->limit, memory_->held);
    if (state_->GrowthBytes(rows) > room) return DraftRoom::kNotNow;
    const bool has_room = state_->Reserve(rows).ok();
    Count();
    return has_room ? DraftRoom::kYes : DraftRoom::kNoMemory;
  }
  void Clear() {
    state_->Clear();
    Count();
  }

 private:
  void Count() {
    const uint64_t now = state_->bytes().reserved;
    memory_->held = memory_->held - held_ + now;
    held_ = now;
  }

  std::unique_ptr<SequenceState> state_;
  DraftMemory* memory_;
  uint64_t held_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_DRAFT_STATE_H_
