// A step of the engine is a list of cells: one layer, some rows, and the states those rows belong to.
#ifndef TIDEMILL_STATE_CELL_H_
#define TIDEMILL_STATE_CELL_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention.h"
#include "state/sequence_state.h"

namespace tidemill {

// What a row computes besides its place in the state.
enum class RowWant : uint8_t {
  kLogits,
  kHidden,  // the last layer's output, normalised
};

// One sequence's rows [first_row, first_row + num_rows) of a step's matrices. They carry their place: rows [slot, + num_rows) of what the
// state has reserved, written as positions [state->length() + slot, + num_rows). A sequence may have several in one step: chunks.
struct SequenceRows {
  SequenceState* state = nullptr;
  size_t first_row = 0;
  size_t num_rows = 0;
  size_t slot = 0;
  std::span<const int32_t> parents =
      {};  // [num_rows] of a draft tree, as AttentionTask::parents, with slot 0; empty: a chain
  Visibility visibility = Visibility::kCausal;
  size_t sparse_from = SIZE_MAX;  // rows at this position and later ones attend as their layer's SparseForm says
  bool ends_segment =
      false;  // memory rows, behind the tokens of their segment (state/segment_kv_layer.h); none of them is committed

  size_t first_position() const { return state->length() + slot; }
  size_t last_slot() const { return slot + num_rows; }  // one past it
};

// One layer of one stack over consecutive rows of the step.
struct Cell {
  size_t layer = 0;
  size_t first_row = 0;
  size_t num_rows = 0;
  std::span<const SequenceRows> sequences;  // cover exactly those rows, in order
  // Of the stack's last layer, where nobody reads all of what it gives: of each sequence the last rows, perhaps none, whose result is read.
  // The others leave their part in the state, and have no result. Empty: all rows have one.
  std::span<const SequenceRows> outputs = {};
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_CELL_H_
