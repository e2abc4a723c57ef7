// What a sequence remembers: a LayerState for each that the model's branches declare, of any kinds, and the keys of its tokens.
//
// Life of a step:   Reserve(n)  ->  every layer writes rows [length, length + n) through its own face and reads them back
//                   ->  Commit(keys), or CommitPath(path, keys) of draft rows, or nothing: the step never happened.
// Only Reserve can fail. The length changes once, at the commit. Until then a step may be repeated or abandoned; rows past the length
// are undefined.
//
// Layers may drop what is old: rows before a window, states of constant size. Two bounds hold for every kind:
//   Rollback   by up to 2 * draft_rows from the greatest length so far: all that `to` and later positions see is kept
//   Checkpoint what is needed to roll back by draft_rows, or to 0 if nothing is dropped
// They differ so that a checkpoint's bytes follow from the sequence alone, even after a draft was rejected. After a deeper rollback, or
// a rollback of a sequence just restored, a checkpoint may have fewer rows, and `earliest` says so.
//
// A fork shares what is committed, and copies keys only. Sequences that share are used by one thread at a time.
//
// Checkpoint (little-endian):
//   magic u8[8]; model u64; numeric_class u64; tokens u64; shape u64, a hash of the layers' shapes and draft_rows;
//   length u64; earliest u64, which the restored state can roll back to; checksum u64, of all that follows;
//   "TMKVCP02", KV layers of one type only:  keys u64[length]; the layers, each as AppendTo writes it
//   "TMSTATE1", other lists:                 layers u64; (kind u64, bytes u64)[layers]; first key u64; hash of the keys before it u64;
//                                            keys u64[length - first key]; the layers
#ifndef TIDEMILL_STATE_SEQUENCE_STATE_H_
#define TIDEMILL_STATE_SEQUENCE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/byte_reader.h"
#include "state/layer_state.h"
#include "state/state_ledger.h"
#include "tidemill/result.h"

namespace tidemill {

// What is at a position: a token id, or a hash of an embedding. Rows with equal keys up to them are interchangeable.
using RowKey = uint64_t;

struct StateIdentity {
  uint64_t model = 0;          // hash of the weights
  uint64_t numeric_class = 0;  // hash of every choice that changes bits
  uint64_t tokens = 0;         // chained hash of the keys of all committed positions
  friend bool operator==(const StateIdentity&, const StateIdentity&) = default;
};

struct SequenceOptions {
  size_t max_length = 1;  // the context
  size_t draft_rows =
      64;  // of the longest draft that may be committed and rolled back; matters where layers drop something
  uint64_t model = 0;  // for identity()
  uint64_t numeric_class = 0;
  StateLedger* ledger =
      nullptr;  // who counts the keys, as its layers' options say for rows; null: nobody. Outlives the state
};

class SequenceState {
 public:
  static constexpr size_t kCheckpointHeaderBytes = 64;
  // Blocks of several layers share a mapping of this size, so that large pages can back them. Attention at depth 8192 takes 453 to
  // 537 us instead of 552 to 622. Layers grow one by one and return the mappings that they leave.
  static constexpr size_t kArenaBytes = size_t{8} << 20;

  using Layers = std::vector<std::unique_ptr<LayerState>>;

  SequenceState(const SequenceOptions& options, Layers layers);  // empty layers

  size_t length() const { return first_key_ + keys_.size(); }  // committed positions
  size_t max_length() const { return options_.max_length; }
  size_t num_layers() const { return layers_.size(); }
  LayerState& layer(size_t index) { return *layers_[index]; }  // the same object for the life of the state

  // Capacity for n more positions in all layers. kContextFull: length() + n > max_length(); kOutOfMemory. After an error nothing has
  // changed except perhaps bytes().reserved. Earlier views are no longer valid.
  Result<void> Reserve(size_t n);

  // Room for the keys of so many tokens, behind a Reserve: of a step that commits more tokens than it has rows at a time. kOutOfMemory.
  Result<void> ReserveKeys(size_t n);

  // An upper bound of what Reserve(n) adds to bytes().reserved; UINT64_MAX: overflow. The old buffer, still allocated during a copy, is
  // not in it.
  uint64_t GrowthBytes(size_t n) const;
  // The same for n positions in steps of `step`, each committed before the next: less for a kind that drops rows, more for one that makes
  // states on the way.
  uint64_t GrowthBytes(size_t n, size_t step) const;

  // The same of what the ledger counts: with the keys.
  uint64_t LedgerGrowth(size_t n, size_t step) const;

