// The key/value cache of a sequence: for every layer and KV head, rows [capacity, head_dim] of keys and of values, contiguous.
//
//   Block of one layer:  K [kv_heads, capacity, head_dim] dtype,  V the same          capacity is the stride between heads
//
// Grows in chunks of kGrowthRows rows, layer by layer, by copying into a larger block. A fork freezes what is committed into a
// shared prefix (a list of blocks) and gives each side a tail of its own.
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

#include "base/aligned_buffer.h"
#include "kernels/attention.h"
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

  size_t RowBytes() const { return head_dim * InfoOf(dtype).block_bytes; }  // one head of one position
  size_t PositionBytes() const { return 2 * kv_heads * RowBytes(); }        // K and V of one position in one layer
};

class KvCache;

// One layer's rows as kernels see them.
class KvLayer : public LayerState {
 public:
  StateKind kind() const override { return StateKind::kKvCache; }
  DType dtype() const;

  // Where the step's rows go: row i of head h is h * head_stride + i * head_dim elements from k and v.
  // Valid until the sequence's next Reserve, Commit, Rollback, Fork, Compact or Restore; so are the spans of Context.
  struct StepRows {
    std::byte* k = nullptr;
    std::byte* v = nullptr;
    size_t head_stride = 0;
  };
  StepRows View();

  // Positions [0, length + step_rows): what is committed and the first rows of the step. Valid until the next call, too.
  std::span<const KvSpan> Context(size_t step_rows);

 private:
  friend class KvCache;
  struct Block {
    AlignedBuffer memory;  // K, then V
    size_t capacity = 0;   // rows
  };

  const KvCache* cache_ = nullptr;  // owns us
  std::shared_ptr<Block> tail_;
  std::vector<std::shared_ptr<const Block>> prefix_;  // one for each of cache_->prefix_rows_
  std::vector<KvSpan> spans_;                         // room for all of them, so that Context allocates nothing
};

class KvCache : public SequenceState {
 public:
  static constexpr size_t kGrowthRows = 256;
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
  friend class KvLayer;
  using Block = KvLayer::Block;

  size_t tail_rows() const { return length() - prefix_end_; }
  // Address of row `row` of K (or V) of one head in a block.
  template <typename BlockOrConst>
  auto* RowAt(BlockOrConst& block, bool value, size_t head, size_t row) const {
    return block.memory.data() + (((value ? shape_.kv_heads : 0) + head) * block.capacity + row) * shape_.RowBytes();
  }
  Result<void> RestoreOrThrow(std::span<const std::byte> checkpoint);  // throws std::bad_alloc
  Result<void> SetTailCapacity(size_t capacity);  // of every layer that has another one, keeping its rows

  KvShape shape_;
  std::vector<KvLayer> layers_;
  std::vector<size_t> prefix_rows_;  // rows used of each frozen block, oldest first
  size_t prefix_end_ = 0;            // their sum: the position of the tail's row 0
  std::vector<RowKey> keys_;         // of committed positions
  std::vector<uint64_t> hashes_;     // hashes_[i]: the chain over keys_[0, i)
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_KV_CACHE_H_
