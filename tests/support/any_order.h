// Orders of cells that a step may take beside the one layer by layer.
#ifndef TIDEMILL_TESTS_SUPPORT_ANY_ORDER_H_
#define TIDEMILL_TESTS_SUPPORT_ANY_ORDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "engine/cell_order.h"

namespace tidemill::testing {

// The chunks' cells as soon as they are ready: along the diagonal, or a seeded choice of those that are.
class AnyOrder : public CellOrder {
 public:
  // `broken`: a chunk does not wait for the one before it, but comes first.
  AnyOrder(bool is_diagonal, uint64_t seed, bool broken = false)
      : is_diagonal_(is_diagonal), broken_(broken), random_(seed) {}

  void Begin(StepRows& rows) override { done_.assign(rows.sequences().size(), 0); }
  std::span<const Cell> Next(StepRows& rows) override {
    cells_.clear();
    const auto chunks = rows.sequences();
    for (size_t c = 0; c < chunks.size(); ++c) {
      const size_t layer = done_[c];
      if (layer == rows.model().layers.size()) continue;
      const bool follows = c != 0 && chunks[c - 1].state == chunks[c].state;
      const bool is_ready = !follows || done_[c - 1] > layer || broken_;
      if (!is_ready) continue;
      cells_.push_back({layer, chunks[c].first_row, chunks[c].num_rows, chunks.subspan(c, 1)});
      const auto outputs = rows.whole().outputs();
      if (layer + 1 == rows.model().layers.size() && !outputs.empty()) cells_.back().outputs = outputs.subspan(c, 1);
    }
    if (broken_) std::reverse(cells_.begin(), cells_.end());
    if (!is_diagonal_ && cells_.size() > 1) {
      std::shuffle(cells_.begin(), cells_.end(), random_);
      cells_.resize(1 + random_() % cells_.size());
    }
    for (const Cell& cell : cells_) ++done_[static_cast<size_t>(cell.sequences.data() - chunks.data())];
    lists_ += cells_.size() > 1 ? 1 : 0;
    return cells_;
  }
  size_t lists_of_several() const { return lists_; }

 private:
  bool is_diagonal_, broken_;
  std::mt19937_64 random_;
  std::vector<size_t> done_;  // layers, of each chunk
  std::vector<Cell> cells_;
  size_t lists_ = 0;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_ANY_ORDER_H_