  // Whether Reserve(n) fits into the existing blocks, so that nothing is copied. Their pages may still be missing, and room in layers of
  // constant size.
  bool HasRoom(size_t n) const;
  // How many more positions, up to n and the context, Reserve gives without a byte for layers that grow with the sequence.
  size_t UnusedRows(size_t n) const;

  // Positions [length, length + keys.size()), written in every layer, count from now on.
  // Precondition: Reserve(n >= keys.size()) since the last commit, rollback or fork.
  void Commit(std::span<const RowKey> keys);

  // Drafts: row length + path[i] becomes position length + i; other rows are dropped. path ascends strictly, below the reserved n;
  // keys.size() == path.size().
  void CommitPath(std::span<const uint32_t> path, std::span<const RowKey> keys);

  // The lowest length that Rollback can return to: 0 where no layer drops anything; never above length().
  size_t earliest_rollback() const { return EarliestRollback(floor_); }
  // Whether every length up to max_length() can be gone back to.
  bool keeps_all() const { return EarliestRollback(max_length()) == 0 && !may_evict(); }
  // Back to `length` positions. kInvalidArgument above length(), kUnsupported below earliest_rollback(); then nothing has changed.
  Result<void> Rollback(size_t length);

  // A second sequence that continues from here. Both share what is committed; nothing that one does changes the other.
  // kOutOfMemory leaves this sequence unchanged.
  Result<std::unique_ptr<SequenceState>> Fork();
  // The same for its first `length` positions and an empty sequence of the same shape, whose growth may differ. As Rollback's errors, too;
  // then neither has changed.
  Result<void> ForkTo(SequenceState& child, size_t length);

  // An upper bound of what a fork adds to what the ledger counts.
  uint64_t ForkBytes() const;

  // Shrinks to the smallest capacity that holds what is committed. Never fails: at worst nothing happens.
  void Compact();

  // Length 0, and no memory for rows. growth() goes on counting.
  void Clear();

  // All that is committed and kept. Equal sequences give equal bytes, whatever their growth, forks and chunks.
  Result<std::vector<std::byte>> Checkpoint();
  // Replaces the content. kFailedPrecondition: another model, numeric class or shape; kContextFull: too long; kCorruptFile: any bit was
  // changed; kOutOfMemory. After an error nothing has changed.
  Result<void> Restore(std::span<const std::byte> checkpoint);

  StateIdentity identity() const { return {options_.model, options_.numeric_class, hashes_.back()}; }
  StateBytes bytes() const;
  GrowthCounts growth() const;
  // What the ledger counts: each layer's blocks, and the keys.
  void ForEachBlock(const LayerState::BlockVisitor& visit) const;

 private:
  Result<void> CheckRollback(size_t to, std::string_view what) const;
  void SettleAll();
  void AppendKeys(std::span<const RowKey> keys);
  void CountKeys() { counted_keys_.Set(keys_.capacity() * sizeof(RowKey) + hashes_.capacity() * sizeof(uint64_t)); }
  std::optional<size_t> KeysWith(size_t n) const;  // room for them after Reserve(n); none: overflow
  void DropKeys();
  size_t EarliestRollback(size_t floor) const;
  bool may_evict() const;             // some layer
  size_t CheckpointEarliest() const;  // the header's `earliest`
  bool has_only_kv() const;           // of one type: the older form of checkpoints
  uint64_t ShapeHash() const;
  uint64_t LayerBytes(size_t length, size_t earliest) const;  // of a checkpoint; UINT64_MAX: overflow
  std::vector<uint64_t> LayerList(size_t length, size_t earliest) const;
  Result<void> RestoreOrThrow(std::span<const std::byte> checkpoint);            // throws std::bad_alloc
  Result<void> ReadContent(ByteReader& reader, size_t length, size_t earliest);  // of a checkpoint, into an empty state

  SequenceOptions options_;
  Layers layers_;
  bool has_constant_size_ = false;  // every layer
  size_t floor_ = 0;                // no rollback goes below it where a layer drops something
  size_t first_key_ = 0;            // 0 but for states of constant size
  std::vector<RowKey> keys_;        // of committed positions from first_key_ on
  std::vector<uint64_t> hashes_;    // hashes_[i]: the chain over the keys of positions [0, first_key_ + i)
  std::vector<uint32_t> path_;      // of the last commit, while layers have not settled
  LedgerEntry counted_keys_;
};

// One link of identity().tokens.
constexpr uint64_t ChainTokenHash(uint64_t hash, RowKey key) {
  uint64_t x = hash ^ (key + 0x9E3779B97F4A7C15ULL + (hash << 6) + (hash >> 2));
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace tidemill

#endif  // TIDEMILL_STATE_SEQUENCE_STATE_H_
