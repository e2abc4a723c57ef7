// What branches share: the list of cells that one call gets, its regions and states, and the steps around the residual stream.
#ifndef TIDEMILL_MODELS_LAYERS_BRANCH_CELLS_H_
#define TIDEMILL_MODELS_LAYERS_BRANCH_CELLS_H_

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "kernels/row_blocks.h"
#include "models/layers/decoder_layer.h"

namespace tidemill {

// Branch number `position` of each cell's layer: of one form, with one index for their regions.
struct BranchCells {
  std::span<const DecoderCell> cells;
  size_t position = 0;
  // The rows of `cells` whose result is read, as cells; all, unless the branch remembers. Of a branch that does, `cells` have all rows in Compute
  // and these alone in AddOutput.
  std::span<const DecoderCell> outputs = cells;

  const LayerBranch& at(const DecoderCell& c) const { return c.layer->branches[position]; }
  template <typename T>
  const T& As(const DecoderCell& c) const {
    return static_cast<const T&>(*at(c).branch);
  }
  size_t first_state(const DecoderCell& c) const {  // of the branch, in the sequences
    size_t index = c.first_state;
    for (size_t i = 0; i < position; ++i) index += c.layer->branches[i].branch->num_states();
    return index;
  }
  // State `index` of a sequence, of a kind that is a T: T::Holds.
  template <typename T>
  static T& StateOf(const SequenceRows& rows, size_t index) {
    LayerState& state = rows.state->layer(index);
    TIDEMILL_CHECK(T::Holds(state.checkpoint_kind()));  // the sequence was made for this model
    return static_cast<T&>(state);
  }
  template <typename T>
  Matrix<T> Region(const StepBuffers& b, size_t index, BufferRegion region) const {
    return b.Region<T>(position, index, region);
  }
};

// Calls f(cell, first, count) for the parts of rows [first, first + count) of each cell.
template <typename F>
void ForCellRows(std::span<const DecoderCell> cells, size_t first, size_t count, const F& f) {
  for (const DecoderCell& c : cells) {
    const size_t begin = std::max(first, c.cell.first_row),
                 end = std::min(first + count, c.cell.first_row + c.cell.num_rows);
    if (begin < end) f(c, begin, end - begin);
  }
}

// Calls f(sequence's rows, first, count) for the parts of rows [first, first + count) of each sequence.
template <typename F>
void ForSequenceRows(const Cell& cell, size_t first, size_t count, const F& f) {
  for (const SequenceRows& rows : cell.sequences) {
    const size_t begin = std::max(first, rows.first_row), end = std::min(first + count, rows.first_row + rows.num_rows);
    if (begin < end) f(rows, begin, end - begin);
  }
}

// Calls body(alone, cell, first, count) for blocks of rows [first, first + count) of the cells, from several threads, as one loop. `cols`: as
// ForRowBlocks has it.
template <typename Body>
void ForCellBlocks(ExecutionContext& ctx, std::span<const DecoderCell> cells, size_t cols, const Body& body) {
  const auto rows_of = [&](size_t i) { return cells[i].cell.num_rows; };
  ForRangeBlocks(ctx, cells.size(), rows_of, cols, [&](ExecutionContext& alone, size_t i, size_t first, size_t count) {
    body(alone, cells[i], cells[i].cell.first_row + first, count);
  });
}

// A branch's input, made just before its products read it: out = N(b.x), or b.x itself where the norm follows the sum.
struct InputNorm {
  StepBuffers& b;
  const BranchCells& cells;
  Matrix<float> out = b.normed;

  void operator()(ExecutionContext& alone, size_t first, size_t count) const;
};

// The last product of a branch, as Branch::AddOutput: linear_of(cell), of rows of `source`, which make(alone, first, count) fills.
template <typename LinearOf, typename Make>
void AddProductOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells, ConstMatrix<float> source,
                      const Make& make, const LinearOf& linear_of) {
  b.BeginProducts(source);
  for (const DecoderCell& c : cells.cells) {
    const bool normed = cells.at(c).out_norm.present();
    b.AddProduct(ctx, linear_of(c), c.cell.first_row, c.cell.num_rows, normed ? b.normed : b.x, !normed);
  }
  b.RunProducts(ctx, make);
}

// What the last commits left to do in a branch's states of one cell, in the thread pool where that is worth waking it. Of a sequence's
// chunks the first one does it.
void SettleStates(ExecutionContext& ctx, const BranchCells& cells, const DecoderCell& cell);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_BRANCH_CELLS_H_
