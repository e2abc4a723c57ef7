// The best few of many logits without sorting them all, in the order of token_key.h.
#ifndef TIDEMILL_DECODING_TOKEN_RANKING_H_
#define TIDEMILL_DECODING_TOKEN_RANKING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "decoding/token_key.h"

namespace tidemill {

// A list of candidate tokens; masked ones (-infinity) never enter. There is room for the whole vocabulary, 8 bytes a
// token, whose pages become resident only when that many candidates are needed.
class TokenRanking {
 public:
  explicit TokenRanking(size_t vocab_size);  // throws std::bad_alloc

  // chunk_max of ScanLogits says where not to look. All logits must be numbers.
  // The candidates become all tokens with logit >= threshold, by ascending id. Cost: the chunks that hold one.
  void KeepAtLeast(std::span<const float> logits, std::span<const float> chunk_max, float threshold);

  // The candidates become the k best tokens (all if there are fewer), best first. k >= 1.
  // Cost: for k up to vocab / 64 about one pass over chunk_max and k chunks; beyond, a selection over all tokens.
  void KeepBest(std::span<const float> logits, std::span<const float> chunk_max, size_t k);

  // A logit that the k best tokens reach, others too; the lowest number for k > vocab / 64.
  float FloorOfBest(std::span<const float> chunk_max, size_t k);

  // Puts the candidates of KeepAtLeast best first.
  void Sort();

  size_t size() const { return size_; }
  size_t id(size_t i) const { return IdOfKey(keys_[i]); }

 private:
  size_t vocab_size_;
  size_t size_ = 0;
  std::unique_ptr<uint64_t[]> keys_;  // [vocab] candidates: TokenKey of each
  std::vector<float> chunk_order_;    // [NumChunks(vocab)] scratch of FloorOfBest
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_TOKEN_RANKING_H_
