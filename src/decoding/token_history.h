// What a sequence has said so far, as the penalties see it: the ids of prompt and answer, and which of them are distinct.
// Everything but the ids is derived from them: a sequence is saved as ids() and num_prompt_tokens(), and restored by Prime
// and Accept.
#ifndef TIDEMILL_DECODING_TOKEN_HISTORY_H_
#define TIDEMILL_DECODING_TOKEN_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tidemill {

class TokenHistory {
 public:
  // count_tokens: keep what ApplyPenalties needs, 4 bytes for each token of the vocabulary.
  // max_positions: room to reserve; up to it Accept allocates nothing. Throws std::bad_alloc.
  TokenHistory(size_t vocab_size, size_t max_positions, bool count_tokens);

  // Forgets everything and starts with `prompt`. Ids outside the vocabulary can be embedded but not generated (some models
  // have more embeddings than logits); no penalty concerns them.
  void Prime(std::span<const int32_t> prompt);

  // One generated token, 0 <= id < vocab_size.
  void Accept(int32_t id);
  // Takes the last `count` <= num_generated() accepted tokens back, as if they had not been.
  void Retract(size_t count);

  std::span<const int32_t> ids() const { return ids_; }  // prompt, then answer
  size_t num_prompt_tokens() const { return num_prompt_tokens_; }
  size_t num_generated() const { return ids_.size() - num_prompt_tokens_; }

  // Every distinct token l of prompt and answer, in this order:
  //   l = l < 0 ? l * repetition : l / repetition             unless repetition is 1
  //   l = l - presence - frequency * (times in the answer)    if it is in the answer
  // Cost: O(distinct tokens). Needs count_tokens.
  void ApplyPenalties(float repetition, float presence, float frequency, std::span<float> logits) const;

  // Calls ban(id) for each token that, put next, would end an n-gram that prompt and answer already hold; an id may come
  // more than once. n >= 1; n = 1 bans every token seen. Cost: one pass over ids().
  template <typename Ban>
  void ForEachRepeatOfNgram(size_t n, Ban ban) const {
    if (ids_.size() < n) return;
    const size_t prefix = n - 1;
    const int32_t* const recent = ids_.data() + (ids_.size() - prefix);
    for (size_t start = 0; start + prefix < ids_.size(); ++start) {
      size_t same = 0;
      while (same < prefix && ids_[start + same] == recent[same]) ++same;
      if (same == prefix && InVocabulary(ids_[start + prefix])) ban(ids_[start + prefix]);
    }
  }

 private:
  struct DistinctToken {
    int32_t id;
    uint32_t times_generated;
  };

  bool InVocabulary(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < vocab_size_; }
  void Count(int32_t id, uint32_t generated);

  size_t vocab_size_;
  size_t num_prompt_tokens_ = 0;
  size_t num_prompt_distinct_ = 0;  // of distinct_, those that the prompt has
  std::vector<int32_t> ids_;
  std::vector<DistinctToken> distinct_;  // in order of first appearance
  std::vector<uint32_t> place_;          // [vocab] 1 + index in distinct_, 0 if not seen; empty unless count_tokens
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_TOKEN_HISTORY_H_
