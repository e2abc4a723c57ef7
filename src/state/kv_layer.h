// One layer's part of a KV cache: rows of keys and of values for each KV head.
//
//   Block:  K [kv_heads, capacity, head_dim] dtype,  V the same          capacity is the stride between heads
//
// Older keys are transposed in tiles of 16 rows (kernels/key_tiles.h), in types that have such tiles. A tile is transposed once kRowsApart
// committed rows follow it or its block is shared. It is transposed back before its rows are rewritten or moved by part of a tile.
//
// Older rows may be in shared blocks, which nobody writes: a fork freezes the tail into one. Newer rows are in our own tail, which grows by
// the policy (state/kv_growth.h). Under `reserve` a PageCommitter commits the rows of the next increment while steps use this one. Rows
// being committed count as allocated; if their memory is missing, only the Reserve that needs them fails. Extents of 2 MiB get a large
// page once every row is used.
//
// A layer with a window grows by kGrowthRows rows whatever the policy. The sequence says from which position on rows are needed. Shared
// blocks go when none of their rows is needed. When the tail is full, needed rows move to the front of the block if at least
// kGrowthRows / 2 rows become free beyond the step; else a larger block replaces it. So a tail has at most
// needed + step + 2 * kGrowthRows  rows, and at least kGrowthRows / 2 positions lie between two moves.
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
  // A large page makes unused capacity resident. So a block gets large pages only with this many rows, and at most kMaxUnused times as
  // many unused bytes as used; expected rows count as used. A short request then keeps only what it writes resident. With 1024 rows in
  // place of 256, 8 sequences of SmolLM2 at depth 512 took 1.13 times as long.
  static constexpr size_t kFewestLargePageRows = 256;
  static constexpr uint64_t kMaxUnused = 3;
  // So many of the last rows may be rolled back without transposing a key.
  static constexpr size_t kRowsApart = 16;

  // `pages`: who commits pages ahead of their use under `reserve`; null: the calls that need them. Outlives all blocks.
  KvLayer(const KvLayerShape& shape, DType dtype, size_t max_length, const KvGrowth& growth, PageCommitter* pages)
      : shape_(shape),
        dtype_(dtype),
        max_length_(max_length),
        policy_(shape.window == 0 ? growth : KvGrowth{.increment = kGrowthRows}),
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

  // Positions [first, length + step_rows): kept rows and the first rows of the step; first is 0 without a window. Also valid until the
  // next call only.
  std::span<const KvSpan> Context(size_t step_rows);

 private:
  friend class KvCache;  // calls what follows

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
    size_t ready = 0;                // rows that can be written
    size_t held = 0;                 // `ready`, and rows being committed
    size_t transposed = 0;           // the first rows, whose keys are transposed
    PageCommitter* pages = nullptr;  // who does `job`; may be null
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

  // Rows of the block that Reserve would make; none: it makes none.
  std::optional<size_t> NewCapacity(size_t n, size_t needed) const;
  bool PagesStay() const { return policy_.policy == KvPolicy::kPaged && tail_rows() != 0; }  // of `paged`
  // Of a block that Reserve or ReadRows makes; zeros: none. UINT64_MAX: overflow.
  struct BlockBytes {
    uint64_t all = 0, used = 0;
    size_t rows = 0;  // used or expected

    void Add(const BlockBytes& other) {  // saturates
      all = std::max(all, all + other.all);
      used = std::max(used, used + other.used);
      rows = std::max(rows, other.rows);
    }
    BufferArena::Pages pages() const {
      const bool large = rows >= kFewestLargePageRows && (all - used) / kMaxUnused <= used;
      return large ? BufferArena::Pages::kLarge : BufferArena::Pages::kSmall;
    }
  };
  BlockBytes BytesOf(size_t first, size_t rows, size_t capacity) const;
  BlockBytes NewBlock(size_t n, size_t needed) const;
  BlockBytes RestoredBlock(size_t first, size_t length) const {
    return BytesOf(first, length - first, policy_.Capacity(first, length - first, max_length_ - first));
  }
  // What Reserve would add to reserved_bytes(); UINT64_MAX: overflow.
  uint64_t GrowthBytes(size_t n, size_t needed) const;
  // An upper bound for n rows in steps of `step`, of which up to `rollback` may be rolled back.
  uint64_t GrowthBytes(size_t n, size_t step, size_t needed, size_t rollback) const;
  // Whether Reserve makes no block for n rows. It may still commit pages, or move rows to the front with a window.
  bool HasRoom(size_t n, size_t needed) const;

  // These also throw std::bad_alloc; then no needed row has changed. `needed`: the first position whose row must stay.
  // `arena`: the source of a new block; null: memory of its own.
  Result<void> Reserve(size_t n, size_t needed, BufferArena* arena);
  // A block with room for `capacity` rows from position `first` on, `rows` of them at once.
  Result<void> SetTail(size_t first, size_t rows, size_t capacity, BufferArena* arena);
  // Rows allocated in a block from position `first` on once `rows` of it are wanted: one increment ahead of use, only expected rows.
  // A PageCommitter is asked while a quarter of the increment is left, more than it needs.
  size_t HeldRows(size_t first, size_t held, size_t rows, size_t capacity) const {
    const size_t expected = policy_.expected - std::min(policy_.expected, first);
    const size_t most = policy_.expected != 0 && expected >= rows ? std::min(expected, capacity) : capacity;
    const size_t lead = pages_ == nullptr ? 0 : (policy_.increment - 1) / 4 + 1;
    if (rows <= held && (held >= most || held - rows >= lead)) return held;
    return policy_.increment < most - rows ? rows + policy_.increment : most;
  }
  Result<void> MakeReady(Block& block, size_t first, size_t rows);
  // Keeps the tail as a block of its own; a new one begins after it.
  Result<void> StartPage(size_t n, BufferArena* arena);
  void Compact(size_t needed);       // keeps the larger block if there is no memory for a smaller one
  void PrepareFork(KvLayer& child);  // all that a fork allocates

  // These cannot fail.
  void DropShared(size_t needed);
  void MoveTail(size_t first);           // to the front of its block, without the rows before position `first`
  void TransposeKeyTiles(size_t apart);  // transposes the tail's whole tiles that `apart` rows follow
  size_t KeepTiles(
      size_t
          first);  // transposed rows once the tail begins at position `first`; transposes back where tiles would be cut
  void TransposeBack(size_t rows);  // rows from `rows` on, and those of the same tile
  void Commit(size_t n);
  void MovePath(std::span<const uint32_t> path);  // row path[i] of the step becomes row i
  void Rollback(size_t to);
  void Clear();
  void Fork(KvLayer& child);
  void Take(KvLayer&& other);  // the rows of a layer of the same shape

  void AppendRows(size_t first, std::vector<std::byte>* out) const;  // for K, V: for each head: rows [first, length)
  // The same form, into an empty layer.
  Result<void> ReadRows(ByteReader& reader, size_t first, size_t length, BufferArena* arena);

  KvLayerShape shape_;
  DType dtype_;
  size_t max_length_;
  KvGrowth policy_;
  PageCommitter* pages_;
  GrowthCounts counts_;
  size_t length_ = 0;               // committed positions
  std::vector<SharedRows> shared_;  // oldest first, without gaps, up to the tail
  std::shared_ptr<Block> tail_;     // ours alone
  size_t tail_first_ = 0;           // the position of its row 0
  std::vector<KvSpan> spans_;       // room for all of them, so that Context allocates nothing
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_KV_LAYER_H_
