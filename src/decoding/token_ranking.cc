#include "decoding/token_ranking.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "decoding/token_key.h"
#include "decoding/vocab_scan.h"

namespace tidemill {

TokenRanking::TokenRanking(size_t vocab_size)
    : vocab_size_(vocab_size), keys_(std::make_unique_for_overwrite<uint64_t[]>(vocab_size)) {
  chunk_order_.reserve(NumChunks(vocab_size));
}

void TokenRanking::KeepAtLeast(std::span<const float> logits, std::span<const float> chunk_max, float threshold) {
  TIDEMILL_DCHECK(logits.size() == vocab_size_ && chunk_max.size() == NumChunks(vocab_size_));
  threshold = std::max(threshold, kLowestLogit);
  size_t size = 0;
  for (size_t c = 0; c < chunk_max.size(); ++c) {
    if (chunk_max[c] < threshold) continue;
    const size_t end = std::min(logits.size(), (c + 1) * kChunkTokens);
    for (size_t id = c * kChunkTokens; id < end; ++id) {
      keys_[size] = TokenKey(logits[id], id);  // size <= id; written always, kept or not: no branch to mispredict
      size += static_cast<size_t>(logits[id] >= threshold);
    }
  }
  size_ = size;
}

float TokenRanking::FloorOfBest(std::span<const float> chunk_max, size_t k) {
  TIDEMILL_DCHECK(k >= 1);
  if (k > chunk_max.size()) return kLowestLogit;
  // k chunks hold a token at least as large as the k-th largest chunk maximum, so the k best tokens are that large.
  chunk_order_.assign(chunk_max.begin(), chunk_max.end());
  const auto kth = chunk_order_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(chunk_order_.begin(), kth, chunk_order_.end(), std::greater<>());
  return std::max(*kth, kLowestLogit);
}

void TokenRanking::KeepBest(std::span<const float> logits, std::span<const float> chunk_max, size_t k) {
  KeepAtLeast(logits, chunk_max, FloorOfBest(chunk_max, k));
  if (k < size_) {
    std::nth_element(keys_.get(), keys_.get() + k, keys_.get() + size_);
    size_ = k;
  }
  std::sort(keys_.get(), keys_.get() + size_);
}

void TokenRanking::Sort() { std::sort(keys_.get(), keys_.get() + size_); }

}  // namespace tidemill
