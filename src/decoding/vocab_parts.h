// How a pass over all logits of one step is shared among threads: in a few parts of whole chunks of tokens. What a pass leaves is integers,
// or numbers of each chunk, so that results do not depend on the parts.
#ifndef TIDEMILL_DECODING_VOCAB_PARTS_H_
#define TIDEMILL_DECODING_VOCAB_PARTS_H_

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/thread_pool.h"

namespace tidemill {

inline constexpr size_t kChunkTokens = 64;

constexpr size_t NumChunks(size_t vocab_size) { return (vocab_size + kChunkTokens - 1) / kChunkTokens; }

class VocabParts {
 public:
  // Each has sums of its own (50 KB, ranked_sums.h). Measured with one and two alone.
  static constexpr size_t kMost = 4;
  // Of a part, which takes 35 microseconds and more of a Zen 3: less is soon done by one thread, which need not wait for another.
  static constexpr size_t kLeastTokens = 16384;

  VocabParts() = default;  // one part, in the calling thread
  // `threads`: borrowed; null: as above.
  VocabParts(ThreadPool* threads, size_t vocab_size)
      : threads_(threads),
        count_(threads == nullptr
                   ? 1
                   : std::clamp<size_t>(vocab_size / kLeastTokens, 1, std::min(kMost, threads->num_threads()))) {}

  size_t count() const { return count_; }

  // For a pass that skips the chunks whose largest logit is below `least`: one part where little is left.
  VocabParts ForChunksUpTo(float least, std::span<const float> chunk_max) const {
    const auto left = std::count_if(chunk_max.begin(), chunk_max.end(), [&](float max) { return max >= least; });
    return static_cast<size_t>(left) * kChunkTokens < 2 * kLeastTokens ? VocabParts() : *this;
  }

  // Calls pass(part, first, end) for each part's chunks of `num_chunks`, some of them at once; returns when all are done. `pass` must
  // not throw. With threads a loop of theirs (ThreadPool::ParallelFor): not from the body of another.
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
