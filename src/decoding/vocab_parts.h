// How a pass over all logits of one step is shared among threads: in a few parts of whole chunks of 64 tokens. What a pass leaves is
// integers, or numbers of each chunk, so that results do not depend on the parts.
#ifndef TIDEMILL_DECODING_VOCAB_PARTS_H_
#define TIDEMILL_DECODING_VOCAB_PARTS_H_

#include <algorithm>
#include <cstddef>

#include "base/thread_pool.h"

namespace tidemill {

class VocabParts {
 public:
  // More gain little: a part of 150000 tokens would take less than 60 microseconds, its thread up to 5 to begin.
  static constexpr size_t kMost = 4;
  static constexpr size_t kLeastTokens = 16384;

  VocabParts() = default;  // one part, in the calling thread
  // `threads`: borrowed; null: as above.
  VocabParts(ThreadPool* threads, size_t vocab_size)
      : threads_(threads),
        count_(threads == nullptr
                   ? 1
                   : std::clamp<size_t>(vocab_size / kLeastTokens, 1, std::min(kMost, threads->num_threads()))) {}

  size_t count() const { return count_; }

  // Calls pass(part, first, end) for each part's chunks of `num_chunks`, some of them at once; returns when all are done.
  template <typename Pass>
  void ForEach(size_t num_chunks, const Pass& pass) const {
    const auto part = [&](size_t i, size_t) { pass(i, num_chunks * i / count_, num_chunks * (i + 1) / count_); };
    if (count_ == 1) {
      part(0, 0);
    } else {
      threads_->ParallelFor(count_, part);
    }
  }

 private:
  ThreadPool* threads_ = nullptr;
  size_t count_ = 1;
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_VOCAB_PARTS_H_
