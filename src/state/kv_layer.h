// One layer's KV cache: rows of keys and of values for each KV head, in blocks.
//
// Older rows may be in shared blocks, which others append to and we only read. Newer rows are in our tail, which grows by the policy (state/kv_growth.h). Under
// `reserve` a PageCommitter commits the rows of the next increment while steps use this one. Rows being committed count as allocated; if
// their memory is missing, only the Reserve that needs them fails. Extents of 2 MiB get a large page once every row is used.
//
// A fork copies no row. The child shares the rows of our tail, and we append behind them: rows that others see stay where they are, so
// that a rollback below them, or a tail that is full, begins another block. What is left alone with a block appends to it. A tail behind
// shared rows begins small and doubles, up to kGrowthRows; under `paged` only its first page is small. Past kMaxSpans blocks, older ones
// become one of at most kGrowthRows rows, and all who share them take that one instead at their next Reserve. So after any number of
// forks there are at most kMaxSpans + 2 * rows / kGrowthRows + 2 blocks; under `paged` nothing moves, and each fork may leave one.
// What came of such a merge is never written again: holders of the small blocks may still come to share it.
//
// Keys are transposed in tiles, unless `key_tiles` is false, once kRowsApart committed rows follow a tile, and back before their rows are
// rewritten or moved by part of a tile.
//
// A layer with a window grows by kGrowthRows rows whatever the policy, and needs the rows that one at `floor` sees, from a multiple of
// `drop_rows` on. Shared blocks go when none of their rows is needed. When the tail is full, needed rows move to the front of the block if
// at least kGrowthRows / 2 rows become free beyond the step; else a larger block replaces it. So a tail has at most
// needed + step + 2 * kGrowthRows  rows, and at least kGrowthRows / 2 positions lie between two moves, but of small tails.
#ifndef TIDEMILL_STATE_KV_LAYER_H_
#define TIDEMILL_STATE_KV_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/page_committer.h"
#include "kernels/attention.h"
#include "state/kv_block.h"
#include "state/kv_growth.h"
#include "state/layer_state.h"
#include "state/state_ledger.h"
#include "tensor/dtype.h"

namespace tidemill {

// What the KV layers of a sequence have in common.
struct KvOptions {
  DType dtype = DType::kF16;  // F32, F16, BF16 or Q8_0
  KvGrowth growth = {};
  size_t max_length = 1;
  // Who commits pages ahead of their use under `reserve`; null: the calls that need them. Outlives all blocks.
  PageCommitter* pages = nullptr;
  StateLedger* ledger = nullptr;  // who counts blocks; null: nobody. Outlives all of them
  bool key_tiles = true;          // false: keys stay rows
  size_t drop_rows = 1;           // what is before a window goes in multiples of so many positions
};

class SparseKvLayer;

class KvLayer : public LayerState {
 public:
  static constexpr StateKind kKind = StateKind::kKv;
  static constexpr size_t kGrowthRows = 256;
  // So many of the last rows may be rolled back without transposing a key.
  static constexpr size_t kRowsApart = 16;
  static constexpr size_t kMaxSpans = 16;

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
  // Valid until the next Reserve, Commit, Rollback, Fork, Compact or Restore of the sequence, or of one that it shares rows with; so are
  // the spans of Context.
  struct StepRows {
    std::byte* k = nullptr;
    std::byte* v = nullptr;
    size_t head_stride = 0;
  };
  StepRows View();

  // Where row `slot` of the step stands, in the terms of Context.
  size_t PositionOf(size_t slot) const { return length_ + slot; }
  // Positions [first, length + step_rows): kept rows and the first rows of the step; first is 0 without a window.
  std::span<const KvSpan> Context(size_t step_rows);

  // The first rows of the newest block, which others see.
  size_t seen_rows() const { return tail_.use_count() > 1 ? seen_rows_ : 0; }

  // Whether a state whose checkpoints are of that kind is a KvLayer.
  static constexpr bool Holds(StateKind kind) {
    return kind == kKind || kind == StateKind::kSparseKv || kind == StateKind::kSegmentKv;
  }

  virtual SparseKvLayer* AsSparse() { return nullptr; }  // the same, if it is one

