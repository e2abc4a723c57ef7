// A branch for tests whose layer state is a fold (fold_state.h). A row reads all rows before it, those of its step included, and adds to x
// what follows from their fold: one row too many or too few changes every number after it.
#ifndef TIDEMILL_TESTS_SUPPORT_FOLD_BRANCH_H_
#define TIDEMILL_TESTS_SUPPORT_FOLD_BRANCH_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "models/language_model.h"
#include "models/layers/branch_cells.h"
#include "tests/support/fold_state.h"

namespace tidemill::testing {

class FoldBranch : public Branch {
 public:
  FoldBranch(uint64_t begin, size_t hidden) : begin_(begin), hidden_(hidden) {}

  size_t num_states() const override { return 1; }
  void AddStates(const StateOptions&, SequenceState::Layers* layers) const override {
    layers->push_back(std::make_unique<FoldState>(begin_));
  }
  std::vector<BufferRegion> Regions() const override { return {{hidden_}}; }
  void ForEachWeight(const WeightVisitor&) const override {}
  void AddWork(DType, BranchWork*) const override {}
  bool RunsWith(const Branch& other) const override { return dynamic_cast<const FoldBranch*>(&other) != nullptr; }

  void Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override {
    const Matrix<float> out = cells.Region<float>(b, 0, {hidden_});
    for (const DecoderCell& c : cells.cells) {
      SettleStates(ctx, cells, c);
      InputNorm{b, cells}(ctx.alone(), c.cell.first_row, c.cell.num_rows);
      for (const SequenceRows& rows : c.cell.sequences) {
        FoldState& state = BranchCells::StateOf<FoldState>(rows, cells.first_state(c));
        const Matrix<float> in = b.normed.Rows(rows.first_row, rows.num_rows);
        for (size_t i = 0; i < rows.num_rows; ++i) {
          state.Write(rows.slot + i, Hash(in, i));
          const uint64_t before =
              rows.parents.empty() ? state.Value(rows.slot + i) : OfPath(state, rows.parents, in, rows.parents[i]);
          Spread(testing::Fold(before, Hash(in, i)), {out.row(rows.first_row + i), hidden_});
        }
      }
    }
  }
  void AddOutput(ExecutionContext&, StepBuffers& b, const BranchCells& cells) const override {
    const Matrix<float> out = cells.Region<float>(b, 0, {hidden_});
    for (const DecoderCell& c : cells.cells) {
      const bool normed = cells.at(c).out_norm.present();
      for (size_t r = c.cell.first_row; r < c.cell.first_row + c.cell.num_rows; ++r) {
        for (size_t i = 0; i < hidden_; ++i)
          (normed ? b.normed : b.x).row(r)[i] = (normed ? 0 : b.x.row(r)[i]) + out.row(r)[i];
      }
    }
  }

 private:
  static uint64_t Hash(ConstMatrix<float> rows, size_t row) {
    uint64_t hash = 0;
    for (size_t i = 0; i < rows.cols; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &rows.row(row)[i], sizeof(bits));
      hash = testing::Fold(hash, bits);
    }
    return hash;
  }
  // Of all tokens and the path to `node` of the step's tree; -1: the tokens alone.
  static uint64_t OfPath(const FoldState& state, std::span<const int32_t> parents, ConstMatrix<float> in,
                         int32_t node) {
    if (node < 0) return state.Value(0);
    const auto at = static_cast<size_t>(node);
    return testing::Fold(OfPath(state, parents, in, parents[at]), Hash(in, at));
  }
  static void Spread(uint64_t value, std::span<float> out) {
    for (float& x : out) {
      value = testing::Fold(value, 1);
      x = static_cast<float>(static_cast<double>(value >> 40) * 0x1p-24 - 0.5);
    }
  }

  uint64_t begin_;
  size_t hidden_;
};

// The first layer gets a fold between its branches, the last one remembers in a fold alone: states of a list of kinds.
inline void AddFolds(LanguageModel& model) {
  const size_t hidden = model.settings.hidden_size;
  std::vector<LayerBranch>& first = model.layers.front().branches;
  first.insert(first.begin() + 1,
               LayerBranch{first[0].norm, first[0].out_norm, std::make_unique<FoldBranch>(1, hidden)});
  model.layers.back().branches[0].branch = std::make_unique<FoldBranch>(2, hidden);
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_FOLD_BRANCH_H_
