// Splits a pass over all logits of one step among threads, in a few parts of whole chunks. Results are integers or numbers of each chunk,
// so they do not depend on the parts.
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
  // Each has its own sums (50 KB, ranked_sums.h). Measured with one and two parts only.
  static constexpr size_t kMax = 4;
  // Of a part, at least 35 microseconds of a Zen 3: below that, waiting for another thread costs more.
  static constexpr size_t kMinTokens = 16384;

  VocabParts() = default;  // one part, in the calling thread
  // `threads`: borrowed; null: as above.
  VocabParts(ThreadPool* threads, size_t vocab_size)
      : threads_(threads),
        count_(threads == nullptr
                   ? 1
                   : std::clamp<size_t>(vocab_size / kMinTokens, 1, std::min(kMax, threads->num_threads()))) {}

  size_t count() const { return count_; }

  // For a pass that skips chunks whose largest logit is below `least`: one part if little is left.
  VocabParts ForChunksUpTo(float least, std::span<const float> chunk_max) const {
    const auto left = std::count_if(chunk_max.begin(), chunk_max.end(), [&](float max) { return max >= least; });
    return static_cast<size_t>(left) * kChunkTokens < 2 * kMinTokens ? VocabParts() : *this;
  }

  // Calls pass(part, first, end) for each part's chunks of `num_chunks`, in parallel; returns when all are done. `pass` must not throw. A
  // ThreadPool::ParallelFor: not from the body of another.
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
