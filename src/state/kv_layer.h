// One layer's part of a key/value cache: rows of keys and of values for each KV head.
//
//   Block:  K [kv_heads, capacity, head_dim] dtype,  V the same          capacity is the stride between heads
//
// Keys that nothing is expected to write any more stand across, in tiles of 16 rows (kernels/key_tiles.h), in types that have them. A tile is
// turned when kRowsApart committed rows are behind it or its block is shared, and back when its rows are to be written again, or moved by
// no whole number of tiles.
//
// Older rows may be in shared blocks, which nobody writes any more: a fork freezes the tail into one. Newer rows are in a tail of our
// own, which grows as the policy says (state/kv_growth.h).
// Under `reserve` a PageCommitter commits the rows of the next period while steps use this one. Rows that are on their way count as held;
// if there is no memory for them, the Reserve that needs them fails, and no sooner. Extents of 2 MiB in which every row is used get a page
// of that size; the rest never does.
//
// A layer with a window forgets, and grows by kGrowthRows rows whatever the policy. The sequence says from which position on rows are needed;
// what stands before goes when there is a reason: shared blocks when none of their rows is needed, rows of the tail when it is full. Then
// the needed ones move to the front of the block, where kGrowthRows / 2 rows at least become free beyond the step; else the block is
// replaced by one with more. So a tail has at most  needed + step + 2 * kGrowthRows  rows, and between two moves lie kGrowthRows / 2
// positions at least.
#ifndef TIDEMILL_STATE_KV_LAYER_H_
#define TIDEMILL_STATE_KV_LAYER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/byte_reader.h"
#include "base/check.h"
#include "base/page_committer.h"
#include "base/reserved_memory.h"
#include "kernels/attention.h"
#include "state/kv_growth.h"
#include "state/sequence_state.h"
#include "tensor/dtype.h"

namespace tidemill {

struct KvLayerShape {
  size_t kv_heads = 1;
  size_t head_dim = 1;  // a multiple of the type's block_elements
  size_t window = 0;    // a row sees the last `window` positions, itself included; 0: all

  size_t RowBytes(DType dtype) const { return tidemill::RowBytes(dtype, head_dim); }  // one head of one position
  size_t PositionBytes(DType dtype) const { return 2 * kv_heads * RowBytes(dtype); }  // K and V of one position
  // The first position that a row at `position` sees.
  size_t FirstSeen(size_t position) const { return window == 0 ? 0 : position - std::min(position, window - 1); }
  friend bool operator==(const KvLayerShape&, const KvLayerShape&) = default;
};

class KvLayer : public LayerState {
 public:
  static constexpr size_t kGrowthRows = 256;
  // A large page makes spare rows resident. So a block has some only where rows are many, when pages begin to matter, and at most three
  // times as many are spare. Rows that the sequence is expected to have are none. A short request holds what it writes, whatever its
  // context and policy. Kept from large pages up to 1024 rows, 8 sequences of SmolLM2 at 512 positions took 1.13 times as long.
  static constexpr size_t kFewestLargePageRows = 256;
  static constexpr uint64_t kMostSpare = 3;  // times the others
  // So many of the last rows may be rolled back without a key being turned.
  static constexpr size_t kRowsApart = 16;

  // `pages`: who commits pages ahead of their use under `reserve`; null: the calls that need them. Outlives all blocks.
  KvLayer(const KvLayerShape& shape, DType dtype, size_t max_length, const KvGrowth& growth, PageCommitter* pages)
      : shape_(shape),
        dtype_(dtype),
        max_length_(max_length),
        policy_(shape.window == 0 ? growth : KvGrowth{.period = kGrowthRows}),
        pages_(pages),
        spans_(1) {
    TIDEMILL_CHECK(shape.head_dim % InfoOf(dtype).block_elements == 0);
  }

  StateKind kind() const override { return StateKind::kKvCache; }
  DType dtype() const { return dtype_; }
  const KvLayerShape& shape() const { return shape_; }
  // `reserve` falls back to `geometric` where the address space is short.
  const GrowthCounts& growth() const { return counts_; }

  // Where the step's rows go: row i of head h is h * head_stride + i * head_dim elements from k and v, whole blocks of them.
  // Valid until the sequence's next Reserve, Commit, Rollback, Fork, Compact or Restore; so are the spans of Context.
  struct StepRows {
    std::byte* k = nullptr;
    std::byte* v = nullptr;
    size_t head_stride = 0;
  };
  StepRows View();

  // Positions [first, length + step_rows): what is kept and the first rows of the step; first is 0 in a layer without a window. Valid
  // until the next call, too.
  std::span<const KvSpan> Context(size_t step_rows);

 private:
  friend class KvCache;  // calls what follows; it knows the contract, a layer knows its rows

  struct Block {
    Block() = default;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() {
      if (pages != nullptr) pages->Forget(job);
    }

    AlignedBuffer memory;            // K, then V
    ReservedMemory reserved;         // the same, under `reserve`
    size_t capacity = 0;             // rows
    size_t ready = 0;                // of them, those that can be written
    size_t held = 0;                 // as many, and those whose pages are on their way
    size_t across = 0;               // the first ones, whose keys stand across
    PageCommitter* pages = nullptr;  // who does `job`, where there may be one
    PageCommitter::Job job;          // rows [ready, held), where these differ

    std::byte* data() { return reserved.size() != 0 ? reserved.data() : memory.data(); }
    const std::byte* data() const { return reserved.size() != 0 ? reserved.data() : memory.data(); }
  };
  struct SharedRows {
    std::shared_ptr<const Block> block;
    size_t first = 0, end = 0;  // its first rows are positions [first, end)
  };

