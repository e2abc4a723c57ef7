// One layer of a list of layer states as the contract tests see it: a row is a string of bytes, whatever the kind makes of it.
#ifndef TIDEMILL_TESTS_SUPPORT_LAYER_UNDER_TEST_H_
#define TIDEMILL_TESTS_SUPPORT_LAYER_UNDER_TEST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "state/sequence_state.h"

namespace tidemill::testing {

// Fills what was never committed: a NaN in every dtype.
inline std::vector<std::byte> UncommittedRow(size_t row_bytes) {
  return std::vector<std::byte>(row_bytes, std::byte{0xFF});
}

class LayerUnderTest {
 public:
  using Pointer = std::shared_ptr<const LayerUnderTest>;

  virtual ~LayerUnderTest() = default;

  virtual std::string name() const = 0;  // letters and digits
  virtual std::unique_ptr<LayerState> Make(const SequenceOptions& options) const = 0;
  // Layers that differ from this one in one thing each, and its name.
  virtual std::vector<std::pair<std::string, Pointer>> Strangers() const { return {}; }

  virtual size_t row_bytes() const = 0;  // of one position
  // Makes of random bytes, none of them 0xFF, a row that the layer may be given.
  virtual void Admit(std::span<std::byte> /*row*/) const {}
  virtual size_t window() const = 0;                // rows that a row sees, itself included; 0: all
  virtual bool keeps_rows() const { return true; }  // as they are written
  // Of 20 steps that take `rows` rows together, those for which the layer may grow.
  virtual size_t most_growths(size_t) const { return 0; }

  // Rows of a step: of any, of one of which only the first may be committed, of one of which any path may be.
  virtual size_t longest_step(size_t /*draft_rows*/) const { return SIZE_MAX; }
  virtual size_t longest_step_in_part(size_t /*draft_rows*/) const { return SIZE_MAX; }
  virtual size_t longest_draft(size_t /*draft_rows*/) const { return SIZE_MAX; }

  // The first position that a row at `position` sees.
  size_t FirstSeen(size_t position) const { return window() == 0 || position < window() ? 0 : position + 1 - window(); }

  // What a state says of its bytes. Of a checkpoint of `length` > 0 tokens that can be rolled back to `earliest`:
  virtual uint64_t CommittedBytes(size_t length, size_t earliest) const {
    return row_bytes() * (length - FirstSeen(earliest));
  }
  // of these, what is made for the checkpoint, so that the layer itself may lack it:
  virtual uint64_t MadeBytes(size_t /*earliest*/) const { return 0; }
  // of `length` tokens:
  virtual uint64_t ReadBytes(const LayerState&, size_t length, size_t /*draft_rows*/) const {
    return row_bytes() * (window() == 0 ? length : std::min(length, window()));
  }

  // Whether a layer does without memory that was missing, for the same bits.
  virtual bool GaveUp(const LayerState&) const { return false; }

  // Row `step_row` of the step in progress.
  virtual void Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const = 0;
  // Rows slots[i] of the step in progress, each behind the one before it. slots ascends strictly.
  virtual void WritePath(LayerState& layer, std::span<const uint32_t> slots, std::span<const std::byte> rows) const {
    for (size_t i = 0; i < slots.size(); ++i) Write(layer, slots[i], rows.subspan(i * row_bytes(), row_bytes()));
  }
  // Rows [0, count) of the step in progress, which nobody may see.
  virtual void WriteUncommitted(LayerState& layer, size_t count) const {
    const auto row = UncommittedRow(row_bytes());
    for (size_t i = 0; i < count; ++i) Write(layer, i, row);
  }
  // What a layer makes of positions [0, length + step_rows) against what it should make of these rows, of which those from `needed` on have to
  // be there; empty: the same.
  virtual std::string Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                                 size_t needed) const = 0;
  // During a step: overwrites with NaN what the layer still holds of positions before `needed` and nobody shares. Returns how many
  // positions that was.
  virtual size_t Poison(LayerState&, size_t /*needed*/) const { return 0; }
  // Takes what a layer takes in a step of so many rows, and nothing more.
  virtual void Touch(LayerState& layer, size_t step_rows) const = 0;
  // Where the rows of the committed positions lie, null for those that are no longer kept; empty for a kind that keeps no rows.
  virtual std::vector<const std::byte*> Addresses(LayerState&) const { return {}; }
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_LAYER_UNDER_TEST_H_
