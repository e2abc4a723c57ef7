// A KV cache that sparse attention reads: rows of keys stay rows, and stand in columns, too (state/column_store.h).
//
// A form that evicts (kH2o, kWindow) cannot go back: EarliestRollback is the length once a row was sparse.
#ifndef TIDEMILL_STATE_SPARSE_KV_LAYER_H_
#define TIDEMILL_STATE_SPARSE_KV_LAYER_H_

#include "kernels/sparse_attention.h"
#include "state/column_store.h"
#include "state/kv_layer.h"

namespace tidemill {

// What became of a layer's sparse rows; sums.
struct SparseCounts {
  uint64_t rows = 0;         // query rows that were sparse
  uint64_t dense_rows = 0;   // of them, those that saw no more than k positions
  uint64_t groups = 0;       // of the others: KV heads
  uint64_t dense_groups = 0; // of them, those whose floor was not met
  double alpha = 0;          // over heads of those rows; `heads` many
  uint64_t heads = 0;
  uint64_t bytes = 0, dense_bytes = 0;  // read, and what dense attention would have read
  uint64_t audits = 0;                  // rows
  double kept_mass = 0, error = 0, agreement = 0;
};

class SparseKvLayer : public KvLayer {
 public:
  static constexpr StateKind kKind = StateKind::kSparseKv;

  SparseKvLayer(const KvLayerShape& shape, const KvOptions& options, const SparseForm& form, bool columns);

  const SparseForm& form() const;
  ContextColumns Columns() const;
  SparseCounts& counts();
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_SPARSE_KV_LAYER_H_
