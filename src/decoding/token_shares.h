// Token weights as integers, whose sums do not depend on their order: top_p and the sampled token are found in them.
//   share(logit) = TokenWeight(logit) * 2^b to the nearest integer, of two the even one;  b = ShareBits(vocab), 45 for 150000
// The best token's share is 2^b; every sum of shares is exact and below 2^63.
// Error: rounding moves a share by at most 1/2 and the sum, at least 2^b, by at most vocab / 2. So a probability p moves by at most
// (p vocab + 1) 2^-(b + 1): 2^-28 if all of 150000 tokens round the same way, 3e-12 in practice. A token that weighs less than
// 2^-(b + 1) has no share and is never sampled.
//
// The passes over chunks of 64 tokens; one routine per level of instructions (Highway), equal results from all. Allocate nothing.
#ifndef TIDEMILL_DECODING_TOKEN_SHARES_H_
#define TIDEMILL_DECODING_TOKEN_SHARES_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/isa.h"
#include "decoding/vocab_parts.h"
#include "decoding/vocab_scan.h"

namespace tidemill {

constexpr int ShareBits(size_t vocab_size) { return std::min(51, 63 - static_cast<int>(std::bit_width(vocab_size))); }

struct ShareRule {
  ShareRule(float best, double inverse, size_t vocab_size)
      : max(best), inverse_temperature(inverse), rounding(std::ldexp(1.0, 52 - ShareBits(vocab_size))) {}

  float max;                   // of all logits, finite
  double inverse_temperature;  // > 0
  double rounding;             // 2^(52 - b): the last unit of weight + rounding is 2^-b, so its last bits are the share

  uint64_t ShareOf(float logit) const {
    return std::bit_cast<uint64_t>(TokenWeight(logit, max, inverse_temperature) + rounding) -
           std::bit_cast<uint64_t>(rounding);
  }
  // By bisection between the lowest number, which is the answer for 0, and max, which weighs 1. weight: 0..1.
  float LowestOfWeight(double weight) const;
};

struct LogitInterval {
  float low, high;  // both belong to it; finite, so masked tokens never do
};

// Intervals of logits in descending order: `range` below `high` cut into equal ones; what is above is in the first, what is
// below in the last. Rounding may move an edge, but larger logits never come into later buckets.
struct BucketMap {
  static constexpr size_t kBuckets = 512;
  static constexpr double kFirst = 0x1p52;
  static constexpr double kLast = kFirst + static_cast<double>(kBuckets - 1);
  static constexpr double kNone = kLast + 1.0;

  // range > 0; at least 2^-30 |high| is taken, so that places are exact enough to part any two f32 that are `range` apart.
  BucketMap(float high, double range);

  double slope, offset;  // offset - slope * logit = 2^52 + bucket: its last bits are the bucket

  size_t BucketOf(float logit) const {
    const double place = offset - static_cast<double>(logit) * slope;  // as the vectors: never fused
    return static_cast<uint32_t>(std::bit_cast<uint64_t>(std::clamp(place, kFirst, kLast)));
  }
  // The logits within `of` that are in the bucket; one of them is.
  LogitInterval IntervalOf(size_t bucket, LogitInterval of) const;
};

struct ChunkRun {          // borrowed
  const float* logits;     // [num_chunks * 64]
  const float* chunk_max;  // [num_chunks], at least the largest logit of each
  size_t num_chunks;
  size_t first_id;  // of the first logit's token

  ChunkRun Part(size_t first, size_t end) const {
    return {logits + first * kChunkTokens, chunk_max + first, end - first, first_id + first * kChunkTokens};
  }
};

// Shares and numbers of tokens by bucket, in eight tables that neighbours take in turn: adding to one place in memory again
// and again takes 8 cycles, and equal logits do that. The bucket after the last is for tokens of no interest.
struct BucketSums {
  static constexpr size_t kWays = 8;
  static constexpr size_t kStride = BucketMap::kBuckets + 8;

  uint64_t shares[kWays * kStride];
  uint32_t counts[kWays * kStride];
};

// What a pass over the buckets adds. kAllShares: shares, of every token; none is above `of` or, but for masked ones, below it.
enum class BucketPass { kAllShares, kSharesAndCounts };

struct BucketFill {
  BucketPass pass;
  ShareRule rule;
  LogitInterval of;  // the tokens that are added
  BucketMap map;
  float least = kLowestLogit;  // of the tokens whose shares are summed
};

//   chunk_sum[c] = sum of the shares in the chunk of logits >= least; returns the sum of chunk_sum
uint64_t SumShares(Isa isa, std::span<const float> logits, std::span<const float> chunk_max, const ShareRule& rule,
                   float least, std::span<uint64_t> chunk_sum, const VocabParts& parts = {});

// Adds each token within fill.of to its bucket. Returns the sum of shares of logits >= least: of all of them, if of.low <= least,
// else at least of those >= of.low.
// Cost: about 45 f64 operations and one or two additions in memory a token; tokens below `of` cost little in bulk.
uint64_t AddToBuckets(Isa isa, const ChunkRun& run, const BucketFill& fill, BucketSums* sums);

// The tokens of an interval: how many, their range, and as long as there is room their keys (token_key.h), by ascending id.
struct Members {
  static constexpr size_t kRoom = 2048;

  size_t count = 0;
  LogitInterval range = {};
  size_t listed = 0;  // how many are in keys: `count`, unless there was no room
  std::span<uint64_t, kRoom> keys;
};

// Adds those of some chunks. Cost: two comparisons a token.
void AddMembers(Isa isa, const ChunkRun& run, LogitInterval of, Members* members);

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_TOKEN_SHARES_H_
