// A KV cache that sparse attention reads: rows of keys stay rows, and stand in columns, too (state/column_store.h), with sums of values. Both are
// settled at the layer's next cell. Dense rows over it have the bits that they have over a KvLayer.
//
// A layer with a window keeps rows and sums from the granule on in which its window begins; a checkpoint has the sums before that one.
//
// A form that evicts (kH2o, kWindow) cannot go back: EarliestRollback is the length once a row was sparse. kH2o keeps sums of weights
// (state/weight_sums.h). Nothing is dropped for it.
//
// Checkpoint, before the rows:
//   2 * earliest + evicting u64      of a window, or a form that evicts
//   weights f32[kv_heads, length]    of kH2o
//   sums f64[kv_heads, head_dim]     of a window that does not begin in the first granule
#ifndef TIDEMILL_STATE_SPARSE_KV_LAYER_H_
#define TIDEMILL_STATE_SPARSE_KV_LAYER_H_

#include <memory>
#include <span>
#include <vector>

#include "kernels/sparse_attention.h"
#include "state/column_store.h"
#include "state/kv_layer.h"
#include "state/weight_sums.h"

namespace tidemill {

// What became of a layer's sparse rows; sums.
struct SparseCounts {
  uint64_t rows = 0;          // query rows that were sparse
  uint64_t short_rows = 0;    // of them, those that saw no more than k positions
  uint64_t groups = 0;        // of the others: KV heads
  uint64_t dense_groups = 0;  // of them, those whose floor was not met
  double alpha = 0;           // over heads of those rows; `heads` many
  uint64_t heads = 0;
  uint64_t bytes = 0, dense_bytes = 0;  // read, and what dense attention would have read
  uint64_t audits = 0;                  // rows
  double kept_mass = 0, error = 0, agreement = 0;

  SparseCounts& operator+=(const SparseCounts& other) {
    rows += other.rows;
    short_rows += other.short_rows;
    groups += other.groups;
    dense_groups += other.dense_groups;
    alpha += other.alpha;
    heads += other.heads;
    bytes += other.bytes;
    dense_bytes += other.dense_bytes;
    audits += other.audits;
    kept_mass += other.kept_mass;
    error += other.error;
    agreement += other.agreement;
    return *this;
  }
};

class SparseKvLayer : public KvLayer {
 public:
  // `columns` false: sums only, as for Q8_0.
  SparseKvLayer(const KvLayerShape& shape, const KvOptions& options, const SparseForm& form, bool columns);

  const SparseForm& form() const { return form_; }
  // Of committed positions, settled. Valid as long as the spans of Context.
  ContextColumns Columns() const { return columns_.View(); }
  const ColumnStore& column_store() const { return columns_; }
  SparseCounts& counts() { return counts_; }
  // Gives their memory back, until Clear; false: there were none.
  bool GiveUpColumns() { return columns_.GiveUp(); }

  // Of a form that evicts.
  bool evicts() const { return Evicts(form_.kind); }
  // The step in progress has a sparse row: no rollback once it is committed. A step with weight sums needs no such call.
  void MarkEvicting() { step_evicts_ = true; }
  // Of kH2o: WeightSums::OfStep and Committed.
  std::span<float> StepSums(size_t head, size_t slot, size_t rows) { return weights_.OfStep(head, slot, rows); }
  const WeightSums& weight_sums() const { return weights_; }

  SparseKvLayer* AsSparse() override { return this; }

  // What it keeps for good is what a KvLayer keeps, but of a window or a form that evicts: each restores and continues the other's states.
  StateKind checkpoint_kind() const override { return has_word() ? StateKind::kSparseKv : StateKind::kKv; }
  std::vector<uint64_t> Shape() const override;
  std::unique_ptr<LayerState> MakeEmpty() const override;
  size_t EarliestRollback(size_t floor) const override {
    return evicting_ ? length() : KvLayer::EarliestRollback(floor);
  }
  bool may_evict() const override { return evicts(); }
  uint64_t CheckpointBytes(size_t length, size_t earliest) const override;
  uint64_t reserved_bytes() const override;
  uint64_t read_bytes_per_token(size_t length) const override;
  GrowthCounts growth() const override;
  uint64_t GrowthBytes(size_t n, size_t floor) const override;
  uint64_t GrowthBytes(size_t n, size_t step, size_t floor, size_t rollback) const override;
  bool HasRoom(size_t n, size_t floor) const override;
  BlockBytes NewBlock(size_t n, size_t floor) const override;
  BlockBytes RestoredBlock(size_t length, size_t earliest) const override;
  void ForEachBlock(const BlockVisitor& visit) const override;
  Result<void> Reserve(size_t n, size_t floor, BufferArena* arena) override;
  void Commit(size_t n) override;
  void CommitPath(std::span<const uint32_t> path) override;
  size_t num_settle_parts() const override;
  uint64_t settle_bytes() const override;
  void SettlePart(size_t head) override;
  void EndSettle() override;
  void Rollback(size_t to) override;
  void Clear() override;
  void Compact(size_t floor) override;
  void PrepareFork(LayerState& child) override;
  void Fork(LayerState& child) override;
  uint64_t ForkBytes() const override { return columns_.open_bytes() + weights_.bytes(); }
  void AppendTo(std::vector<std::byte>* out, size_t earliest) const override;
  Result<void> ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena* arena) override;
  void Take(LayerState&& other) override;

 private:
  bool has_weights() const { return form_.kind == SparseKind::kH2o; }
  bool has_word() const { return evicts() || shape().window != 0; }  // before all else in a checkpoint
  void CommitWeights(size_t n);

  SparseForm form_;
  bool wants_columns_;
  ColumnStore columns_;
  WeightSums weights_;
  SparseCounts counts_;
  bool evicting_ = false;     // a committed row was sparse
  bool step_evicts_ = false;  // a row of the step is
};

// A layer's state, if it is one; null: it is another.
inline SparseKvLayer* SparseOf(LayerState& state) {
  return KvLayer::Holds(state.checkpoint_kind()) ? static_cast<KvLayer&>(state).AsSparse() : nullptr;
}

}  // namespace tidemill

#endif  // TIDEMILL_STATE_SPARSE_KV_LAYER_H_
