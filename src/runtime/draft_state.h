// A drafter's state of one request, within the memory of all states of an engine.
#ifndef TIDEMILL_RUNTIME_DRAFT_STATE_H_
#define TIDEMILL_RUNTIME_DRAFT_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/state_memory.h"
#include "state/sequence_state.h"

namespace tidemill {

enum class DraftRoom : uint8_t {
  kYes,
  kNotNow,    // until other requests free theirs
  kNoMemory,  // the system has none
};

class DraftState {
 public:
  // Borrows `memory`, whose ledger counts the state.
  DraftState(std::unique_ptr<SequenceState> state, StateMemory* memory) : state_(std::move(state)), memory_(memory) {}

  SequenceState* operator->() const { return state_.get(); }
  SequenceState* get() const { return state_.get(); }
  std::unique_ptr<SequenceState> Take() { return std::move(state_); }
  size_t unused() const { return state_->max_length() - state_->length(); }
  uint64_t bytes() const { return state_ == nullptr ? 0 : state_->bytes().reserved; }

  // At most unused() rows, if there is room for `all`, which follow one after the other.
  DraftRoom Reserve(size_t rows, size_t all) {
    if (!memory_->FitsDrafts(state_->LedgerGrowth(all, rows))) return DraftRoom::kNotNow;
    return state_->Reserve(rows).ok() ? DraftRoom::kYes : DraftRoom::kNoMemory;
  }
  DraftRoom Reserve(size_t rows) { return Reserve(rows, rows); }

 private:
  std::unique_ptr<SequenceState> state_;
  StateMemory* memory_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_DRAFT_STATE_H_
