// Every list of layer states as the contract tests see it. A new kind gets the whole suite from one LayerUnderTest and its lists in AllStateKinds
// (state_kinds.cc).
#ifndef TIDEMILL_TESTS_SUPPORT_STATE_KINDS_H_
#define TIDEMILL_TESTS_SUPPORT_STATE_KINDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "state/sequence_state.h"
#include "tests/support/layer_under_test.h"

namespace tidemill::testing {

struct StrangerState {
  std::string what;  // differs
  std::unique_ptr<SequenceState> state;
};

class StateKindUnderTest {
 public:
  using Layers = std::vector<LayerUnderTest::Pointer>;
  static constexpr uint64_t kModel = 0x1122334455667788, kNumericClass = 0x99AABBCCDDEEFF00;

  // `name`: letters and digits.
  StateKindUnderTest(std::string name, Layers layers, size_t draft_rows)
      : name_(std::move(name)), layers_(std::move(layers)), draft_rows_(draft_rows) {}

  const std::string& name() const { return name_; }
  std::unique_ptr<SequenceState> Make(size_t max_length) const { return Make(OptionsOf(max_length), layers_); }
  // Empty states that differ from Make's in one thing each, so that neither may restore the other's checkpoint.
  std::vector<StrangerState> Strangers(size_t max_length) const;

  size_t num_layers() const { return layers_.size(); }
  const LayerUnderTest& layer(size_t index) const { return *layers_[index]; }
  // Positions that a rollback takes back for certain, where a layer drops something.
  size_t draft_rows() const { return draft_rows_; }
  bool keeps_rows() const;  // some layer
  bool drops_rows() const;  // some layer that keeps them as they are
  size_t checkpoint_header_bytes() const;
  // Of 20 steps that take `rows` rows together, those for which the kind need not grow.
  size_t fewest_quiet_steps(size_t rows) const;

  // The shortest of its layers: LayerUnderTest.
  size_t longest_step() const;
  size_t longest_step_in_part() const;
  size_t longest_draft() const;

  // `position`, or 0 when no window is so small that a row there does not see everything.
  size_t UnlessAllIsSeen(size_t position) const;

 private:
  SequenceOptions OptionsOf(size_t max_length) const;
  static std::unique_ptr<SequenceState> Make(const SequenceOptions& options, const Layers& layers);

  std::string name_;
  Layers layers_;
  size_t draft_rows_;
};

const std::vector<std::unique_ptr<const StateKindUnderTest>>& AllStateKinds();

// As a test parameter.
using StateKindPointer = const StateKindUnderTest*;
std::vector<StateKindPointer> AllStateKindPointers();
std::vector<StateKindPointer> StateKindsThatForget();  // those with windows
inline void PrintTo(StateKindPointer kind, std::ostream* out) { *out << kind->name(); }

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_STATE_KINDS_H_
