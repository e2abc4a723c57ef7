// The best few of many logits without sorting them all. The order everywhere: larger logit first, of equal ones the lower
// id; it is total, so a selection does not depend on the algorithm.
#ifndef TIDEMILL_DECODING_TOKEN_RANKING_H_
#define TIDEMILL_DECODING_TOKEN_RANKING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tidemill {

// A list of candidate tokens; masked ones (-infinity) never enter. Room for the whole vocabulary is reserved at the start,
// though its pages become resident only when they are used.
class TokenRanking {
 public:
  explicit TokenRanking(size_t vocab_size);  // throws std::bad_alloc

  // chunk_max of ScanLogits says where not to look. All logits must be numbers.
  // The candidates become all tokens with logit >= threshold, by ascending id. Cost: the chunks that hold one.
  void KeepAtLeast(std::span<const float> logits, std::span<const float> chunk_max, float threshold);

  // The candidates become the k best tokens (all if there are fewer), best first. k >= 1.
  // Cost: for k up to vocab / 64 about one pass over chunk_max and k chunks; beyond, a selection over all tokens.
  void KeepBest(std::span<const float> logits, std::span<const float> chunk_max, size_t k);

  // Puts the best of the candidates [begin, size) into [begin, end), best first. For sorting in steps.
  void SortBest(size_t begin, size_t end);

  void Move(size_t from, size_t to) { keys_[to] = keys_[from]; }
  void Truncate(size_t size) { keys_.resize(size); }

  size_t size() const { return keys_.size(); }
  size_t id(size_t i) const { return static_cast<uint32_t>(keys_[i]); }

 private:
  std::vector<uint64_t> keys_;      // candidates: order of the logit above, id below; ascending is best first
  std::vector<float> chunk_order_;  // [NumChunks(vocab)] scratch of KeepBest
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_TOKEN_RANKING_H_
