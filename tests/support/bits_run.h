// One sequence run in a given way, with batch mates that comes and goes, so that its bits can be compared with another way's.
#ifndef TIDEMILL_TESTS_SUPPORT_BITS_RUN_H_
#define TIDEMILL_TESTS_SUPPORT_BITS_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/model_runner.h"

namespace tidemill::testing {

// What happens to the state on the way, at positions that no chunk or growth step likes.
enum class History {
  kStraight,
  kRolledBack,  // steps abandoned; other tokens fed and taken back, with some of the sequence's own, which are then replayed
  kForked,  // forked again and again, going on as the child or as the parent while the other writes something else
};

struct BitsPlan {
  size_t batch = 1;    // sequences of a step in which all are present
  size_t index = 0;    // of ours among them
  size_t chunk = 512;  // most tokens of ours in a step
  History history = History::kStraight;
  size_t max_others = 150;  // other tokens fed where the history takes some
  uint64_t seed = 1;        // of the batch mates: lengths, ids, chunks
};

// What really happened, for a test to assert that the batch mates was there.
struct BitsReport {
  size_t steps = 0;
  size_t full_steps = 0;   // with all `batch` sequences
  size_t mixed_steps = 0;  // with prompt chunks and single tokens
  size_t joins = 0, leaves = 0;
  size_t rollbacks = 0, forks = 0;
};

// Rows that `runner` must take in one step to run a chunk with any batch mates.
inline constexpr size_t kBatchMateRows = 192;

// Logits [vocab] of a position of the sequence. A position that is replayed comes again.
using PositionSink = std::function<void(size_t position, std::span<const float> logits)>;

// Feeds ids[state->length(), ids.size()) to `state`, which may be replaced by its fork.
BitsReport RunWithBatchMates(ModelRunner& runner, std::span<const int32_t> ids, const BitsPlan& plan,
                             std::unique_ptr<SequenceState>& state, const PositionSink& sink);

// `count` ids below vocab, the same everywhere.
std::vector<int32_t> RandomIds(uint64_t seed, size_t count, size_t vocab);

// 64-bit FNV-1a.
class FnvHash {
 public:
  void Add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) hash_ = (hash_ ^ std::to_integer<uint64_t>(b)) * 0x100000001B3U;
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325U;
};

// What a way to run has to give: logits of all positions, and the state as bytes.
class BitsReference {
 public:
  // Runs ids alone in chunks of 512. `runner` may go afterwards.
  BitsReference(ModelRunner& runner, std::span<const int32_t> ids);

  std::span<const int32_t> ids() const { return ids_; }
  // A fork of it, rolled back to `length` positions. Stops the program where windows have forgotten what they would see there: of a
  // model with windows only the whole length is sure.
  std::unique_ptr<SequenceState> StateAt(size_t length) const;
  std::vector<std::byte> Checkpoint(size_t length) const;  // of the first `length` positions
  uint64_t LogitsHash(size_t length) const;                // of the first `length` positions
  // Of the rows that end a checkpoint: what stands before them says whose it is.
  uint64_t StateHash(size_t length) const;

  // A sink that compares with our logits and keeps the first difference.
  PositionSink Comparer();
  // Empty when all logits of positions [first, length) came with our bytes, else where they first differ. Forgets what the comparer saw.
  std::string CompareLogits(size_t first, size_t length);
  // Empty when the state has our bytes up to its length, else where it first differs.
  std::string CompareState(SequenceState& state) const;

 private:
  size_t vocab_;
  std::vector<int32_t> ids_;
  std::vector<float> logits_;  // [ids, vocab]
  std::unique_ptr<SequenceState> state_;
  std::vector<bool> seen_;
  std::string difference_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_BITS_RUN_H_
