// Seconds of a step and of growing, predicted from a machine's profile and a model's plain numbers. t, a, loop and element: the profile's.
//
//   products(rows)  = sum over weights of packed bytes * t(type, rows)
//                     of a mixture of experts: min(experts, slots) busy ones with slots / busy rows each, slots = rows * per_token
//   attention(k, n) = KV heads * n * a(head_dim, group, k)
//   row work(rows)  = rows * elements * element; where ForRowBlocks makes several blocks of them, times the share of the busiest thread
//   loops           = loops over threads * loop
//   growing         = bytes copied / copy + bytes freshly written * touch
//
// Between measured numbers (of rows, head_dim, group) everything is straight; below the first it stays, past the last it goes straight on
// along the last two and never falls.
#ifndef TIDEMILL_PLANNER_PREDICTED_COSTS_H_
#define TIDEMILL_PLANNER_PREDICTED_COSTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/row_blocks.h"
#include "planner/machine_profile.h"
#include "tensor/dtype.h"
#include "tidemill/policies.h"

namespace tidemill {

// Layers whose attention has the same shape.
struct AttentionLayers {
  size_t layers = 0;
  AttentionShape shape;  // without bias
};

// Weights of one type, of all layers.
struct WeightGroup {
  DType dtype = DType::kF32;
  double bytes = 0;                   // packed; of one expert
  double experts = 1, per_token = 1;  // 1 and 1: every row goes through them
};

struct ModelNumbers {
  std::vector<WeightGroup> weights;  // of the layers
  std::vector<WeightGroup> head;     // that give the logits of a row
  std::vector<AttentionLayers> attention;
  std::vector<RowWork> row_works;  // of all layers
  size_t loops = 0;                // over threads, of all layers' products and attention
  uint64_t state_row_bytes = 0;    // keys and values of one position in the layers without a window
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
  // One sequence that holds `depth` positions has so many rows behind them, each of which has logits; `others` that hold as many have one each.
  double CheckStep(size_t depth, size_t rows, size_t others) const;
  // Each of `sequences` that hold so many has `rows` rows, the last `asked` of which have logits.
  double BatchStep(size_t depth, size_t rows, size_t asked, size_t sequences) const;
  // A prompt of `tokens` in chunks, with logits of its last token.
  double Prefill(size_t tokens, size_t chunk) const;
  // `batch` sequences from none to `positions`, row by row.
  double Growing(KvPolicy policy, size_t period, size_t positions, size_t batch) const;

  // c of planner/growth_choice.h: to allocate, fault and copy one row of a sequence.
  double GrowOneRow() const;

 private:
  const OperationSeconds& operations() const { return threads_ == ThreadUse::kOne ? profile_.one : profile_.all; }
  // All of a step but attention: `rows` rows, `head_rows` of which have logits.
  double RowsOfStep(size_t rows, size_t head_rows) const;
  double Products(const std::vector<WeightGroup>& groups, double rows) const;
  double RowWorks(size_t rows) const;
  // In all layers, of one sequence with `rows` rows behind `depth` positions.
  double AttentionOfStep(size_t depth, size_t rows) const;
  // `rows` query rows over `kv_rows` positions each, which are read once for all of them.
  double AttentionOf(const AttentionShape& shape, double rows, double kv_rows) const;

  const MachineProfile& profile_;
  const ModelNumbers& model_;
  ThreadUse threads_;
};

// The number at x, of numbers that were measured at `at`, ascending; at least two of both.
double StraightAt(std::span<const size_t> at, std::span<const double> numbers, double x);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_PREDICTED_COSTS_H_
