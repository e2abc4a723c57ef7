// What a sequence remembers, behind one contract.
//
// A layer's code works on its LayerState, a type of each kind. SequenceState is all layers of one sequence, and all that decoding and
// the scheduler see.
//
// Life of a step:   Reserve(n)  ->  every layer writes rows [length, length + n) through its view and reads them back
//                   ->  Commit(keys), or CommitPath(path, keys) of draft rows, or nothing: the step never happened.
// Only Reserve can fail. The length changes once, at the commit. Until then a step may be repeated or abandoned; rows past the length
// are undefined.
#ifndef TIDEMILL_STATE_SEQUENCE_STATE_H_
#define TIDEMILL_STATE_SEQUENCE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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

// What growth has cost so far.
struct GrowthCounts {
  uint64_t growths = 0;       // blocks made, or pages added to one
  uint64_t bytes_copied = 0;  // from a block into the next
  bool fell_back = false;     // another policy than requested, for lack of address space
};

struct StateBytes {
  uint64_t reserved = 0;        // allocated, shared prefixes included
  uint64_t committed = 0;       // rows below length()
  uint64_t read_per_token = 0;  // what decoding the next token reads
};

// One layer's part. A layer casts its step's state to the kind it was built for; kind() is for checks.
enum class StateKind { kKvCache };

class LayerState {
 public:
  virtual ~LayerState() = default;
  virtual StateKind kind() const = 0;
};

class SequenceState {
 public:
  virtual ~SequenceState() = default;

  virtual size_t length() const = 0;      // committed positions
  virtual size_t max_length() const = 0;  // the context
  virtual size_t num_layers() const = 0;
  virtual LayerState& layer(size_t index) = 0;  // the same object for the life of the state

  // Capacity for n more positions in all layers. kContextFull: length() + n > max_length(); kOutOfMemory. After an error nothing has
  // changed except perhaps bytes().reserved. Earlier views are no longer valid.
  virtual Result<void> Reserve(size_t n) = 0;

  // An upper bound of what Reserve(n) adds to bytes().reserved; UINT64_MAX: overflow. The old buffer, still allocated during a copy, is
  // not in it.
  virtual uint64_t GrowthBytes(size_t n) const = 0;
  // The same for n positions in steps of `step`, each committed before the next: less for a kind that drops rows.
  virtual uint64_t GrowthBytes(size_t n, size_t step) const = 0;

  // Whether Reserve(n) fits into the existing blocks, so that nothing is copied. Their pages may still be missing.
  virtual bool HasRoom(size_t n) const = 0;

  // Positions [length, length + keys.size()), written in every layer, count from now on.
  // Precondition: Reserve(n >= keys.size()) since the last commit, rollback or fork.
  virtual void Commit(std::span<const RowKey> keys) = 0;

  // Drafts: row length + path[i] becomes position length + i; other rows are dropped. path ascends strictly, below the reserved n;
  // keys.size() == path.size().
  virtual void CommitPath(std::span<const uint32_t> path, std::span<const RowKey> keys) = 0;

  // The lowest length that Rollback can return to: 0 for a kind that drops nothing; never above length().
  virtual size_t earliest_rollback() const = 0;
  // Back to `length` positions. kInvalidArgument above length(), kUnsupported below earliest_rollback(); then nothing has changed.
  virtual Result<void> Rollback(size_t length) = 0;

  // A second sequence that continues from here. Both share what is committed; nothing that one does changes the other.
  // kOutOfMemory leaves this sequence unchanged.
  virtual Result<std::unique_ptr<SequenceState>> Fork() = 0;

  // Shrinks to the smallest capacity that holds what is committed. Never fails: at worst nothing happens.
  virtual void Compact() = 0;

  // Length 0, and no memory for rows. growth() goes on counting.
  virtual void Clear() = 0;

  // All committed rows that are kept. Equal sequences give equal bytes, whatever their growth, forks and chunks. A kind that drops rows
  // documents which rollbacks leave fewer.
  virtual Result<std::vector<std::byte>> Checkpoint() const = 0;
  // Replaces the content. kFailedPrecondition: another model, numeric class or shape; kContextFull: too long; kCorruptFile: any bit was
  // changed; kOutOfMemory. After an error nothing has changed.
  virtual Result<void> Restore(std::span<const std::byte> checkpoint) = 0;

  virtual StateIdentity identity() const = 0;
  virtual StateBytes bytes() const = 0;
  virtual GrowthCounts growth() const = 0;
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
