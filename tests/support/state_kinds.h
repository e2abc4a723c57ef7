// Every list of layer states as the contract tests see it: a row is a string of bytes, whatever the kind makes of it.
// A new kind gets the whole suite from one entry in AllStateKinds (state_kinds.cc).
#ifndef TIDEMILL_TESTS_SUPPORT_STATE_KINDS_H_
#define TIDEMILL_TESTS_SUPPORT_STATE_KINDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "state/sequence_state.h"

namespace tidemill::testing {

struct StrangerState {
  std::string what;  // differs
  std::unique_ptr<SequenceState> state;
};

class StateKindUnderTest {
 public:
  static constexpr uint64_t kModel = 0x1122334455667788, kNumericClass = 0x99AABBCCDDEEFF00;

  virtual ~StateKindUnderTest() = default;

  virtual std::string name() const = 0;  // letters and digits
  virtual std::unique_ptr<SequenceState> Make(size_t max_length) const = 0;
  // Empty states that differ from Make's in one thing each, so that neither may restore the other's checkpoint.
  virtual std::vector<StrangerState> Strangers(size_t max_length) const = 0;

  virtual size_t num_layers() const = 0;
  virtual size_t row_bytes(size_t layer) const = 0;       // of one position
  virtual size_t window(size_t layer) const = 0;          // rows that a row sees, itself included; 0: all
  virtual size_t fixed_bytes(size_t) const { return 0; }  // of a checkpoint with tokens, beside rows
  virtual bool keeps_rows() const { return true; }        // some layer
  virtual size_t draft_rows() const = 0;  // positions that a rollback takes back for certain, if there are windows
  virtual size_t checkpoint_header_bytes() const = 0;
  // Of 20 steps that take `rows` rows together, those for which the kind need not grow.
  virtual size_t fewest_quiet_steps(size_t rows) const = 0;

  // The first position that a row at `position` sees.
  size_t FirstSeen(size_t layer, size_t position) const;
  // `position`, or 0 when no window is so small that a row there does not see everything.
  size_t UnlessAllIsSeen(size_t position) const;

  // Row `step_row` of the step in progress.
  virtual void Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const = 0;
  // What a layer makes of positions [0, length + step_rows) against what it should make of these rows, of which those from `needed` on have to
  // be there; empty: the same.
  virtual std::string Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                                 size_t needed) const = 0;
  // During a step: overwrites with NaN what the layer still holds of positions before `needed` and nobody shares. Returns how many
  // positions that was.
  virtual size_t Poison(LayerState& layer, size_t needed) const = 0;
  // Takes what a layer takes in a step of so many rows, and nothing more.
  virtual void Touch(LayerState& layer, size_t step_rows) const = 0;
  // Where the rows of the committed positions lie, null for those that are no longer kept; empty for a kind that keeps no rows.
  virtual std::vector<const std::byte*> Addresses(LayerState& layer) const = 0;
};

const std::vector<std::unique_ptr<const StateKindUnderTest>>& AllStateKinds();

// As a test parameter.
using StateKindPointer = const StateKindUnderTest*;
std::vector<StateKindPointer> AllStateKindPointers();
std::vector<StateKindPointer> StateKindsThatForget();  // those with windows
inline void PrintTo(StateKindPointer kind, std::ostream* out) { *out << kind->name(); }

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_STATE_KINDS_H_
