#include "decoding/token_history.h"

#include <algorithm>

#include "base/check.h"

namespace tidemill {

TokenHistory::TokenHistory(size_t vocab_size, size_t max_positions, bool count_tokens) : vocab_size_(vocab_size) {
  ids_.reserve(max_positions);
  if (count_tokens) {
    place_.resize(vocab_size, 0);
    distinct_.reserve(std::min(vocab_size, max_positions));
  }
}

void TokenHistory::Count(int32_t id, uint32_t generated) {
  if (place_.empty() || !InVocabulary(id)) return;
  uint32_t& place = place_[static_cast<size_t>(id)];
  if (place == 0) {
    distinct_.push_back({id, 0});
    place = static_cast<uint32_t>(distinct_.size());
  }
  distinct_[place - 1].times_generated += generated;
}

void TokenHistory::Prime(std::span<const int32_t> prompt) {
  for (const DistinctToken& token : distinct_) place_[static_cast<size_t>(token.id)] = 0;
  distinct_.clear();
  ids_.assign(prompt.begin(), prompt.end());
  num_prompt_tokens_ = prompt.size();
  for (const int32_t id : prompt) Count(id, 0);
  num_prompt_distinct_ = distinct_.size();
}

void TokenHistory::Accept(int32_t id) {
  TIDEMILL_CHECK(InVocabulary(id));
  ids_.push_back(id);
  Count(id, 1);
}

void TokenHistory::Retract(size_t count) {
  TIDEMILL_CHECK(count <= num_generated());
  for (; count != 0; --count) {
    const int32_t id = ids_.back();
    ids_.pop_back();
    if (place_.empty()) continue;
    uint32_t& place = place_[static_cast<size_t>(id)];
    if (--distinct_[place - 1].times_generated != 0 || place <= num_prompt_distinct_) continue;
    distinct_.pop_back();  // the last one that appeared first
    place = 0;
  }
}

void TokenHistory::ApplyPenalties(float repetition, float presence, float frequency, std::span<float> logits) const {
  TIDEMILL_CHECK(logits.size() == vocab_size_ && place_.size() == vocab_size_);
  for (const DistinctToken& token : distinct_) {
    float& logit = logits[static_cast<size_t>(token.id)];
    if (repetition != 1.0f) logit = logit < 0.0f ? logit * repetition : logit / repetition;
    if (token.times_generated > 0) logit -= presence + frequency * static_cast<float>(token.times_generated);
  }
}

}  // namespace tidemill
