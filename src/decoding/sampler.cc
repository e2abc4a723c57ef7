#include "decoding/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/check.h"
#include "decoding/exact_math.h"

namespace tidemill {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr size_t kAnyId = std::numeric_limits<uint32_t>::max();

// A part of `whole` > 0, rounded down; always less than `whole`. part: in [0, 1).
uint64_t PartOf(uint64_t whole, double part) {
  return std::min(static_cast<uint64_t>(part * static_cast<double>(whole)), whole - 1);
}

}  // namespace

Result<Sampler> Sampler::Create(const GenerationOptions& options, const SamplerSetting& setting) {
  constexpr auto kMaxVocab = static_cast<size_t>(std::numeric_limits<int32_t>::max());
  if (setting.vocab_size < 1 || setting.vocab_size > kMaxVocab) {
    return Error(ErrorCode::kInvalidArgument, "create sampler: vocab_size: expected 1.." + std::to_string(kMaxVocab) +
                                                  ", found " + std::to_string(setting.vocab_size));
  }
  TIDEMILL_TRY_VOID(Validate(options, setting.vocab_size));
  try {
    return Sampler(options, setting);
  } catch (const std::exception&) {  // bad_alloc, or length_error for an absurd max_positions
    return Error(ErrorCode::kOutOfMemory, "create sampler: no memory for a vocabulary of " +
                                              std::to_string(setting.vocab_size) + " tokens and " +
                                              std::to_string(setting.max_positions) + " positions");
  }
}

Sampler::Sampler(const GenerationOptions& options, const SamplerSetting& setting)
    : options_(options),
      isa_(setting.isa),
      vocab_size_(setting.vocab_size),
      penalizes_(options.repetition_penalty != 1.0f || options.presence_penalty != 0.0f ||
                 options.frequency_penalty != 0.0f),
      transforms_(penalizes_ || !options.logit_bias.empty() || options.no_repeat_ngram_size > 0 ||
                  options.min_new_tokens > 0 || !options.bad_words_ids.empty() || options.forced_bos_token_id ||
                  !options.forced_eos_token_id.empty() || !options.suppress_tokens.empty() ||
                  !options.begin_suppress_tokens.empty()),
      inverse_temperature_(options.temperature > 0.0f ? 1.0 / static_cast<double>(options.temperature) : 0.0),
      stream_{options.seed, setting.sequence},
      history_(setting.vocab_size, setting.max_positions, penalizes_),
      parts_(setting.threads, setting.vocab_size),
      sums_(setting.vocab_size, parts_),
      ranking_(setting.vocab_size) {
  if (static_cast<size_t>(options_.top_k) >= vocab_size_) options_.top_k = 0;
  ranks_ = options_.top_k > 0 || options_.top_p < 1.0f;
  for (const int32_t id : setting.eos_ids) {
    if (id >= 0 && static_cast<size_t>(id) < vocab_size_) eos_ids_.push_back(id);
  }
  chunk_max_.resize(NumChunks(vocab_size_));
  chunk_sum_.resize(NumChunks(vocab_size_));
  chunk_shares_.resize(NumChunks(vocab_size_));
  if (transforms_ && options_.logprobs >= 0) raw_logits_.resize(vocab_size_);
}

Error Sampler::NotANumber(std::span<const float> logits, size_t id) const {
  return Error(ErrorCode::kNumericalError, "sample token " + std::to_string(history_.ids().size()) +
                                               ": expected numbers as logits, found " +
                                               (std::isnan(logits[id]) ? "NaN" : "infinity") + " for token id " +
                                               std::to_string(id) + "; check the weights and the compute type");
}

// False, and no mask, if the logit is not a number: a mask must not hide that.
bool Sampler::Mask(std::span<float> logits, int32_t id) {
  float& logit = logits[static_cast<size_t>(id)];
  if (!(logit < std::numeric_limits<float>::infinity())) return false;
  logit = kMasked;
  return true;
}

void Sampler::MaskAll(std::span<float> logits, std::span<const int32_t> ids) {
  for (const int32_t id : ids) Mask(logits, id);
}

// 0 for `ids`, no other token.
void Sampler::Force(std::span<float> logits, std::span<const int32_t> ids) {
  const auto is_number = [](float logit) { return logit < std::numeric_limits<float>::infinity(); };
  for (float& logit : logits) logit = is_number(logit) ? kMasked : logit;
  for (const int32_t id : ids) {
    float& logit = logits[static_cast<size_t>(id)];
    if (is_number(logit)) logit = 0.0f;
  }
}

