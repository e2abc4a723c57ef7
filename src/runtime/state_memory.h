// The one bound on what an engine's sequences remember: rows and keys of requests, of cached prefixes and of drafters, and a draft head's
// features.
//
//   held      allocated; what several share counts once (state/state_ledger.h)
//   promised  what running requests still need for the tokens that they know, as far as there is room
//
// held + promised <= limit. For what does not fit, cached prefixes go first, then drafters' states, then states of saved requests that wait,
// then the youngest running request (runtime/scheduler.h).
#ifndef TIDEMILL_RUNTIME_STATE_MEMORY_H_
#define TIDEMILL_RUNTIME_STATE_MEMORY_H_

#include <algorithm>
#include <cstdint>

#include "runtime/prefix_cache.h"
#include "state/state_ledger.h"

namespace tidemill {

class StateMemory {
 public:
  explicit StateMemory(uint64_t limit) : limit_(limit), prefix_cache_(limit / 2) {}

  uint64_t limit() const { return limit_; }
  StateLedger& ledger() { return ledger_; }
  PrefixCache& prefix_cache() { return prefix_cache_; }
  const PrefixCache& prefix_cache() const { return prefix_cache_; }
  uint64_t held() const { return ledger_.held(); }
  uint64_t promised() const { return promised_; }
  // As much of `bytes` as fits; the prefix cache gives what is missing.
  uint64_t Promise(uint64_t bytes) {
    const uint64_t given = Fits(bytes) ? bytes : limit_ - std::min(limit_, held() + promised_);
    promised_ += given;
    return given;
  }
  void TakeBack(uint64_t bytes) { promised_ -= bytes; }

  // Whether so many bytes more would fit beside what is held and promised if the prefix cache gave all that it has, and others so much.
  bool MayFit(uint64_t more, uint64_t given = 0) const {
    const uint64_t room = limit_ - std::min(limit_, promised_), all_given = prefix_cache_.bytes() + given;
    return more <= room && held() - std::min(held(), all_given) <= room - more;
  }
  // Whether they fit, once the prefix cache has given what is missing.
  bool Fits(uint64_t more) {
    if (!MayFit(more)) return false;
    const uint64_t most = limit_ - promised_ - more;
    while (held() > most && prefix_cache_.DropOldest()) {
    }
    return held() <= most;
  }
  // Drafters take nothing while a request waits for memory.
  void KeepFromDrafts(bool is_wanted) { is_wanted_ = is_wanted; }
  bool FitsDrafts(uint64_t more) { return !is_wanted_ && Fits(more); }

 private:
  uint64_t limit_, promised_ = 0;
  bool is_wanted_ = false;
  StateLedger ledger_;  // outlives what the cache holds
  PrefixCache prefix_cache_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_STATE_MEMORY_H_
