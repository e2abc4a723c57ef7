// Seconds of a step and of growing, predicted from a machine's profile and a model's plain numbers.
//
//   products(rows)   = bytes / read + (t(rows) - t(1)) * work / work of the sample     t: the profile's seconds of its sample product
//                      and at least the arithmetic at its limit. Rows beyond the first add arithmetic, and bytes do not change it: so the
//                      second term holds for weights of any width. Past 32 rows t goes on in proportion to rows - 1.
//   attention(k, n)  = the larger one of  n * a(k) * flops / flops of the sample  and  bytes / read      a: the profile's seconds of a row
//                      Past 32 query rows a goes on in proportion.
//   growing          = bytes copied / copy + bytes freshly written * touch
// With one thread the limits are those of one thread, and t and a are longer by the ratio of the arithmetic limits.
#ifndef TIDEMILL_PLANNER_PREDICTED_COSTS_H_
#define TIDEMILL_PLANNER_PREDICTED_COSTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cost.h"
#include "planner/machine_profile.h"
#include "tidemill/policies.h"

namespace tidemill {

// Layers whose attention has the same shape.
struct AttentionLayers {
  size_t layers = 0;
  AttentionShape shape;  // without bias
};

struct ModelNumbers {
  std::array<Cost, kProfileRows.size()> layer_products;  // of all layers, for so many rows
  Cost head;                                             // the product that gives the logits of one row
  std::vector<AttentionLayers> attention;
  uint64_t state_row_bytes = 0;  // keys and values of one position in the layers without a window
};

// "All" are the profile's threads.
enum class ThreadUse { kOne, kAll };

class PredictedCosts {
 public:
  // Both outlive this.
  PredictedCosts(const MachineProfile& profile, const ModelNumbers& model, ThreadUse threads = ThreadUse::kAll)
      : profile_(profile), model_(model), threads_(threads) {}

  // One token for each of `batch` sequences that hold `depth` positions.
  double DecodeStep(size_t depth, size_t batch) const;
  // A prompt of `tokens` in chunks, with logits of its last token.
  double Prefill(size_t tokens, size_t chunk) const;
  // `batch` sequences from none to `positions`, row by row.
  double Growing(KvPolicy policy, size_t period, size_t positions, size_t batch) const;

  // s and c of planner/growth_choice.h, of `batch` sequences with one query row each.
  double AttendOneRow(size_t batch) const;
  double GrowOneRow(size_t batch) const;

 private:
  const MachineRates& rates() const { return threads_ == ThreadUse::kOne ? profile_.one : profile_.all; }
  // Of `rows` rows, `head_rows` of which have logits.
  double Products(double rows, double head_rows) const;
  // `rows` query rows over `kv_rows` positions each, which are read once for all of them.
  double AttentionOf(const AttentionShape& shape, double rows, double kv_rows) const;

  const MachineProfile& profile_;
  const ModelNumbers& model_;
  ThreadUse threads_;
};

// `numbers` at `rows`, straight between neighbours; past the last one up by `slope` a row.
double AtRows(const PerRows& numbers, double rows, double slope);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_PREDICTED_COSTS_H_
