// One layer's part of a sequence's state, of any kind, behind one contract. A branch of the layer casts it to the kind that it declared.
//
// Life of a step:   Reserve(n)  ->  the layer's cells write and read rows of the step  ->  Commit(n), or CommitPath(path), or nothing:
// the step never happened. Only Reserve and what copies can fail. Commits move cursors; what is costly about them (moved rows,
// transposed keys, folds) is left to Settle, which the layer's next cell runs in the thread pool.
//
// Positions count committed tokens. No rollback goes below `floor`, which the sequence raises.
#ifndef TIDEMILL_STATE_LAYER_STATE_H_
#define TIDEMILL_STATE_LAYER_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/byte_reader.h"
#include "tidemill/result.h"

namespace tidemill {

// Forms of checkpoints, by numbers that stay what they are.
enum class StateKind : uint32_t { kKv = 1, kLinear = 2, kSparseKv = 3, kSegmentKv = 4, kOfATest = 1000 };

// What growth has cost so far.
struct GrowthCounts {
  uint64_t growths = 0;          // blocks made, or pages added to one
  uint64_t bytes_copied = 0;     // from a block into the next
  bool fell_back = false;        // another policy than requested, for lack of address space
  bool gave_up_columns = false;  // keys stand in rows only, for want of memory (state/column_store.h)

  GrowthCounts& operator+=(const GrowthCounts& other) {
    growths += other.growths;
    bytes_copied += other.bytes_copied;
    fell_back = fell_back || other.fell_back;
    gave_up_columns = gave_up_columns || other.gave_up_columns;
    return *this;
  }
};

struct StateBytes {
  uint64_t reserved = 0;        // allocated, shared prefixes included
  uint64_t committed = 0;       // what a checkpoint has
  uint64_t read_per_token = 0;  // what decoding the next token reads
  uint64_t keys = 0;            // allocated for keys and hashes, beside `reserved`
};

// Memory that a Reserve will take from an arena, so that the layers of a sequence share mappings.
struct BlockBytes {
  // A large page makes unused capacity resident. So blocks get large pages only with this many rows, and at most kMaxUnused times as many
  // unused bytes as used; expected rows count as used. A short request then keeps only what it writes resident. With 1024 rows in place
  // of 256, 8 sequences of SmolLM2 at depth 512 took 1.13 times as long.
  static constexpr size_t kFewestLargePageRows = 256;
  static constexpr uint64_t kMaxUnused = 3;

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

class LayerState {
 public:
  virtual ~LayerState() = default;

  // Of its checkpoints; classes may share one. What it is: LinearOf, SparseOf.
  virtual StateKind checkpoint_kind() const = 0;
  // Numbers that tell its shape from others of the kind, for checkpoints.
  virtual std::vector<uint64_t> Shape() const = 0;
  // An empty one of the same shape. Throws std::bad_alloc.
  virtual std::unique_ptr<LayerState> MakeEmpty() const = 0;

  // The lowest length that Rollback can return to; 0 for a kind that drops nothing.
  virtual size_t EarliestRollback(size_t floor) const = 0;
  // Whether that may come to be the length itself, for good, whatever the floor: an empty one that ReadFrom fills does not know.
  virtual bool may_evict() const { return false; }
  // Whether it may come to be any length that there ever was: the same.
  virtual bool may_begin_anywhere() const { return false; }
  // Whether it keeps as many bytes for any number of tokens. A sequence of such kinds keeps no keys below its earliest rollback.
  virtual bool has_constant_size() const { return false; }
  // Of a checkpoint of `length` tokens that can be rolled back to `earliest`: what AppendTo writes. UINT64_MAX: overflow.
  virtual uint64_t CheckpointBytes(size_t length, size_t earliest) const = 0;
  virtual uint64_t reserved_bytes() const = 0;
  virtual uint64_t read_bytes_per_token(size_t length) const = 0;
  virtual GrowthCounts growth() const = 0;
  // Each block of memory and its bytes; one that is shared is the same for all who share it. A kind counts the same bytes in the ledger
  // that it was made with (state/state_ledger.h).
  using BlockVisitor = std::function<void(const void* block, uint64_t bytes)>;
  virtual void ForEachBlock(const BlockVisitor& visit) const { visit(this, reserved_bytes()); }

  // An upper bound of what Reserve(n) adds to reserved_bytes(); UINT64_MAX: overflow.
  virtual uint64_t GrowthBytes(size_t n, size_t floor) const = 0;
  // The same for n tokens in steps of `step`, each committed before the next, of which up to `rollback` may be rolled back.
  virtual uint64_t GrowthBytes(size_t n, size_t step, size_t floor, size_t rollback) const = 0;
  // Whether Reserve(n) fits into what there is, so that nothing is copied; or copies no more for a long sequence than for a short one.
  virtual bool HasRoom(size_t n, size_t floor) const = 0;
  // What Reserve(n), or ReadFrom, takes from an arena.
  virtual BlockBytes NewBlock(size_t, size_t) const { return {}; }
  virtual BlockBytes RestoredBlock(size_t, size_t) const { return {}; }

  // Room for a new step of n rows. kOutOfMemory, or throws std::bad_alloc; then nothing that was committed has changed.
  // `arena`: the source of a new block; null: memory of its own.
  virtual Result<void> Reserve(size_t n, size_t floor, BufferArena* arena) = 0;

  // These cannot fail. Precondition: a Reserve of so many rows since the last commit, rollback or fork.
  virtual void Commit(size_t n) = 0;
  // Row path[i] of the step becomes the i-th token; others are dropped. path ascends strictly, and stays where it is until Settle.
  virtual void CommitPath(std::span<const uint32_t> path) = 0;

  // What the last commit left to do, in parts that threads may run at the same time, each once; EndSettle after all of them. Bytes: what
  // all parts read and write together. Reserve may come before it, and settles where it moves rows; what only counts may, too. Whoever
  // calls another function settles first: the sequence, or the layer's next cell.
  virtual size_t num_settle_parts() const { return 0; }
  virtual uint64_t settle_bytes() const { return 0; }
  virtual void SettlePart(size_t) {}
  virtual void EndSettle() {}
  void Settle() {
    const size_t parts = num_settle_parts();
    for (size_t part = 0; part < parts; ++part) SettlePart(part);
    if (parts != 0) EndSettle();
  }

  virtual void Rollback(size_t length) = 0;
  virtual void Clear() = 0;
  // Less memory where that is possible. Throws std::bad_alloc; then nothing has changed.
  virtual void Compact(size_t floor) = 0;

  // A child, empty and of the same shape, continues from here; both share what is committed. PrepareFork does all that can fail, for both:
  // throws std::bad_alloc.
  virtual void PrepareFork(LayerState& child) = 0;
  virtual void Fork(LayerState& child) = 0;
  // An upper bound of what a child has of its own: rows are shared, what a kind of constant size keeps may be copied.
  virtual uint64_t ForkBytes() const { return has_constant_size() ? reserved_bytes() : 0; }

  virtual void AppendTo(std::vector<std::byte>* out, size_t earliest) const = 0;
  // Into an empty layer. Throws std::bad_alloc.
  virtual Result<void> ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena* arena) = 0;
  // The content of another one of the same shape. growth() goes on counting.
  virtual void Take(LayerState&& other) = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_LAYER_STATE_H_
