// The KV cache of a sequence: one KvLayer for each layer, and the keys of the positions.
//
// A fork freezes committed rows into shared blocks and gives each side its own tail.
//
// Layers with a window drop rows. Two bounds hold for every growth policy:
//   Rollback   by up to 2 * draft_rows from the greatest length so far: all that `to` and later positions see is kept
//   Checkpoint what is needed to roll back by draft_rows: window - 1 + draft_rows rows, or all
// They differ so that a checkpoint's bytes follow from the sequence alone, even after a draft was rejected. After a deeper rollback, or
// a rollback of a sequence just restored, a checkpoint may have fewer rows: at least window - 1, and `earliest` says so.
//
// Checkpoint (little-endian):
//   magic u8[8] "TMKVCP02"; model u64; numeric_class u64; tokens u64; shape u64, a hash of KvShape but for the length;
//   length u64; earliest u64, which the restored state can roll back to; checksum u64, of all that follows;
//   keys u64[length]; then for each layer K, V: for each KV head: rows [length - first, head_dim] dtype, where first is 0, or with a
//   window the first position that one at `earliest` sees
#ifndef TIDEMILL_STATE_KV_CACHE_H_
#define TIDEMILL_STATE_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "state/kv_layer.h"
#include "state/sequence_state.h"
#include "tensor/dtype.h"

namespace tidemill {

struct KvShape {
  std::vector<KvLayerShape> layers;
  DType dtype = DType::kF16;  // F32, F16, BF16 or Q8_0
  KvGrowth growth = {};
  size_t max_length = 1;
  size_t draft_rows = 64;  // of the longest draft that may be committed and rolled back; matters with windows only
  uint64_t model = 0;      // for identity()
  uint64_t numeric_class = 0;
  PageCommitter* pages = nullptr;  // see KvLayer; not a part of the shape that a checkpoint has
};

class KvCache : public SequenceState {
 public:
  static constexpr size_t kCheckpointHeaderBytes = 64;
  // Blocks of several layers share a mapping of this size, so that large pages can back them. Attention at depth 8192 takes 453 to
  // 537 us instead of 552 to 622. Layers grow one by one and return the mappings that they leave.
  static constexpr size_t kArenaBytes = size_t{8} << 20;

  explicit KvCache(const KvShape& shape);

  size_t length() const override { return keys_.size(); }
  size_t max_length() const override { return shape_.max_length; }
  size_t num_layers() const override { return layers_.size(); }
  LayerState& layer(size_t index) override { return layers_[index]; }
  Result<void> Reserve(size_t n) override;
  uint64_t GrowthBytes(size_t n) const override { return GrowthBytes(n, n); }
  uint64_t GrowthBytes(size_t n, size_t step) const override;
  bool HasRoom(size_t n) const override;
  void Commit(std::span<const RowKey> keys) override;
  void CommitPath(std::span<const uint32_t> path, std::span<const RowKey> keys) override;
  size_t earliest_rollback() const override { return floor_ < smallest_window_ ? 0 : floor_; }
  Result<void> Rollback(size_t to) override;
  Result<std::unique_ptr<SequenceState>> Fork() override;
  void Compact() override;
  void Clear() override;
  Result<std::vector<std::byte>> Checkpoint() const override;
  Result<void> Restore(std::span<const std::byte> checkpoint) override;
  StateIdentity identity() const override { return {shape_.model, shape_.numeric_class, hashes_.back()}; }
  StateBytes bytes() const override;
  GrowthCounts growth() const override;

  const KvShape& shape() const { return shape_; }

 private:
  void AppendKeys(std::span<const RowKey> keys);
  size_t CheckpointEarliest() const;  // the header's `earliest`
  uint64_t ShapeHash() const;
  Result<void> RestoreOrThrow(std::span<const std::byte> checkpoint);  // throws std::bad_alloc

  KvShape shape_;
  std::vector<KvLayer> layers_;
  size_t smallest_window_;    // of all layers; SIZE_MAX: none has a window
  size_t floor_ = 0;          // past a window no rollback goes below it, and rows that it does not see are not needed
  std::vector<RowKey> keys_;  // of committed positions
  std::vector<uint64_t> hashes_;  // hashes_[i]: the chain over keys_[0, i)
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_KV_CACHE_H_
