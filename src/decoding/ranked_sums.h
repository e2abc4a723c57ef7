// Where in the order of token_key.h a running sum of shares, or a number of tokens, passes a value, without sorting the tokens.
// Shares are integers, so the order of addition does not matter.
//
// One pass adds each token to one of 512 buckets, intervals of logits. A search walks to the bucket where the sum passes, then
// lists, sorts and walks its tokens. More than 2048 tokens are split into 512 buckets again; if all are equal, a division
// says how many are needed.
//
// Won: buckets, 242 us for 150000 logits of sigma 3 with top_p 0.95 against 1806 us with a radix sort; a pass that only sums shares
// takes 155 us (one thread of a Zen 4, AVX-512, gcc 12, benchmarks/decoding).
// Lost: one table of sums in place of eight, in the loop that computes exps (370 us); four tables; 256 buckets; a separate counting
// pass for top_k.
#ifndef TIDEMILL_DECODING_RANKED_SUMS_H_
#define TIDEMILL_DECODING_RANKED_SUMS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/isa.h"
#include "decoding/token_shares.h"
#include "decoding/vocab_parts.h"

namespace tidemill {

class RankedSums {
 public:
  // `parts` run the passes of Start and of searches; their threads are borrowed. Throws std::bad_alloc.
  explicit RankedSums(size_t vocab_size, const VocabParts& parts = {});

  // The tokens of one step with logit >= floor. Both spans must live until the last search.
  //   logits : [vocab], numbers      chunk_max : [NumChunks(vocab)] of ScanLogits      floor, least : finite, <= rule.max
  // counts: whether FindRank will be asked.      Cost: AddToBuckets of the chunks that reach up to floor.
  void Start(Isa isa, std::span<const float> logits, std::span<const float> chunk_max, const ShareRule& rule,
             float floor, float least, bool counts);

  uint64_t shares() const { return shares_; }          // sum of all
  uint64_t num_tokens() const { return num_tokens_; }  // if `counts`
  // Sum of those with logit >= least; if least < floor, something that is not less than shares().
  uint64_t shares_at_least() const { return at_least_; }

  struct Found {
    float logit;
    size_t id;
    uint64_t shares;  // of the token and all better ones
  };
  // The first token with target < shares of it and all better ones. target < shares().
  Found FindShare(uint64_t target) { return Find(Measure::kShares, target); }
  // The token that `rank` others are better than; needs `counts`. rank < num_tokens().
  Found FindRank(uint64_t rank) { return Find(Measure::kTokens, rank); }
  // Cost of both: comparisons with the logits of the chunks that reach into one bucket, and a sort of that bucket.

 private:
  enum class Measure { kShares, kTokens };
  struct Bucket {
    uint64_t shares;
    uint64_t tokens;
    uint64_t Of(Measure measure) const { return measure == Measure::kShares ? shares : tokens; }
  };
  using Buckets = std::array<Bucket, BucketMap::kBuckets>;

  BucketMap UsefulMap(float floor);
  uint64_t FillBuckets(const BucketFill& fill, Buckets* buckets);
  Members MembersOf(LogitInterval of);
  size_t IdOfEqual(float logit, uint64_t index) const;
  Found Find(Measure measure, uint64_t target);

  Isa isa_ = Isa::kBaseline;
  std::span<const float> logits_;     // the caller's, from Start on
  std::span<const float> chunk_max_;  // the caller's, from Start on
  ShareRule rule_ = {0.0f, 1.0, 1};
  std::array<ChunkRun, 2> runs_;  // of logits_, and of last_chunk_
  size_t num_runs_ = 0;
  float last_chunk_[kChunkTokens];
  LogitInterval range_ = {};  // of the tokens
  uint64_t shares_ = 0;
  uint64_t num_tokens_ = 0;
  uint64_t at_least_ = 0;
  BucketMap map_ = {0.0f, 1.0};         // of range_
  Buckets buckets_;                     // of map_
  Buckets fine_buckets_;                // scratch of Find
  VocabParts parts_;                    // as given
  VocabParts step_parts_;               // of this step
  std::unique_ptr<BucketSums[]> sums_;  // of each part, cleared before use: scratch of FillBuckets
  std::vector<uint64_t> keys_;          // [2048] scratch of Find
  std::vector<float> sample_;           // scratch of UsefulMap
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_RANKED_SUMS_H_
