// States of requests that ended, and snapshots of some that run, for prompts that begin with the same ids. A prompt continues from a fork,
// which copies no row; its rows are those that it would compute itself, bit for bit.
#ifndef TIDEMILL_RUNTIME_PREFIX_CACHE_H_
#define TIDEMILL_RUNTIME_PREFIX_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "state/sequence_state.h"

namespace tidemill {

size_t CommonTokens(std::span<const int32_t> a, std::span<const int32_t> b);

// Those of `ids` that a prompt, not empty, begins with and need not compute: its last token is computed in any case.
size_t ReusableTokens(std::span<const int32_t> prompt, std::span<const int32_t> ids);

// ReusableTokens as far as a fork of the state of `ids` has them: a state that forgets what is old goes back only so far. 0: none, or fewer
// than `fewest`.
size_t SharedPrefix(std::span<const int32_t> prompt, std::span<const int32_t> ids, const SequenceState& state,
                    size_t fewest);

// Who may share: requests of one salt, whose states are of one numeric class (StateIdentity).
struct SharingGroup {
  std::string_view salt = {};
  uint64_t numeric_class = 0;
  friend bool operator==(const SharingGroup&, const SharingGroup&) = default;
};

class PrefixCache {
 public:
  // Fewer tokens in common are computed again: a fork keeps whole blocks of rows in memory.
  static constexpr size_t kFewestTokens = 16;

  explicit PrefixCache(uint64_t limit) : limit_(limit) {}  // bytes
  size_t fewest_tokens() const { return fewest_tokens_; }
  void set_fewest_tokens(size_t tokens) { fewest_tokens_ = tokens; }  // in place of kFewestTokens

  struct Found {
    SequenceState* state = nullptr;  // valid until the next call that is not const; null: none
    size_t length = 0;               // SharedPrefix
    SequenceState* draft = nullptr;  // a drafter's state of some of the same tokens; null: none
  };
  // The state that saves the prompt most; it counts as used now.
  Found Find(std::span<const int32_t> prompt, const SharingGroup& group);

  // A state of exactly `ids`, and perhaps a drafter's of the first ones. Replaces those that it can go back to; dropped where it is too
  // large, or one that is here can go back to it. Throws std::bad_alloc.
  void Keep(std::span<const int32_t> ids, std::string_view salt, std::unique_ptr<SequenceState> state,
            std::unique_ptr<SequenceState> draft = nullptr);

  uint64_t bytes() const { return bytes_; }  // of all states; what several share counts once
  size_t size() const { return leaves_.size(); }
  // The one that was used least recently. False: there is none.
  bool DropOldest();
  void Clear();
  void ForEachBlock(const LayerState::BlockVisitor& visit) const;

  uint64_t hits() const { return hits_; }            // prompts that found a prefix
  uint64_t evictions() const { return evictions_; }  // states that went for lack of memory
  void CountHit() { ++hits_; }

 private:
  struct Leaf {
    std::vector<int32_t> ids;
    std::string salt;
    std::unique_ptr<SequenceState> state, draft;
    uint64_t used = 0;

    SharingGroup group() const { return {salt, state->identity().numeric_class}; }
  };
  struct Block {
    size_t states = 0;  // that have it
    uint64_t bytes = 0;
  };

  void TakeDraft(Leaf& leaf, std::unique_ptr<SequenceState> draft);  // may erase the leaf
  void Count(const Leaf& leaf);
  void Uncount(const Leaf& leaf, size_t first_blocks = SIZE_MAX);

  static void ForEachBlock(const Leaf& leaf, const LayerState::BlockVisitor& visit);

  size_t fewest_tokens_ = kFewestTokens;
  uint64_t limit_, bytes_ = 0, clock_ = 0, hits_ = 0, evictions_ = 0;
  std::unordered_map<const void*, Block> blocks_;
  std::vector<Leaf> leaves_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_PREFIX_CACHE_H_
