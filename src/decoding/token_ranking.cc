#include "decoding/token_ranking.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "base/check.h"
#include "decoding/vocab_scan.h"

namespace tidemill {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();  // everything but a masked token is at least this

// Ascending keys are descending logits, then ascending ids.
uint64_t KeyOf(float logit, size_t id) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 becomes +0: they are equal
  const uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return uint64_t{~ascending} << 32 | id;
}

}  // namespace

TokenRanking::TokenRanking(size_t vocab_size) {
  keys_.reserve(vocab_size);
  chunk_order_.reserve(NumChunks(vocab_size));
}

void TokenRanking::KeepAtLeast(std::span<const float> logits, std::span<const float> chunk_max, float threshold) {
  TIDEMILL_DCHECK(logits.size() <= keys_.capacity() && chunk_max.size() == NumChunks(logits.size()));
  threshold = std::max(threshold, kLowest);
  keys_.clear();
  for (size_t c = 0; c < chunk_max.size(); ++c) {
    if (chunk_max[c] < threshold) continue;
    const size_t end = std::min(logits.size(), (c + 1) * kChunkTokens);
    for (size_t id = c * kChunkTokens; id < end; ++id) {
      if (logits[id] >= threshold) keys_.push_back(KeyOf(logits[id], id));
    }
  }
}

void TokenRanking::KeepBest(std::span<const float> logits, std::span<const float> chunk_max, size_t k) {
  TIDEMILL_DCHECK(k >= 1);
  float threshold = kLowest;
  if (k <= chunk_max.size()) {
    // k chunks hold a token at least as large as the k-th largest chunk maximum, so the k best tokens are that large.
    chunk_order_.assign(chunk_max.begin(), chunk_max.end());
    const auto kth = chunk_order_.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(chunk_order_.begin(), kth, chunk_order_.end(), std::greater<>());
    threshold = *kth;
  }
  KeepAtLeast(logits, chunk_max, threshold);
  SortBest(0, std::min(k, size()));
  Truncate(std::min(k, size()));
}

void TokenRanking::SortBest(size_t begin, size_t end) {
  TIDEMILL_DCHECK(begin <= end && end <= size());
  const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = keys_.begin() + static_cast<std::ptrdiff_t>(end);
  if (last != keys_.end()) std::nth_element(first, last, keys_.end());
  std::sort(first, last);
}

}  // namespace tidemill