  StateKind checkpoint_kind() const override { return kKind; }
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
    const size_t first = FirstNeeded(earliest), rows = length - first;
    return BytesOf(first, rows, policy_.Capacity(first, rows, options_.max_length - first));
  }
  void ForEachBlock(const BlockVisitor& visit) const override;
  Result<void> Reserve(size_t n, size_t floor, BufferArena* arena) override;
  void Commit(size_t n) override;
  void CommitPath(std::span<const uint32_t> path) override;
  size_t num_settle_parts() const override { return path_.empty() && tiles_due() == 0 ? 0 : shape_.kv_heads; }
  uint64_t settle_bytes() const override;
  void SettlePart(size_t head) override;
  void EndSettle() override;
  void Rollback(size_t to) override;
  void Clear() override;
  // What nobody shares, into blocks of at most kGrowthRows rows without unused capacity.
  void Compact(size_t floor) override;
  void PrepareFork(LayerState& child) override;
  void Fork(LayerState& child) override;
  void AppendTo(std::vector<std::byte>* out,
                size_t earliest) const override;  // for K, V: for each head: rows [first, length)
  Result<void> ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena* arena) override;
  void Take(LayerState&& other) override;

 protected:
  size_t length() const { return length_; }
  const KvOptions& options() const { return options_; }
  uint64_t PositionBytes() const { return shape_.PositionBytes(options_.dtype); }
  // The first position that is kept while one at `position` may be needed.
  size_t FirstNeeded(size_t position) const {
    const size_t first = shape_.FirstSeen(position);
    return first - first % options_.drop_rows;
  }
  // Calls f(span) for the committed rows, oldest first.
  template <typename F>
  void ForEachSpan(const F& f) const {
    for (const SharedRows& shared : shared_) f(shared.block->Span(shared.first, shared.rows()));
    if (tail_rows() != 0) f(std::as_const(*tail_).Span(tail_first_, tail_rows()));
  }

 private:
  struct SharedRows {
    std::shared_ptr<KvBlock> block;
    size_t first = 0, end = 0;  // its first rows are positions [first, end)

    size_t rows() const { return end - first; }
  };
  static constexpr size_t kFewestRows = 4;  // of a tail behind shared rows

  std::shared_ptr<KvBlock> MakeBlock(size_t capacity) const {
    return std::make_shared<KvBlock>(shape_, options_.dtype, capacity, options_.ledger, options_.key_tiles);
  }
  size_t tail_rows() const { return length_ - tail_first_; }
  size_t tail_ready() const {
    return tail_ == nullptr ? 0 : tail_->ready() - tail_rows();
  }  // rows after the committed ones
  bool IsReadyFor(size_t n) const { return tail_ != nullptr && n <= tail_ready(); }
  bool FitsTail(size_t n) const { return tail_ != nullptr && n <= tail_->capacity() - tail_rows(); }
  // Whether n rows fit behind the last shared rows, in a block that nobody else has.
  bool FitsLastBlock(size_t n) const {
    return tail_ == nullptr && !shared_.empty() && shared_.back().block.use_count() == 1 &&
           !shared_.back().block->is_merged() && n <= shared_.back().block->capacity() - shared_.back().rows();
  }
  // Whether a tail from `first` on begins small.
  bool IsSmall(size_t first, size_t rows, size_t floor) const {
    return rows < kGrowthRows && first > FirstNeeded(floor) && !shared_.empty() &&
           (policy_.policy != KvPolicy::kPaged || shared_.back().block.use_count() > 1);
  }
  size_t first_kept(size_t floor) const {
    return std::max(tail_first_, FirstNeeded(floor));
  }  // in a tail made for a step

  // Rows of the block that Reserve would make; none: it makes none.
  std::optional<size_t> NewCapacity(size_t n, size_t floor) const;
  // Whether rows that do not fit begin another block: of `paged`, or behind a tail that others see.
  bool BlockStays() const { return tail_rows() != 0 && (policy_.policy == KvPolicy::kPaged || seen_rows() != 0); }
  // Of a tail from position `first` on.
  size_t Capacity(size_t first, size_t rows, size_t floor) const;
  size_t NextCapacity(size_t n) const;  // of one behind the tail
  BlockBytes BytesOf(size_t first, size_t rows, size_t capacity) const;

  Result<void> ReserveTail(size_t n, size_t floor, BufferArena* arena);
  // A block with room for `capacity` rows from position `first` on, `rows` of them at once; in memory of its own, or in addresses.
  Result<void> SetTail(size_t first, size_t rows, size_t capacity, bool in_addresses, BufferArena* arena);
  // Rows allocated in a block from position `first` on once `rows` of it are wanted: one increment ahead of use, only expected rows.
  // A PageCommitter is asked while a quarter of the increment is left, more than it needs.
  size_t HeldRows(size_t first, size_t held, size_t rows, size_t capacity) const;
  // Keeps the tail as a shared block; a new one begins after it.
  Result<void> StartBlock(size_t n, size_t floor, BufferArena* arena);
  // Makes the last shared block the tail.
  void TakeLastBlock();
  // shared_[begin, end) that may become one block, of `rows` rows.
  struct Run {
    size_t begin = 0, end = 0, rows = 0;
  };
  Run MergeableRun(size_t floor) const;
  void Merge(size_t floor);  // those, where there is memory for it
  void TakeMerged();         // the blocks that others made of shared ones

  size_t tiles_due() const;        // whole tiles that a settle transposes
  void DropShared(size_t needed);  // blocks without a row from `needed` on
  void AlignTiles(size_t first);   // transposes back where a tail that begins at position `first` would cut a tile

  KvLayerShape shape_;
  KvOptions options_;
  KvGrowth policy_;
  GrowthCounts counts_;
  size_t length_ = 0;               // committed positions
  std::vector<SharedRows> shared_;  // oldest first, without gaps, up to the tail
  std::shared_ptr<KvBlock> tail_;   // only we append to it
  size_t tail_first_ = 0;           // the position of its row 0
  size_t seen_rows_ = 0;            // of the tail, at the last fork
  std::span<const uint32_t> path_;  // of the last commit, while its rows have not moved
  std::vector<KvSpan> spans_;       // room for all of them, so that Context allocates nothing
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_KV_LAYER_H_
