// Every kind of sequence state as the contract tests see it: a row is a string of bytes, whatever the kind makes of it.
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
  virtual size_t row_bytes() const = 0;                      // of one position in one layer
  virtual uint64_t CommittedBytes(size_t length) const = 0;  // what bytes().committed must be
  virtual size_t checkpoint_header_bytes() const = 0;

  // Row `step_row` of the step in progress.
  virtual void Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const = 0;
  // Positions [0, length + step_rows): [positions, row_bytes].
  virtual std::vector<std::byte> Read(LayerState& layer, size_t step_rows) const = 0;
  // Takes what a layer takes in a step of so many rows, and nothing more.
  virtual void Touch(LayerState& layer, size_t step_rows) const = 0;
  // Where the rows of the committed positions lie; empty for a kind that keeps no rows.
  virtual std::vector<const std::byte*> Addresses(LayerState& layer) const = 0;
};

const std::vector<std::unique_ptr<const StateKindUnderTest>>& AllStateKinds();

// As a test parameter.
using StateKindPointer = const StateKindUnderTest*;
std::vector<StateKindPointer> AllStateKindPointers();
inline void PrintTo(StateKindPointer kind, std::ostream* out) { *out << kind->name(); }

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_STATE_KINDS_H_
