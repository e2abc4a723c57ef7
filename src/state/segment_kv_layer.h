// A layer of a recurrent-memory transformer: the KV cache of the segment at hand, and the memory of all segments before it: an associative one
// (kernels/associative_memory.h), or of RMT, in the last layer alone, the model's memory rows. It keeps nothing else, whatever the length.
//
// Positions in the cache count from the segment's beginning: a segment has the same bits wherever it stands.
//
// A segment's tokens come in steps of any size. Its end is a step whose last rows are memory rows: they see the segment's tokens and are never
// committed. EndSegment behind them gives the new memory a second place; the step's commit makes it the state, the cache is empty, and no rollback
// goes below. A step that is dropped leaves nothing. A step may end several segments, one after the other, and have a part of another behind
// them, if it begins with a segment: each begins with slot 0 again.
//
// Of RMT memory rows stand in front of a segment's tokens, too. A segment's first step has them in its first slots, and its commit keeps them. A step
// then ends one segment at most, and has nothing behind it.
//
// Forks share the memory, which nobody writes once it is committed.
//
// Checkpoint:  the memory (A then z, or RMT's rows in the last layer), if a segment ended; the rows of the segment at hand, as KvLayer writes them.
#ifndef TIDEMILL_STATE_SEGMENT_KV_LAYER_H_
#define TIDEMILL_STATE_SEGMENT_KV_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/byte_reader.h"
#include "kernels/associative_memory.h"
#include "state/kv_layer.h"
#include "state/state_ledger.h"

namespace tidemill {

struct SegmentShape {
  MemoryShape memory;         // associative; key_dim 0: there is none
  size_t segment_tokens = 1;  // S
  size_t memory_rows = 1;     // M, behind the tokens
  size_t max_rows = 1;        // positions that a segment may have, memory rows included
  size_t front_rows = 0;      // in front of the tokens: of RMT, M
  size_t carried = 0;         // F32 elements of RMT's memory in this layer: of the last one, [M, hidden]

  size_t memory_bytes() const { return memory.key_dim == 0 ? carried * sizeof(float) : memory.bytes(); }
  size_t whole_rows() const { return front_rows + segment_tokens + memory_rows; }
  // Rows of a segment's first tokens.
  size_t RowsOf(size_t tokens) const { return tokens == 0 ? 0 : front_rows + tokens; }
  size_t TokensOf(size_t rows) const { return rows == 0 ? 0 : rows - front_rows; }
};

class SegmentKvLayer : public KvLayer {
 public:
  static constexpr StateKind kKind = StateKind::kSegmentKv;
  static constexpr bool Holds(StateKind kind) { return kind == kKind; }

  // last_first: where the text's last segment begins, which does not end; SIZE_MAX: unknown.
  SegmentKvLayer(const KvLayerShape& shape, const KvOptions& options, const SegmentShape& segments,
                 size_t last_first = SIZE_MAX);

  const SegmentShape& segments() const { return segments_; }
  // The position of the segment at hand, without the step.
  size_t segment_first() const { return first_; }
  // Memory rows in the first slots of the next step with tokens.
  size_t front_rows() const { return length() == 0 ? segments_.front_rows : 0; }

  // A cell. What its rows read: of the segments before theirs; null: there is none.
  const std::byte* memory() const { return DataOf(num_ended_ == 0 ? memory_ : next_); }
  bool IsMemoryFinite() const;  // precondition: memory() is there
  // Where the cell's memory rows write; memory() may be the same.
  std::byte* next_memory() { return next_->memory.data(); }
  // Behind the memory rows of a segment of which the step has `tokens` tokens: later cells of the step are of the next segment.
  void EndSegment(size_t tokens);

  StateKind checkpoint_kind() const override { return kKind; }
  std::vector<uint64_t> Shape() const override;
  std::unique_ptr<LayerState> MakeEmpty() const override;
  size_t EarliestRollback(size_t) const override { return first_; }
  bool may_evict() const override { return true; }
  bool may_begin_anywhere() const override { return true; }
  bool has_constant_size() const override { return true; }
  uint64_t CheckpointBytes(size_t length, size_t earliest) const override;
  uint64_t reserved_bytes() const override;
  uint64_t read_bytes_per_token(size_t length) const override;
  // Of n tokens in any steps: the rows of one segment, or those of the last one, which may go on, and both places.
  uint64_t GrowthBytes(size_t n, size_t floor) const override;
  uint64_t GrowthBytes(size_t n, size_t step, size_t floor, size_t rollback) const override;
  bool HasRoom(size_t n, size_t floor) const override;
  BlockBytes NewBlock(size_t n, size_t floor) const override;
  BlockBytes RestoredBlock(size_t length, size_t earliest) const override;
  // What both share has one owner once the next segment ends.
  uint64_t ForkBytes() const override { return memory_ == nullptr ? 0 : segments_.memory_bytes(); }
  void ForEachBlock(const BlockVisitor& visit) const override;
  // n: rows of a step, memory rows included; of one that ends several segments, of the longest.  Commit takes tokens.
  Result<void> Reserve(size_t n, size_t floor, BufferArena* arena) override;
  void Commit(size_t n) override;
  void CommitPath(std::span<const uint32_t> path) override;
  void Rollback(size_t to) override;
  void Clear() override;
  void Compact(size_t floor) override;
  void Fork(LayerState& child) override;
  void AppendTo(std::vector<std::byte>* out, size_t earliest) const override;
  Result<void> ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena* arena) override;
  void Take(LayerState&& other) override;

 private:
  struct Memory {
    AlignedBuffer memory;
    LedgerEntry counted;
    explicit Memory(StateLedger* ledger) : counted(ledger) {}
  };
  using MemoryPointer = std::shared_ptr<Memory>;

  static const std::byte* DataOf(const MemoryPointer& memory) {
    return memory == nullptr ? nullptr : memory->memory.data();
  }
  Result<MemoryPointer> NewMemory() const;
  size_t tokens() const { return segments_.TokensOf(length()); }  // of the segment at hand
  // Whether a step of n rows may end a segment: a token and the memory rows.
  bool MayEnd(size_t n) const { return n > front_rows() + segments_.memory_rows; }

  // The most rows that a segment has while n tokens come.
  size_t RowsWith(size_t n) const;

  SegmentShape segments_;
  size_t last_first_;
  size_t first_ = 0;      // the position of the segment at hand
  MemoryPointer memory_;  // of the segments before it; null: there is none
  MemoryPointer next_;    // a second place; null: none is reserved
  // Of the step: segments that it ends, and their tokens in it.
  size_t num_ended_ = 0, ended_tokens_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_SEGMENT_KV_LAYER_H_
