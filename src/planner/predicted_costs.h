// Predicted seconds of steps and of growing, from a machine's profile (t, a, loop, element) and a model's numbers.
//
//   products(rows)  = sum over weights of packed bytes * t(type, rows); in the last layer all but keys, values and what states take is of rows
//                     whose result is read, while its attention and row work are counted for all
//                     of a mixture of experts: min(experts, slots) busy ones with slots / busy rows each, slots = rows * per_token
//   attention(k, n) = KV heads * n * a(head_dim, group, k)
//                     a row of sparse attention: attention(1, n) * SparseCost's bytes / AttentionCost's, where those of keys that are
//                     gathered from rows count kGatheredByte times
//   row work(rows)  = rows * elements * element; where ForRowBlocks makes several blocks, times the part of the busiest thread
//   linear(k)       = of a layer of linear attention, a sequence with k rows, after docs/linear-attention.md:
//                     S t(F32, 2 k) + k (w S t(F32, 1) / m + e t(F32, 1) (m + 1) / 2)
//                     S: bytes of a state, e: of an entry, m: entries to a state, w = seconds to copy a byte / t(F32, 1) of one thread - 2,
//                     since a copy reads both places; 0.05 to 1
//   loops           = loops over threads * loop
//   segment         = products, row work and loops of its rows, memory rows included, which see those before them in it alone; without logits
//                     a weight that the cache gives takes (1 - 1 / kCacheSpeed) * (t(type, 1) - t(type, 128) * rows / 128) less a byte, if that is
//                     more than 0: what reading it from memory takes beyond its arithmetic
//   growing         = bytes copied / copy + bytes freshly written * touch
//
// Between measured rows, head_dims and groups everything is linear. Below the first it is constant; past the last it goes on along the last
// two and never falls.
#ifndef TIDEMILL_PLANNER_PREDICTED_COSTS_H_
#define TIDEMILL_PLANNER_PREDICTED_COSTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/delta_rule.h"
#include "kernels/row_blocks.h"
#include "kernels/sparse_attention.h"
#include "planner/machine_profile.h"
#include "tensor/dtype.h"
#include "tidemill/policies.h"

namespace tidemill {

// A byte of a key whose components are taken one by one from its row, in bytes that dense attention reads. Without columns sparq took 2.4 to 2.6
// times as long as dense attention of 16384 positions (docs/sparse-attention.md), and reads half as many bytes.
inline constexpr double kGatheredByte = 5;

// How much faster a last-level cache gives weights than memory does. Not measured.
inline constexpr double kCacheSpeed = 3;

// Layers whose attention has the same shape and form.
struct AttentionLayers {
  size_t layers = 0;
  AttentionShape shape;     // without bias
  SparseForm sparse = {};   // of its sparse rows; of kDense: it has none
  bool has_columns = true;  // of keys, which those rows read
};

// Weights of one type, of all layers.
struct WeightGroup {
  DType dtype = DType::kF32;
  double bytes = 0;                   // packed; of one expert
  double experts = 1, per_token = 1;  // 1 and 1: every row goes through them
};

// Layers of linear attention, all of one shape.
struct LinearLayers {
  size_t layers = 0;
  DeltaShape shape;
};

struct ModelNumbers {
  std::vector<WeightGroup> weights;  // of the layers
  std::vector<WeightGroup> head;     // that give the logits of a row
  std::vector<WeightGroup> memory;   // of the layers, that a segment's memory rows alone go through
  std::vector<WeightGroup> outputs;  // of the last layer, that those and rows with logits alone go through
  std::vector<AttentionLayers> attention;
  std::optional<size_t> sparse_from = {};  // rows from this position on are sparse; none: those of generated tokens
  LinearLayers linear;
  std::vector<RowWork> row_works;  // of all layers
  size_t loops = 0;                // over threads, of all layers' products and attention
  uint64_t state_row_bytes = 0;    // keys and values of one token in the layers without a window
};

// kAll: the profile's threads.
enum class ThreadUse { kOne, kAll };

class PredictedCosts {
 public:
  // Both outlive this.
  PredictedCosts(const MachineProfile& profile, const ModelNumbers& model, ThreadUse threads = ThreadUse::kAll)
      : profile_(profile), model_(model), threads_(threads) {}

  // One token for each of `batch` sequences at `depth`.
  double DecodeStep(size_t depth, size_t batch) const;
  // One sequence at `depth` has `rows` rows, all with logits; `others` at that depth have one each.
  double CheckStep(size_t depth, size_t rows, size_t others) const;
  // Each of `sequences` at `depth` has `rows` rows; the last `asked` of them have logits.
  double BatchStep(size_t depth, size_t rows, size_t asked, size_t sequences) const;
  // A prompt of `tokens` in chunks, with the logits of its last token.
  double Prefill(size_t tokens, size_t chunk) const;
  // Of a segment of so many rows, or of several side by side whose row work is shared out together: seconds of one. The last `memory_rows` of a
  // segment are memory rows; a part `from_memory` of its weights' bytes comes from memory, the rest from the cache.
  struct SegmentSeconds {
    double products = 0, attention = 0, row_work = 0, loops = 0;
    double total() const { return products + attention + row_work + loops; }
  };
  SegmentSeconds Segment(size_t rows, size_t memory_rows, double from_memory, size_t side_by_side = 1) const;
  double layer_bytes() const;     // packed weights of all layers
  double ReadingWeights() const;  // of all layers once, from memory
  // The caches of `batch` sequences grow from none to `positions`, row by row.
  double Growing(KvPolicy policy, size_t increment, size_t positions, size_t batch) const;

  // Attention of `layers`, whose sparse rows are sparse at any depth: one sequence with `rows` generated rows at `depth`.
  double Attention(std::span<const AttentionLayers> layers, size_t depth, size_t rows) const;
  // A step of all layers of linear attention, were they of that class: one sequence with `rows` rows, in the long run.
  double Linear(const DeltaClass& form, size_t rows) const;
  // The same of one row while there is no state and `entries` entries.
  double LinearStart(DType dtype, double entries) const;
  // w above.
  double WriteFactor() const;

  // c of planner/growth_choice.h: to allocate, fault and copy one row of a sequence.
  double GrowOneRow() const;

 private:
  const OperationSeconds& operations() const { return threads_ == ThreadUse::kOne ? profile_.one : profile_.all; }
  // A step without attention: `rows` rows, `head_rows` of which have logits.
  double RowsOfStep(size_t rows, size_t head_rows) const;
  double Products(const std::vector<WeightGroup>& groups, double rows, double from_memory = 1) const;
  double RowWorks(size_t rows) const;
  double AttentionOfStep(size_t depth, size_t rows) const;
  double DenseRows(const AttentionShape& shape, size_t depth, size_t rows) const;
  // One row, which sees `all` positions where no window hides some.
  double SparseRow(const AttentionLayers& group, size_t all) const;
  // `rows` query rows over `kv_rows` tokens, which are read once for all rows.
  double AttentionOf(const AttentionShape& shape, double rows, double kv_rows) const;

  const MachineProfile& profile_;
  const ModelNumbers& model_;
  ThreadUse threads_;
};

// Interpolates numbers that were measured at `at`, ascending, at least two.
double StraightAt(std::span<const size_t> at, std::span<const double> numbers, double x);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_PREDICTED_COSTS_H_
