// What a sequence remembers, as one object with one contract, whatever it stores.
//
// Two levels: LayerState is what a layer's code works on (each kind has its own type); SequenceState is all layers of one
// sequence, and all that decoding, prefix caches and the scheduler see.
//
// Life of a step:   Reserve(n)  ->  every layer writes rows [length, length + n) through its view and reads them back
//                   ->  Commit(keys), or CommitPath(path, keys) when the rows were drafts, or nothing: the step never happened.
// Reserve is the only part that can fail; after it writes cannot. The length moves once, at the commit. Until then a step may be
// repeated or abandoned: rows past the length hold whatever was left there.
#ifndef TIDEMILL_STATE_SEQUENCE_STATE_H_
#define TIDEMILL_STATE_SEQUENCE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tidemill/result.h"

namespace tidemill {

// What stands at a position: a token id, or a hash of an embedding. Positions with equal keys before them are interchangeable.
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
  bool fell_back = false;     // another policy than asked for, for want of addresses
};

struct StateBytes {
  uint64_t reserved = 0;        // held, shared prefixes included
  uint64_t committed = 0;       // rows below length()
  uint64_t read_per_token = 0;  // what decoding the next token reads
};

// One layer's part. A layer knows which kind it was built for and casts the state that a step brings to it; kind() is for checks.
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

  // Room for n more positions in all layers. kContextFull when length() + n > max_length(), kOutOfMemory when memory is not
  // there; then nothing has changed but, perhaps, bytes().reserved. Views taken before are no longer valid.
  virtual Result<void> Reserve(size_t n) = 0;

  // What Reserve(n) would add to bytes().reserved, or more where rows that nobody needs would go; UINT64_MAX: more than can be counted.
  // While a row is copied from one buffer to the next both are held, which is not in it.
  virtual uint64_t GrowthBytes(size_t n) const = 0;
  // The same of n positions in steps of `step`, each committed before the next: a kind that forgets holds less then. At least what the steps
  // come to.
  virtual uint64_t GrowthBytes(size_t n, size_t step) const = 0;

  // Whether Reserve(n) finds room for them in the blocks that are there, so that nothing is copied. Pages of them may still have to come.
  virtual bool HasRoom(size_t n) const = 0;

  // Positions [length, length + keys.size()) have been written in every layer and count from now on.
  // Precondition: Reserve(n >= keys.size()) since the last commit, rollback or fork.
  virtual void Commit(std::span<const RowKey> keys) = 0;

  // Drafts: rows length + path[i] become position length + i; the other rows are dropped. path ascends strictly, below the
  // reserved n; keys.size() == path.size().
  virtual void CommitPath(std::span<const uint32_t> path, std::span<const RowKey> keys) = 0;

  // The lowest length that Rollback can return to: 0 for a kind that forgets nothing; never above length().
  virtual size_t earliest_rollback() const = 0;
  // Back to `length` positions. kInvalidArgument above length(), kUnsupported below earliest_rollback(); then nothing has changed.
  virtual Result<void> Rollback(size_t length) = 0;

  // A second sequence that continues from here. Both share what is committed; neither sees what the other writes, and no commit,
  // rollback or compaction of one moves rows of the other. kOutOfMemory leaves this sequence as it was.
  virtual Result<std::unique_ptr<SequenceState>> Fork() = 0;

  // The smallest capacity that holds what is committed; pages go back. Never fails: at worst nothing happens.
  virtual void Compact() = 0;

  // Forgets everything: length 0, and no rows are held. growth() goes on counting.
  virtual void Clear() = 0;

  // Everything committed that is kept, as bytes that are equal for equal sequences: independent of growth, forks and chunks. A kind
  // that forgets says which rollbacks leave less than usual to keep.
  virtual Result<std::vector<std::byte>> Checkpoint() const = 0;
  // Replaces the content by a checkpoint. kFailedPrecondition when its identity (model, numeric class) or shape is another's,
  // kContextFull when it is too long, kCorruptFile when any bit of it is another than was written, kOutOfMemory;
  // then nothing has changed.
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
