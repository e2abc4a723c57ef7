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

// The lowest logit that can have `weight` >= exp(log_weight): rounding may let others through, never keep one out.
float LogitThreshold(float max, float temperature, double log_weight) {
  constexpr double kSlack = 1e-6;  // far above the error of the products, far below what moves a candidate's rank
  const double threshold = static_cast<double>(max) + static_cast<double>(temperature) * (log_weight - kSlack);
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  if (threshold <= static_cast<double>(kLowest)) return kLowest;
  return std::nextafter(static_cast<float>(threshold), kLowest);
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
                  options.min_new_tokens > 0),
      inverse_temperature_(options.temperature > 0.0f ? 1.0 / static_cast<double>(options.temperature) : 0.0),
      stream_{options.seed, setting.sequence},
      history_(setting.vocab_size, setting.max_positions, penalizes_),
      ranking_(setting.vocab_size) {
  if (static_cast<size_t>(options_.top_k) >= vocab_size_) options_.top_k = 0;
  filters_ = options_.top_k > 0 || options_.top_p < 1.0f || options_.min_p > 0.0f;
  for (const int32_t id : setting.eos_ids) {
    if (id >= 0 && static_cast<size_t>(id) < vocab_size_) eos_ids_.push_back(id);
  }
  chunk_max_.resize(NumChunks(vocab_size_));
  chunk_sum_.resize(NumChunks(vocab_size_));
  if (filters_) weights_.reserve(vocab_size_);
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
    if (history_.num_generated() < static_cast<size_t>(options_.min_new_tokens)) {
      for (const int32_t id : eos_ids_) Mask(logits, id);
    }
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
                     "--no-repeat-ngram-size and --min-new-tokens");
  }
  max_ = scan.max;
  return {};
}

void Sampler::WeighCandidates(std::span<const float> logits) {
  weights_.clear();
  for (size_t i = 0; i < ranking_.size(); ++i) {
    weights_.push_back(TokenWeight(logits[ranking_.id(i)], max_, inverse_temperature_));
  }
}

// top_p without top_k: ranks the tokens within 4 times the temperature of the best, then within 8, 16, and all, until those
// hold enough. Each list begins with the one before, so no token is weighed twice.
void Sampler::SelectTopP(std::span<const float> logits) {
  const double total = SumWeights(isa_, logits, max_, inverse_temperature_, chunk_sum_);
  const double enough = static_cast<double>(options_.top_p) * total;
  double sum = 0.0;
  weights_.clear();
  for (const double reach : {4.0, 8.0, 16.0, std::numeric_limits<double>::infinity()}) {
    ranking_.KeepAtLeast(logits, chunk_max_, LogitThreshold(max_, options_.temperature, -reach));
    ranking_.Sort();
    while (weights_.size() < ranking_.size() && sum < enough) {
      weights_.push_back(TokenWeight(logits[ranking_.id(weights_.size())], max_, inverse_temperature_));
      sum += weights_.back();
    }
    if (sum >= enough) break;
  }
}

// 6 to 9 into ranking_ and weights_.
void Sampler::SelectSurvivors(std::span<const float> logits) {
  if (options_.top_k > 0) {
    ranking_.KeepBest(logits, chunk_max_, static_cast<size_t>(options_.top_k));
    WeighCandidates(logits);
    if (options_.top_p < 1.0f) {
      double enough = 0.0;
      for (const double weight : weights_) enough += weight;
      enough *= static_cast<double>(options_.top_p);
      double sum = 0.0;
      size_t kept = 0;
      while (kept < weights_.size() && sum < enough) sum += weights_[kept++];
      weights_.resize(kept);
    }
  } else if (options_.top_p < 1.0f) {
    SelectTopP(logits);
  } else {
    const double log_min_p = Log(static_cast<double>(options_.min_p));
    ranking_.KeepAtLeast(logits, chunk_max_, LogitThreshold(max_, options_.temperature, log_min_p));
    WeighCandidates(logits);
  }
  // min_p, and what underflowed to 0; keeps the order.
  const auto least = static_cast<double>(options_.min_p);
  size_t kept = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] <= 0.0 || weights_[i] < least) continue;
    ranking_.Move(i, kept);
    weights_[kept++] = weights_[i];
  }
  weights_.resize(kept);
  ranking_.Truncate(kept);
}

// Both draws stop at the last token of weight above 0 where rounding leaves `target` at the very end.
size_t Sampler::DrawFromSurvivors(double uniform) const {
  double total = 0.0;
  for (const double weight : weights_) total += weight;
  const double target = uniform * total;
  double sum = 0.0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    sum += weights_[i];
    if (target < sum) return ranking_.id(i);
  }
  return ranking_.id(weights_.size() - 1);
}

size_t Sampler::DrawFromAll(std::span<const float> logits, double uniform) {
  const double target = uniform * SumWeights(isa_, logits, max_, inverse_temperature_, chunk_sum_);
  size_t chunk = 0;
  double before = 0.0;  // sum of the chunks in front of `chunk`
  double sum = 0.0;
  for (size_t c = 0; c < chunk_sum_.size(); ++c) {
    if (chunk_sum_[c] <= 0.0) continue;
    chunk = c;
    before = sum;
    sum += chunk_sum_[c];
    if (target < sum) break;
  }
  size_t chosen = 0;
  const size_t end = std::min(vocab_size_, (chunk + 1) * kChunkTokens);
  sum = before;
  for (size_t id = chunk * kChunkTokens; id < end; ++id) {
    const double weight = TokenWeight(logits[id], max_, inverse_temperature_);
    if (weight <= 0.0) continue;
    chosen = id;
    sum += weight;
    if (target < sum) break;
  }
  return chosen;
}

// log p = l - max - log(sum of exp(l - max)). Everything but the choice, which comes later.
void Sampler::FillLogprobs(std::span<const float> raw_logits, SampledToken* out) {
  const double log_sum = static_cast<double>(max_) + Log(SumWeights(isa_, raw_logits, max_, 1.0, chunk_sum_));
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
  SampledToken out;
  size_t id = 0;
  if (options_.temperature == 0.0f) {
    id = ArgMax(logits, chunk_max_, max_);
  } else {
    const double uniform = UniformAt(stream_, position, RandomPurpose::kSampleToken);
    if (filters_) {
      SelectSurvivors(logits);
      id = DrawFromSurvivors(uniform);
    } else {
      id = DrawFromAll(logits, uniform);
    }
  }
  out.id = static_cast<int32_t>(id);
  if (options_.logprobs >= 0) {
    if (!raw_logits_.empty()) max_ = ScanLogits(isa_, raw_logits_, chunk_max_).max;
    FillLogprobs(raw_logits_.empty() ? std::span<const float>(logits) : raw_logits_, &out);
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
  } else if (filters_) {
    SelectSurvivors(logits);
    for (size_t i = 0; i < ranking_.size(); ++i) append(ranking_.id(i), weights_[i]);
  } else {
    for (size_t id = 0; id < vocab_size_; ++id) append(id, TokenWeight(logits[id], max_, inverse_temperature_));
  }
  double total = 0.0;
  for (const TokenProbability& token : distribution) total += token.probability;
  for (TokenProbability& token : distribution) token.probability /= total;
  return distribution;
}

}  // namespace tidemill
