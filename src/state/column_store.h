// Columns of keys and sums of values of one layer's KV cache (kernels/context_columns.h): derived from its rows, not saved.
//
// Blocks of kColumnRows positions stay where they are; growth adds blocks. They are filled by granules of kSumRows committed rows. Forks share
// blocks; Reserve copies those that a fill will write while others see them. A rollback forgets granules. Where memory for columns is missing,
// they are given up for good: what reads them reads rows then, for the same bits. Sums stay, and a sequence without memory for them does not grow.
#ifndef TIDEMILL_STATE_COLUMN_STORE_H_
#define TIDEMILL_STATE_COLUMN_STORE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/attention.h"
#include "kernels/context_columns.h"
#include "state/kv_block.h"
#include "state/layer_state.h"
#include "state/state_ledger.h"
#include "tensor/dtype.h"
#include "tidemill/result.h"

namespace tidemill {

class ColumnStore {
 public:
  // `columns` false: sums only, as for Q8_0.
  ColumnStore(const KvLayerShape& shape, DType dtype, bool columns, StateLedger* ledger);

  ContextColumns View() const;  // valid until the next call that is not const
  size_t filled() const { return filled_; }
  bool has_columns() const { return columns_; }
  bool gave_up() const { return gave_up_; }
  bool GiveUp();  // columns, as if memory were missing; false: there were none

  // Room for all granules of `rows` committed rows, in blocks that nobody else sees. Columns are given up where memory is missing; kOutOfMemory,
  // or std::bad_alloc, says that there is none for sums. Columns come from `arena`; null: from memory of their own.
  Result<void> Reserve(size_t rows, BufferArena* arena);
  uint64_t GrowthBytes(size_t rows) const;  // an upper bound of what Reserve adds; UINT64_MAX: overflow
  BlockBytes NewBlock(size_t rows) const;   // what Reserve takes from an arena
  // The same of an empty store that Begin(first) and Reserve(rows) get.
  BlockBytes RestoredBlock(size_t first, size_t rows) const;
  GrowthCounts growth() const { return growth_; }
  uint64_t block_bytes() const { return sums_bytes() + (columns_ ? column_bytes() : 0); }
  uint64_t held_bytes() const;
  uint64_t open_bytes() const { return filled_ % kColumnRows == 0 ? 0 : block_bytes(); }  // that a fork lets copy
  size_t own_blocks() const;                                                              // those that nobody else sees
  void ForEachBlock(const std::function<void(const void*, uint64_t)>& visit) const;

  // Rows of granules of `committed` rows that are not filled, as far as there are blocks for them.
  size_t RowsDue(size_t committed) const {
    const size_t end = std::min(committed - committed % kSumRows, reserved_);
    return end - std::min(end, filled_);
  }
  // Fills what one KV head has of them in a span; spans ascend, and heads may run at the same time. EndFill after all heads.
  // Precondition: a Reserve of `committed` rows or more since the last fork or rollback.
  void FillRows(size_t head, const KvSpan& span, size_t committed);
  void EndFill(size_t committed) { filled_ += RowsDue(committed); }

  void Rollback(size_t rows);  // granules past it are no longer filled
  // Blocks that nobody needs who sees positions from there on. The granule before them stays, since sums include those before it.
  void DropBefore(size_t position);
  void Trim();  // blocks of which nothing is filled
  void Clear();
  void PrepareFork(ColumnStore& child) const;  // throws std::bad_alloc
  void Fork(ColumnStore& child) const;         // child, which is empty, shares all that is filled
  void Take(ColumnStore&& other);              // its content; growth() goes on counting

  // The sums of all values before `rows`, a multiple of kSumRows: [kv_heads, head_dim]. Precondition: 0 < rows <= filled().
  std::span<const double> SumsBefore(size_t rows) const;
  // An empty store of which everything before `rows` is no longer kept. kOutOfMemory, or throws std::bad_alloc.
  Result<void> Begin(size_t rows, std::span<const double> sums_before);

 private:
  struct Piece {
    explicit Piece(StateLedger* ledger) : counted(ledger) {}
    AlignedBuffer memory;
    LedgerEntry counted;
  };
  using PiecePointer = std::shared_ptr<Piece>;
  struct Block {
    PiecePointer columns, sums;  // no columns: of a store that has none, or of a block that is not reserved yet
  };

  size_t dims() const { return kv_heads_ * head_dim_; }
  size_t element_bytes() const { return RowBytes(dtype_, 1); }
  size_t sums_bytes() const { return kColumnRows / kSumRows * dims() * sizeof(double); }
  size_t column_bytes() const { return dims() * kColumnRows * element_bytes(); }
  size_t end_block() const { return first_ + blocks_.size(); }
  double* SumsOf(size_t granule, size_t head) const;
  PiecePointer NewPiece(size_t bytes, BufferArena* arena) const;  // null: no memory
  // Whether a fill of a block may write into a piece of it.
  static bool IsOwn(const PiecePointer& piece) { return piece != nullptr && piece.use_count() == 1; }
  // A piece of our own with what is filled of block `index`; false: no memory.
  bool OwnSums(size_t index);
  bool OwnColumns(size_t index, BufferArena* arena);
  void TurnKey(const KvSpan& span, const std::byte* k, size_t r, std::byte* out) const;
  void GiveUpColumns();
  void Show();  // blocks_ in views_
  // Calls f(missing sums, missing columns) for what Reserve(rows) lacks: numbers of pieces.
  void CountMissing(size_t rows, uint64_t* sums, uint64_t* columns) const;

  size_t kv_heads_, head_dim_;
  DType dtype_;
  bool wanted_, columns_;
  StateLedger* ledger_;
  bool gave_up_ = false;
  size_t first_ = 0;     // number of the first block
  size_t filled_ = 0;    // positions, a multiple of kSumRows
  size_t reserved_ = 0;  // up to there blocks may be filled; may be less
  std::vector<Block> blocks_;
  std::vector<ColumnBlock> views_;  // of blocks_; has room for as many
  GrowthCounts growth_;
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_COLUMN_STORE_H_
