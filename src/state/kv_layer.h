// One layer's KV cache: rows of keys and of values for each KV head, in blocks.
//
// Older rows may be in shared blocks, which nobody writes: a fork freezes the tail into one. Newer rows are in our own tail, which grows by
// the policy (state/kv_growth.h). Under `reserve` a PageCommitter commits the rows of the next increment while steps use this one. Rows
// being committed count as allocated; if their memory is missing, only the Reserve that needs them fails. Extents of 2 MiB get a large
// page once every row is used.
//
// Keys are transposed in tiles once kRowsApart committed rows follow a tile or its block is shared, and back before their rows are
// rewritten or moved by part of a tile.
//
// A layer with a window grows by kGrowthRows rows whatever the policy, and needs the rows that one at `floor` sees. Shared blocks go when
// none of their rows is needed. When the tail is full, needed rows move to the front of the block if at least kGrowthRows / 2 rows become
// free beyond the step; else a larger block replaces it. So a tail has at most
// needed + step + 2 * kGrowthRows  rows, and at least kGrowthRows / 2 positions lie between two moves.
#ifndef TIDEMILL_STATE_KV_LAYER_H_
#define TIDEMILL_STATE_KV_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/page_committer.h"
#include "kernels/attention.h"
#include "state/kv_block.h"
#include "state/kv_growth.h"
#include "state/layer_state.h"
#include "tensor/dtype.h"

namespace tidemill {

// What the KV layers of a sequence have in common.
struct KvOptions {
  DType dtype = DType::kF16;  // F32, F16, BF16 or Q8_0
  KvGrowth growth = {};
  size_t max_length = 1;
  // Who commits pages ahead of their use under `reserve`; null: the calls that need them. Outlives all blocks.
  PageCommitter* pages = nullptr;
};

class KvLayer : public LayerState {
 public:
  static constexpr StateKind kKind = StateKind::kKv;
  static constexpr size_t kGrowthRows = 256;
  // So many of the last rows may be rolled back without transposing a key.
  static constexpr size_t kRowsApart = 16;

  KvLayer(const KvLayerShape& shape, const KvOptions& options)
      : shape_(shape),
        options_(options),
        policy_(shape.window == 0 ? options.growth : KvGrowth{.increment = kGrowthRows}),
        spans_(1) {
    TIDEMILL_CHECK(shape.head_dim % InfoOf(options.dtype).block_elements == 0);
  }

  DType dtype() const { return options_.dtype; }
  const KvLayerShape& shape() const { return shape_; }

  // Where the step's rows go: row i of head h is h * head_stride + i * head_dim elements from k and v, whole blocks of them.
  // Valid until the sequence's next Reserve, Commit, Rollback, Fork, Compact or Restore; so are the spans of Context.
  struct StepRows {
    std::byte* k = nullptr;
    std::byte* v = nullptr;
    size_t head_stride = 0;
  };
  StepRows View();

  // Positions [first, length + step_rows): kept rows and the first rows of the step; first is 0 without a window. Also valid until the
  // next call only.
  std::span<const KvSpan> Context(size_t step_rows);

