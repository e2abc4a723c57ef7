// In which order the cells of a step run: data, not code of the executor. A cell is ready when the same rows' cell of the layer below has
// run and, in the same layer, the cells of the sequence's earlier rows. Any order of ready cells gives the same bits.
#ifndef TIDEMILL_ENGINE_CELL_ORDER_H_
#define TIDEMILL_ENGINE_CELL_ORDER_H_

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "engine/step_rows.h"
#include "state/cell.h"

namespace tidemill {

class CellOrder {
 public:
  virtual ~CellOrder() = default;
  // Before the first Next of a step.
  virtual void Begin(StepRows& rows) = 0;
  // Ready cells to run as one list, valid until the next call; none: the step's layers are done.
  virtual std::span<const Cell> Next(StepRows& rows) = 0;
};

// Layer by layer, all rows in one cell. `num_layers`: only the first ones, at least one (early exit); other layers' states stay as they are.
// `reads_all`: somebody reads the residual stream of all rows behind the last one.
class SequentialOrder : public CellOrder {
 public:
  explicit SequentialOrder(size_t num_layers = SIZE_MAX, bool reads_all = false)
      : num_layers_(num_layers), reads_all_(reads_all) {}

  void Begin(StepRows&) override { next_ = 0; }
  std::span<const Cell> Next(StepRows& rows) override {
    const size_t layers = std::min(num_layers_, rows.model().layers.size());
    if (next_ >= layers) return {};
    cell_ = rows.whole().InLayer(next_, next_ + 1 == layers && !reads_all_);
    ++next_;
    return {&cell_, 1};
  }

 private:
  size_t num_layers_, next_ = 0;
  bool reads_all_;
  Cell cell_;
};

// The same, with the rows' hidden features taken on the way through all layers; null: none.
class TappedOrder : public CellOrder {
 public:
  explicit TappedOrder(const StepFeatures* features, size_t num_layers = SIZE_MAX)
      : features_(features), num_layers_(num_layers), layers_(num_layers, features != nullptr) {}

  void Begin(StepRows& rows) override {
    const size_t layers = rows.model().layers.size();
    TIDEMILL_CHECK(features_ == nullptr ||
                   (num_layers_ >= layers && std::all_of(features_->taps.begin(), features_->taps.end(),
                                                         [layers](size_t tap) { return tap <= layers + 1; })));
    layers_.Begin(rows);
    next_ = 0;
  }
  std::span<const Cell> Next(StepRows& rows) override {
    if (features_ == nullptr) return layers_.Next(rows);
    rows.TakeFeatures(*features_, next_++);
    const std::span<const Cell> cells = layers_.Next(rows);
    if (cells.empty()) rows.TakeFeatures(*features_, next_);
    return cells;
  }

 private:
  const StepFeatures* features_;
  size_t num_layers_;
  SequentialOrder layers_;
  size_t next_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_ENGINE_CELL_ORDER_H_
