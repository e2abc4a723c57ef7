// States of requests that ended, for prompts that begin with the same ids. A prompt continues from a fork, which copies no row; rows are
// those that it would compute itself, bit for bit.
#ifndef TIDEMILL_RUNTIME_PREFIX_CACHE_H_
#define TIDEMILL_RUNTIME_PREFIX_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "state/sequence_state.h"

namespace tidemill {

size_t CommonTokens(std::span<const int32_t> a, std::span<const int32_t> b);

// Of a prompt that begins as `ids` do: the tokens that a fork of their state saves it. Its last token is computed in any case, and a state
// that forgets what is old goes back only so far. 0: none, or too few to be worth a fork.
size_t SharedPrefix(std::span<const int32_t> prompt, std::span<const int32_t> ids, const SequenceState& state);

class PrefixCache {
 public:
  // Fewer tokens in common are computed again: a fork keeps whole blocks of rows in memory.
  static constexpr size_t kFewestTokens = 16;

  explicit PrefixCache(uint64_t limit) : limit_(limit) {}  // bytes

  struct Found {
    SequenceState* state = nullptr;  // valid until the next call that is not const; null: none
    size_t length = 0;               // SharedPrefix
  };
  // The state that saves the prompt most; it counts as used now.
  Found Find(std::span<const int32_t> prompt, std::string_view salt);

  // A state of exactly `ids`. Replaces those that it can go back to; dropped where it is too large, or one that is here can go back to it.
  // Throws std::bad_alloc.
  void Keep(std::span<const int32_t> ids, std::string_view salt, std::unique_ptr<SequenceState> state);

  // Memory of all states; rows that several share count in each.
  uint64_t bytes() const { return bytes_; }
  size_t size() const { return leaves_.size(); }
  // The one that was used least recently. False: there is none.
  bool DropOldest();

 private:
  struct Leaf {
    std::vector<int32_t> ids;
    std::string salt;
    std::unique_ptr<SequenceState> state;
    uint64_t bytes = 0, used = 0;
  };

  uint64_t limit_, bytes_ = 0, clock_ = 0;
  std::vector<Leaf> leaves_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_PREFIX_CACHE_H_