  StateKind kind() const override { return kKind; }
  std::vector<uint64_t> Shape() const override {
    return {static_cast<uint64_t>(options_.dtype), shape_.kv_heads, shape_.head_dim, shape_.window};
  }
  std::unique_ptr<LayerState> MakeEmpty() const override { return std::make_unique<KvLayer>(shape_, options_); }
  size_t EarliestRollback(size_t floor) const override {
    return floor < shape_.window || shape_.window == 0 ? 0 : floor;
  }
  uint64_t CheckpointBytes(size_t length, size_t earliest) const override;
  uint64_t reserved_bytes() const override;
  uint64_t read_bytes_per_token(size_t length) const override {
    return PositionBytes() * (shape_.window == 0 ? length : std::min(length, shape_.window));
  }
  // `reserve` falls back to `geometric` where the address space is short.
  GrowthCounts growth() const override { return counts_; }
  uint64_t GrowthBytes(size_t n, size_t floor) const override;
  uint64_t GrowthBytes(size_t n, size_t step, size_t floor, size_t rollback) const override;
  // It may still commit pages, or move rows to the front with a window.
  bool HasRoom(size_t n, size_t floor) const override;
  BlockBytes NewBlock(size_t n, size_t floor) const override;
  BlockBytes RestoredBlock(size_t length, size_t earliest) const override {
    const size_t first = shape_.FirstSeen(earliest), rows = length - first;
    return BytesOf(first, rows, policy_.Capacity(first, rows, options_.max_length - first));
  }
  Result<void> Reserve(size_t n, size_t floor, BufferArena* arena) override;
  void Commit(size_t n) override;
  void CommitPath(std::span<const uint32_t> path) override;
  size_t num_settle_parts() const override { return path_.empty() && tiles_due() == 0 ? 0 : shape_.kv_heads; }
  uint64_t settle_bytes() const override;
  void SettlePart(size_t head) override;
  void EndSettle() override;
  void Rollback(size_t to) override;
  void Clear() override;
  void Compact(size_t floor) override;  // keeps the larger block if there is no memory for a smaller one
  void PrepareFork(LayerState& child) override;
  void Fork(LayerState& child) override;
  void AppendTo(std::vector<std::byte>* out,
                size_t earliest) const override;  // for K, V: for each head: rows [first, length)
  Result<void> ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena* arena) override;
  void Take(LayerState&& other) override;

 private:
  struct SharedRows {
    std::shared_ptr<const KvBlock> block;
    size_t first = 0, end = 0;  // its first rows are positions [first, end)
  };

  uint64_t PositionBytes() const { return shape_.PositionBytes(options_.dtype); }
  size_t tail_rows() const { return length_ - tail_first_; }
  size_t tail_ready() const {
    return tail_ == nullptr ? 0 : tail_->ready() - tail_rows();
  }  // rows after the committed ones
  bool IsReadyFor(size_t n) const { return tail_ != nullptr && n <= tail_ready(); }
  bool FitsTail(size_t n) const { return tail_ != nullptr && n <= tail_->capacity() - tail_rows(); }
  size_t first_kept(size_t floor) const {
    return std::max(tail_first_, shape_.FirstSeen(floor));
  }  // in a tail made for a step

  // Rows of the block that Reserve would make; none: it makes none.
  std::optional<size_t> NewCapacity(size_t n, size_t floor) const;
  bool PagesStay() const { return policy_.policy == KvPolicy::kPaged && tail_rows() != 0; }  // of `paged`
  size_t PageCapacity(size_t n) const { return policy_.Capacity(length_, n, options_.max_length - length_); }
  BlockBytes BytesOf(size_t first, size_t rows, size_t capacity) const;

  // A block with room for `capacity` rows from position `first` on, `rows` of them at once.
  Result<void> SetTail(size_t first, size_t rows, size_t capacity, BufferArena* arena);
  // Rows allocated in a block from position `first` on once `rows` of it are wanted: one increment ahead of use, only expected rows.
  // A PageCommitter is asked while a quarter of the increment is left, more than it needs.
  size_t HeldRows(size_t first, size_t held, size_t rows, size_t capacity) const;
  // Keeps the tail as a block of its own; a new one begins after it.
  Result<void> StartPage(size_t n, BufferArena* arena);

  size_t tiles_due() const;        // whole tiles that a settle transposes
  void DropShared(size_t needed);  // blocks without a row from `needed` on
  void AlignTiles(size_t first);   // transposes back where a tail that begins at position `first` would cut a tile

  KvLayerShape shape_;
  KvOptions options_;
  KvGrowth policy_;
  GrowthCounts counts_;
  size_t length_ = 0;               // committed positions
  std::vector<SharedRows> shared_;  // oldest first, without gaps, up to the tail
  std::shared_ptr<KvBlock> tail_;   // ours alone
  size_t tail_first_ = 0;           // the position of its row 0
  std::span<const uint32_t> path_;  // of the last commit, while its rows have not moved
  std::vector<KvSpan> spans_;       // room for all of them, so that Context allocates nothing
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_KV_LAYER_H_
