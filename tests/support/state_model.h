// A sequence that remembers everything in the plainest way, and a state beside it that must say the same.
#ifndef TIDEMILL_TESTS_SUPPORT_STATE_MODEL_H_
#define TIDEMILL_TESTS_SUPPORT_STATE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "state/sequence_state.h"
#include "tests/support/state_kinds.h"

namespace tidemill::testing {

// Rows follow from the keys up to their position, as in a model, so that equal keys mean equal content. None has a byte of
// UncommittedRow.
struct NaiveSequence {
  std::vector<RowKey> keys;
  std::vector<uint64_t> hashes;              // of keys[0, i]
  std::vector<std::vector<std::byte>> rows;  // [layers] of [positions, row_bytes]
  size_t floor = 0;  // no rollback goes below it once a window does not see everything from there

  explicit NaiveSequence(const StateKindUnderTest& kind) : rows(kind.num_layers()) {}
  void Append(const StateKindUnderTest& kind, RowKey key);
  void Truncate(const StateKindUnderTest& kind, size_t length);
  // What a state that was restored from a checkpoint of this one is.
  NaiveSequence Restored(const StateKindUnderTest& kind) const;
  // What a state must offer, and what a checkpoint of it offers.
  size_t EarliestRollback(const StateKindUnderTest& kind) const { return kind.UnlessAllIsSeen(floor); }
  size_t CheckpointEarliest(const StateKindUnderTest& kind) const;
};

// A state and what it should be. Functions that act do so on both.
struct Subject {
  const StateKindUnderTest* kind;
  std::unique_ptr<SequenceState> state;
  NaiveSequence naive;

  Subject(const StateKindUnderTest& state_kind, size_t max_length)
      : kind(&state_kind), state(state_kind.Make(max_length)), naive(state_kind) {}
  Subject(const StateKindUnderTest& state_kind, std::unique_ptr<SequenceState> from, NaiveSequence content)
      : kind(&state_kind), state(std::move(from)), naive(std::move(content)) {}

  // Every row of a reserved step of so many: what nobody committed.
  void WriteUncommitted(size_t count) const;
  // Slots slots[i] of a reserved step get the rows of naive + keys[0, i], layer after layer.
  void WriteRows(std::span<const uint32_t> slots, std::span<const RowKey> keys) const;
  // Reserve, write, commit; the reservation must succeed.
  void Extend(std::span<const RowKey> keys);

  // The first thing in which the state is not what it should be; empty when it is. `content`: rows, too.
  std::string Difference(bool content) const;
  // During a step: overwrites rows that nobody needs any more, so that they are seen where they are used. How many in all layers.
  size_t PoisonForgotten() const;

  // Rows of the sequence and of the step in progress, after WriteRows at slots 0, 1, ...
  std::string StepDifference(std::span<const RowKey> step_keys) const;

  bool GaveUp() const;  // some layer: LayerUnderTest

  std::vector<std::vector<const std::byte*>> Addresses() const;  // [layers, length]
};

// Checkpoint of a state that was filled in one step, or in as few as there can be, and never did anything else; but for a rollback, where one has left fewer rows
// than such a checkpoint has.
std::vector<std::byte> PlainCheckpoint(const StateKindUnderTest& kind, const NaiveSequence& naive);

// Bytes of a checkpoint that must succeed.
std::vector<std::byte> CheckpointOf(SequenceState& state);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_STATE_MODEL_H_