void Sampler::MaskBadWords(std::span<float> logits) {
  const std::span<const int32_t> ids = history_.ids();
  for (const std::vector<int32_t>& word : options_.bad_words_ids) {
    const std::span<const int32_t> before = std::span(word).first(word.size() - 1);
    if (before.size() > ids.size()) continue;
    const auto recent = ids.last(before.size());
    if (std::equal(before.begin(), before.end(), recent.begin())) Mask(logits, word.back());
  }
}

void Sampler::ForceAndSuppress(std::span<float> logits) {
  const size_t generated = history_.num_generated();
  const std::optional<int32_t>& bos = options_.forced_bos_token_id;
  if (bos && history_.ids().size() == 1) Force(logits, std::span(&*bos, 1));
  if (!options_.forced_eos_token_id.empty() && options_.max_new_tokens &&
      generated + 1 == static_cast<size_t>(*options_.max_new_tokens)) {
    Force(logits, options_.forced_eos_token_id);
  }
  MaskAll(logits, options_.suppress_tokens);
  const size_t begin = bos && history_.num_prompt_tokens() <= 1 ? 1 : 0;
  if (generated == begin) MaskAll(logits, options_.begin_suppress_tokens);
}

// 1 to 5, then one scan of the result: NaN and infinities of the model survive 1 to 3, and Mask looks before it writes.
Result<void> Sampler::Transform(std::span<float> logits) {
  if (transforms_) {
    for (const auto& [id, bias] : options_.logit_bias) logits[static_cast<size_t>(id)] += bias;
    if (penalizes_) {
      history_.ApplyPenalties(options_.repetition_penalty, options_.presence_penalty, options_.frequency_penalty,
                              logits);
    }
    if (options_.no_repeat_ngram_size > 0) {
      history_.ForEachRepeatOfNgram(static_cast<size_t>(options_.no_repeat_ngram_size),
                                    [&](int32_t id) { Mask(logits, id); });
    }
    MaskBadWords(logits);
    if (history_.num_generated() < static_cast<size_t>(options_.min_new_tokens)) MaskAll(logits, eos_ids_);
    ForceAndSuppress(logits);
  }
  const LogitScan scan = ScanLogits(isa_, logits, chunk_max_);
  if (!scan.all_numbers) {
    size_t id = 0;
    while (logits[id] < std::numeric_limits<float>::infinity()) ++id;
    return NotANumber(logits, id);
  }
  if (scan.max == kMasked) {
    return Error(ErrorCode::kNumericalError,
                 "sample token " + std::to_string(history_.ids().size()) +
                     ": no token is left, all logits are -infinity; check the weights, or allow more with "
                     "--no-repeat-ngram-size, --min-new-tokens and the model's generation_config.json");
  }
  max_ = scan.max;
  return {};
}

// Each of 7 to 9 keeps the best tokens down to some place, so what they keep together is the least of them.
Sampler::Survivors Sampler::SelectRanked(std::span<const float> logits) {
  const ShareRule rule(max_, inverse_temperature_, vocab_size_);
  const auto k = static_cast<size_t>(options_.top_k);
  const float floor = k > 0 ? ranking_.FloorOfBest(chunk_max_, k) : kLowestLogit;
  const float least = rule.LowestOfWeight(static_cast<double>(options_.min_p));
  sums_.Start(isa_, logits, chunk_max_, rule, floor, least, k > 0);
  Survivors survivors{.last_key = TokenKey(floor, kAnyId), .least = least, .shares = sums_.shares()};
  const auto keep = [&](const RankedSums::Found& last) {
    survivors.last_key = TokenKey(last.logit, last.id);
    survivors.shares = last.shares;
  };
  if (k > 0 && k < sums_.num_tokens()) keep(sums_.FindRank(k - 1));
  if (options_.top_p < 1.0f) {
    const double enough = std::ceil(static_cast<double>(options_.top_p) * static_cast<double>(survivors.shares));
    keep(sums_.FindShare(static_cast<uint64_t>(enough) - 1));  // top_p is above 0: enough >= 1
  }
  survivors.shares = std::min(survivors.shares, sums_.shares_at_least());
  return survivors;
}

