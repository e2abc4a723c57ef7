// The key/value cache of a sequence: one KvLayer for each layer, and the keys of the positions.
//
// A fork freezes what is committed into shared blocks and gives each side a tail of its own.
//
// Checkpoint (little-endian):
//   magic u8[8] "TMKVCP01"; model u64; numeric_class u64; tokens u64; layers u32; kv_heads u32; head_dim u32; dtype u32;
//   length u64; checksum u64, of all that follows;
//   keys u64[length]; then for each layer K, V: for each KV head: rows [length, head_dim] dtype
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
  size_t layers = 1;
  size_t kv_heads = 1;
  size_t head_dim = 1;
  DType dtype = DType::kF16;  // F32, F16 or BF16
  size_t max_length = 1;
  uint64_t model = 0;  // for identity()
  uint64_t numeric_class = 0;

  size_t RowBytes() const { return KvLayerShape{kv_heads, head_dim}.RowBytes(dtype); }
  size_t PositionBytes() const { return KvLayerShape{kv_heads, head_dim}.PositionBytes(dtype); }
};

class KvCache : public SequenceState {
 public:
  static constexpr size_t kCheckpointHeaderBytes = 64;

  explicit KvCache(const KvShape& shape);

  size_t length() const override { return keys_.size(); }
  size_t max_length() const override { return shape_.max_length; }
  size_t num_layers() const override { return shape_.layers; }
  LayerState& layer(size_t index) override { return layers_[index]; }
  Result<void> Reserve(size_t n) override;
  void Commit(std::span<const RowKey> keys) override;
  void CommitPath(std::span<const uint32_t> path, std::span<const RowKey> keys) override;
  size_t earliest_rollback() const override { return 0; }
  Result<void> Rollback(size_t to) override;
  Result<std::unique_ptr<SequenceState>> Fork() override;
  void Compact() override;
  Result<std::vector<std::byte>> Checkpoint() const override;
  Result<void> Restore(std::span<const std::byte> checkpoint) override;
  StateIdentity identity() const override { return {shape_.model, shape_.numeric_class, hashes_.back()}; }
  StateBytes bytes() const override;

  const KvShape& shape() const { return shape_; }

 private:
  void AppendKeys(std::span<const RowKey> keys);
  Result<void> RestoreOrThrow(std::span<const std::byte> checkpoint);  // throws std::bad_alloc

  KvShape shape_;
  std::vector<KvLayer> layers_;
  std::vector<RowKey> keys_;      // of committed positions
  std::vector<uint64_t> hashes_;  // hashes_[i]: the chain over keys_[0, i)
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_KV_CACHE_H_
