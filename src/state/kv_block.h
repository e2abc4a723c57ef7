// Rows of keys and values of one layer that lie side by side.
//
//   K [kv_heads, capacity, head_dim] dtype,  V the same          capacity is the stride between heads
//
// The first keys may be transposed in tiles of 16 rows (kernels/key_tiles.h), in types that have such tiles.
#ifndef TIDEMILL_STATE_KV_BLOCK_H_
#define TIDEMILL_STATE_KV_BLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/byte_reader.h"
#include "base/page_committer.h"
#include "base/reserved_memory.h"
#include "kernels/attention.h"
#include "state/state_ledger.h"
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

class KvBlock {
 public:
  // `key_tiles` false: keys stay rows.
  KvBlock(const KvLayerShape& shape, DType dtype, size_t capacity, StateLedger* ledger, bool key_tiles = true)
      : kv_heads_(shape.kv_heads),
        head_dim_(shape.head_dim),
        dtype_(dtype),
        key_tiles_(key_tiles),
        capacity_(capacity),
        counted_(ledger) {}
  KvBlock(const KvBlock&) = delete;
  KvBlock& operator=(const KvBlock&) = delete;
  ~KvBlock() {
    if (pages_ != nullptr) pages_->Forget(job_);
  }

  // Memory for all rows, once, before any other use. `arena` null: of its own.
  Result<void> Allocate(BufferArena* arena);
  // Addresses for all rows, once. MakeReady gives them memory.
  Result<void> ReserveAddresses();
  bool has_addresses_only() const { return reserved_.size() != 0; }

  size_t capacity() const { return capacity_; }      // rows
  size_t ready() const { return ready_; }            // the first rows, which can be written
  size_t held() const { return held_; }              // `ready`, and rows being committed
  size_t transposed() const { return transposed_; }  // the first rows, whose keys are transposed
  uint64_t held_bytes() const { return held_ * PositionBytes(); }

  // Of reserved addresses: memory for the first `rows` now and for `held` rows, at least as many, while steps use those. `used`: the
  // first rows that hold something. `pages` commits ahead; null: everything now.
  Result<void> MakeReady(size_t rows, size_t held, size_t used, PageCommitter* pages);

  std::byte* row(bool value, size_t head, size_t row) { return data() + Offset(value, head, row); }
  const std::byte* row(bool value, size_t head, size_t row) const { return data() + Offset(value, head, row); }
  size_t RowBytes() const { return tidemill::RowBytes(dtype_, head_dim_); }
  // The first `rows`, at positions from `first` on.
  KvSpan Span(size_t first, size_t rows) const {
    return {.k = row(false, 0, 0),
            .v = row(true, 0, 0),
            .head_stride = capacity_ * head_dim_,
            .first = first,
            .rows = rows,
            .transposed = transposed_};
  }

  // Transposes the whole tiles of the first `rows`; or of one head, and then all heads at once count as transposed.
  void TransposeTiles(size_t rows);
  void TransposeTilesOf(size_t head, size_t rows);
  void EndTranspose(size_t rows);
  // Whole tiles of the first `rows` that are not transposed; 0 where there are no tiles.
  size_t TilesLeft(size_t rows) const;
  // So that rows from `rows` on, and those of the same tile, are not transposed. The block holds `used` rows.
  void TransposeBack(size_t rows, size_t used);
  // Rows [first, first + rows) of `from`, a block of the same shape, come to the front; may be this block. `first` cuts no transposed tile.
  void TakeRows(const KvBlock& from, size_t first, size_t rows);
  // Rows [first, end) of `from`, a block of the same shape, to rows from `to` on, which are not transposed. Throws std::bad_alloc.
  void CopyRows(const KvBlock& from, size_t first, size_t end, size_t to);
  // Row `from` of a head to row `to`, neither of them transposed.
  void CopyRow(size_t head, size_t from, size_t to);

  // Of one head: rows [first, end), keys not transposed.
  void AppendRows(bool value, size_t head, size_t first, size_t end, std::vector<std::byte>* out) const;

  // Its rows as a part of a larger block, for all who share this one: the same but for what follows its first `rows`.
  struct Merged {
    std::shared_ptr<KvBlock> block;  // null: they are in none
    size_t before = 0;               // rows of `block` before the first one
    size_t rows = 0;
  };
  Merged merged() const { return {merged_.lock(), merged_before_, merged_rows_}; }
  void MergeInto(const std::shared_ptr<KvBlock>& block, size_t before, size_t rows) {
    merged_ = block;
    merged_before_ = before;
    merged_rows_ = rows;
    block->is_merged_ = true;
  }
  // Its rows are about to change: they are in no other block any more.
  void ForgetMerged() { merged_.reset(); }
  // Holders of other blocks may come to share it, so it is never written again.
  bool is_merged() const { return is_merged_; }

 private:
  uint64_t PositionBytes() const { return 2 * kv_heads_ * RowBytes(); }
  size_t Offset(bool value, size_t head, size_t row) const {
    return (((value ? kv_heads_ : 0) + head) * capacity_ + row) * RowBytes();
  }
  std::byte* data() { return reserved_.size() != 0 ? reserved_.data() : memory_.data(); }
  const std::byte* data() const { return reserved_.size() != 0 ? reserved_.data() : memory_.data(); }
  void Hold(size_t rows) {
    held_ = rows;
    counted_.Set(held_bytes());
  }
  // Rows [first, end) of a head, keys not transposed; returns the end of `out`.
  std::byte* WriteRows(bool value, size_t head, size_t first, size_t end, std::byte* out) const;
  PageCommitter::Work RowsOf(size_t begin, size_t end, size_t used);
  template <typename F>
  void ForEachHead(const F& f) const {  // f(value, head)
    for (const bool value : {false, true}) {
      for (size_t head = 0; head < kv_heads_; ++head) f(value, head);
    }
  }

  size_t kv_heads_, head_dim_;
  DType dtype_;
  bool key_tiles_;
  AlignedBuffer memory_;     // K, then V
  ReservedMemory reserved_;  // or in reserved addresses
  size_t capacity_ = 0, ready_ = 0, held_ = 0, transposed_ = 0;
  LedgerEntry counted_;
  std::weak_ptr<KvBlock> merged_;
  size_t merged_before_ = 0, merged_rows_ = 0;
  bool is_merged_ = false;
  PageCommitter* pages_ = nullptr;  // who does `job_`; may be null
  PageCommitter::Job job_;          // rows [ready, held), where these differ
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_KV_BLOCK_H_