  size_t RowBytes() const { return shape_.RowBytes(dtype_); }
  uint64_t PositionBytes() const { return shape_.PositionBytes(dtype_); }
  size_t tail_rows() const { return length_ - tail_first_; }
  bool IsReadyFor(size_t n) const { return tail_ != nullptr && n <= tail_->ready - tail_rows(); }
  uint64_t reserved_bytes() const;
  // Address of row `row` of K (or V) of one head in a block.
  template <typename BlockOrConst>
  auto* RowAt(BlockOrConst& block, bool value, size_t head, size_t row) const {
    return block.data() + (((value ? shape_.kv_heads : 0) + head) * block.capacity + row) * RowBytes();
  }

  // Rows of the block that Reserve would need, none where it needs no new one.
  std::optional<size_t> NewCapacity(size_t n, size_t needed) const;
  bool PagesStay() const { return policy_.policy == KvPolicy::kPaged && tail_rows() != 0; }  // of `paged`
  // Of a block that Reserve makes, or ReadRows, in memory of its own: zeros for none. UINT64_MAX where bytes cannot be counted.
  struct BlockBytes {
    uint64_t all = 0, used = 0;
    size_t rows = 0;  // that are used, or expected to be

    void Add(const BlockBytes& other) {  // no further than the largest
      all = std::max(all, all + other.all);
      used = std::max(used, used + other.used);
      rows = std::max(rows, other.rows);
    }
    BufferArena::Pages pages() const {
      const bool large = rows >= kFewestLargePageRows && (all - used) / kMostSpare <= used;
      return large ? BufferArena::Pages::kLarge : BufferArena::Pages::kSmall;
    }
  };
  BlockBytes BytesOf(size_t first, size_t rows, size_t capacity) const;
  BlockBytes NewBlock(size_t n, size_t needed) const;
  BlockBytes RestoredBlock(size_t first, size_t length) const {
    return BytesOf(first, length - first, policy_.Capacity(first, length - first, max_length_ - first));
  }
  // What Reserve would add to reserved_bytes(), UINT64_MAX where that cannot be counted.
  uint64_t GrowthBytes(size_t n, size_t needed) const;
  // Of n rows in steps of `step`, fewer, where up to `rollback` rows may be taken back; at least what it would add.
  uint64_t GrowthBytes(size_t n, size_t step, size_t needed, size_t rollback) const;
  // Whether Reserve makes no block for n rows: under `reserve` pages come, behind a window rows may move to the front.
  bool HasRoom(size_t n, size_t needed) const;

  // These throw std::bad_alloc, too; then no needed row has changed. `needed`: the first position whose row must stay.
  // `arena`: where a new block is taken from; null: memory of its own.
  Result<void> Reserve(size_t n, size_t needed, BufferArena* arena);
  // A block with room for `capacity` rows from position `first` on, `rows` of them at once.
  Result<void> SetTail(size_t first, size_t rows, size_t capacity, BufferArena* arena);
  // Rows of a block from position `first` on that are held once `rows` of it are wanted: under `reserve` a period ahead of their use, but none
  // that is not expected. Where somebody commits them meanwhile, they are asked for while a quarter of the period is still there: more
  // steps than that can take.
  size_t HeldRows(size_t first, size_t held, size_t rows, size_t capacity) const {
    const size_t expected = policy_.expected - std::min(policy_.expected, first);
    const size_t most = policy_.expected != 0 && expected >= rows ? std::min(expected, capacity) : capacity;
    const size_t lead = pages_ == nullptr ? 0 : (policy_.period - 1) / 4 + 1;
    if (rows <= held && (held >= most || held - rows >= lead)) return held;
    return policy_.period < most - rows ? rows + policy_.period : most;
  }
  Result<void> MakeReady(Block& block, size_t first, size_t rows);
  // The tail stays as a block of its own, a new one begins behind it.
  Result<void> StartPage(size_t n, BufferArena* arena);
  void Compact(size_t needed);       // the larger block stays where there is no memory for a smaller one
  void PrepareFork(KvLayer& child);  // all that a fork allocates

  // These cannot fail.
  void DropShared(size_t needed);
  void MoveTail(size_t first);    // to the front of its block, without the rows before position `first`
  void TurnAcross(size_t apart);  // keys of the tail's whole tiles that have `apart` rows behind them
  size_t KeepTiles(
      size_t first);  // rows across once the tail begins at position `first`; turned back where tiles would be cut
  void TurnBack(size_t rows);  // all from row `rows` on, and those that share a tile with them
  void Commit(size_t n);
  void MovePath(std::span<const uint32_t> path);  // row path[i] of the step becomes row i
  void Rollback(size_t to);
  void Clear();
  void Fork(KvLayer& child);
  void Take(KvLayer&& other);  // the rows of a layer of the same shape

  void AppendRows(size_t first, std::vector<std::byte>* out) const;  // for K, V: for each head: rows [first, length)
  // Of that form, into a layer that is empty.
  Result<void> ReadRows(ByteReader& reader, size_t first, size_t length, BufferArena* arena);

  KvLayerShape shape_;
  DType dtype_;
  size_t max_length_;
  KvGrowth policy_;
  PageCommitter* pages_;
  GrowthCounts counts_;
  size_t length_ = 0;               // committed positions
  std::vector<SharedRows> shared_;  // oldest first, without gaps; they end where the tail begins
  std::shared_ptr<Block> tail_;     // ours alone
  size_t tail_first_ = 0;           // the position of its row 0
  std::vector<KvSpan> spans_;       // room for all of them, so that Context allocates nothing
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_KV_LAYER_H_