size_t Sampler::DrawById(std::span<const float> logits, double uniform) {
  const ShareRule rule(max_, inverse_temperature_, vocab_size_);
  const float least = rule.LowestOfWeight(static_cast<double>(options_.min_p));
  uint64_t target = PartOf(SumShares(isa_, logits, chunk_max_, rule, least, chunk_shares_, parts_), uniform);
  size_t chunk = 0;
  while (target >= chunk_shares_[chunk]) target -= chunk_shares_[chunk++];
  for (size_t id = chunk * kChunkTokens;; ++id) {
    const uint64_t share = logits[id] >= least ? rule.ShareOf(logits[id]) : 0;
    if (target < share) return id;
    target -= share;
  }
}

// log p = l - max - log(sum of exp(l - max)). Everything but the choice, which comes later.
void Sampler::FillLogprobs(std::span<const float> raw_logits, SampledToken* out) {
  const double log_sum = static_cast<double>(max_) + Log(SumWeights(isa_, raw_logits, max_, 1.0, chunk_sum_, parts_));
  out->logprob = static_cast<float>(static_cast<double>(raw_logits[static_cast<size_t>(out->id)]) - log_sum);
  if (options_.logprobs == 0) return;
  ranking_.KeepBest(raw_logits, chunk_max_, static_cast<size_t>(options_.logprobs));
  out->num_top = ranking_.size();
  for (size_t i = 0; i < ranking_.size(); ++i) {
    const size_t id = ranking_.id(i);
    out->top_storage[i] = {static_cast<int32_t>(id), static_cast<float>(static_cast<double>(raw_logits[id]) - log_sum)};
  }
}

Result<SampledToken> Sampler::Sample(std::span<float> logits, uint32_t position) {
  TIDEMILL_CHECK(logits.size() == vocab_size_);
  if (!raw_logits_.empty()) std::copy(logits.begin(), logits.end(), raw_logits_.begin());
  TIDEMILL_TRY_VOID(Transform(logits));
  size_t id = 0;
  if (options_.temperature == 0.0f) {
    id = ArgMax(logits, chunk_max_, max_);
  } else {
    const double uniform = UniformAt(stream_, position);
    if (ranks_) {
      const Survivors survivors = SelectRanked(logits);
      id = sums_.FindShare(PartOf(survivors.shares, uniform)).id;
    } else {
      id = DrawById(logits, uniform);
    }
  }
  SampledToken out;
  out.id = static_cast<int32_t>(id);
  if (options_.logprobs >= 0) {
    if (!raw_logits_.empty()) max_ = ScanLogits(isa_, raw_logits_, chunk_max_).max;
    FillLogprobs(raw_logits_.empty() ? logits : raw_logits_, &out);
  }
  return out;
}

Result<std::vector<TokenProbability>> Sampler::Distribution(std::span<float> logits) {
  TIDEMILL_CHECK(logits.size() == vocab_size_);
  TIDEMILL_TRY_VOID(Transform(logits));
  std::vector<TokenProbability> distribution;
  const auto append = [&](size_t id, double weight) {
    if (weight > 0.0) distribution.push_back({static_cast<int32_t>(id), weight});
  };
  if (options_.temperature == 0.0f) {
    append(ArgMax(logits, chunk_max_, max_), 1.0);
  } else if (ranks_) {
    const Survivors survivors = SelectRanked(logits);
    ranking_.KeepAtLeast(logits, chunk_max_, survivors.least);
    ranking_.Sort();
    for (size_t i = 0; i < ranking_.size(); ++i) {
      const size_t id = ranking_.id(i);
      if (TokenKey(logits[id], id) > survivors.last_key) break;
      append(id, TokenWeight(logits[id], max_, inverse_temperature_));
    }
  } else {
    const float least = ShareRule(max_, inverse_temperature_, vocab_size_).LowestOfWeight(options_.min_p);
    for (size_t id = 0; id < vocab_size_; ++id) {
      if (logits[id] >= least) append(id, TokenWeight(logits[id], max_, inverse_temperature_));
    }
  }
  double total = 0.0;
  for (const TokenProbability& token : distribution) total += token.probability;
  for (TokenProbability& token : distribution) token.probability /= total;
  return distribution;
}

}  // namespace tidemill
