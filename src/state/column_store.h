// Columns of keys and sums of values of one layer's KV cache (kernels/context_columns.h): derived from its rows, never saved.
//
// Blocks of kColumnRows positions stay where they are; growth adds blocks. A block is filled by granules of kSumRows committed rows. Forks share
// blocks, and whoever writes into a block that others see copies it first. A rollback forgets granules. Where memory for a block is missing, columns are
// given up for good: what reads them reads rows then, for the same bits, and `gave_up` says so.
#ifndef TIDEMILL_STATE_COLUMN_STORE_H_
#define TIDEMILL_STATE_COLUMN_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/attention.h"
#include "kernels/context_columns.h"
#include "state/kv_block.h"
#include "state/state_ledger.h"

namespace tidemill {

class ColumnStore {
 public:
  // `columns` false: sums only.
  ColumnStore(const KvLayerShape& shape, DType dtype, bool columns, StateLedger* ledger);

  ContextColumns View() const;  // valid until the next call that is not const
  size_t filled() const { return filled_; }
  bool has_columns() const { return columns_; }
  bool gave_up() const { return gave_up_; }

  // Room for all granules of `rows` committed rows. Cannot fail: columns are given up where memory is missing, and sums too, at worst.
  void Reserve(size_t rows);
  uint64_t GrowthBytes(size_t rows) const;  // an upper bound of what Reserve adds
  uint64_t held_bytes() const;
  static uint64_t BytesOf(const KvLayerShape& shape, DType dtype, bool columns, size_t rows);  // of an empty one, after Reserve(rows)
  void ForEachBlock(const std::function<void(const void*, uint64_t)>& visit) const;

  // Granules of `rows` committed rows that are not filled. FillPart fills those of one KV head; EndFill after all heads.
  size_t GranulesDue(size_t rows) const;
  void FillPart(size_t head, std::span<const KvSpan> rows, size_t committed);
  void EndFill(size_t committed);

  void Rollback(size_t rows);          // granules past it are no longer filled
  void DropBefore(size_t position);    // blocks that nobody needs who sees positions from there on
  void Clear();
  void PrepareFork(ColumnStore& child) const;  // throws std::bad_alloc
  void Fork(ColumnStore& child);               // child shares all blocks
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_COLUMN_STORE_H_
