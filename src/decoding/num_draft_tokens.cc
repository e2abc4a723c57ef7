#include "decoding/num_draft_tokens.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>

namespace tidemill {
namespace {

constexpr double kAssumedWeight = 2;  // verified draft tokens that the assumed rate counts as
constexpr double kFadeOfDraft = 0.95, kFadeOfPlainStep = 0.97;
constexpr size_t kFirstPause = 8, kLongestPause = 64;
constexpr size_t kTries = 4, kTryWidth = 2;
constexpr double kCheapDraftToken = 0.25;  // of a plain step: above it a try has one draft token
constexpr double kBestHope = 0.95;         // if this acceptance rate would not pay, an accepted try promises nothing
constexpr size_t kAveraged = 8;            // measurements in a moving average of seconds
constexpr size_t kForgetSteps = 256;       // a number not tried for so long is not known
// Once a plain step and one with draft tokens were timed, the prediction is dropped if two scales differ so much, or after so many steps
// with draft tokens: it may wrongly keep others from being tried.
constexpr double kSameShape = 1.25;
constexpr size_t kPredictedSteps = 64;
// Plain steps, which every choice is compared with, slow down as the context grows: one is timed now and then.
constexpr size_t kTimeMinSteps = 64;
constexpr size_t kWaitForTimes = 8;  // steps without a time, since prompts are in each of them

// A single slow step may be another program's fault: it counts as at most a quarter more than usual, and a faster second replaces a first.
void Average(double seconds, size_t count, double* mean) {
  constexpr double kMaxChange = 1.25;
  if (count == 2 && seconds < *mean) *mean = seconds;
  if (count > 1) seconds = std::clamp(seconds, *mean / kMaxChange, *mean * kMaxChange);
  *mean += (seconds - *mean) / static_cast<double>(std::min(count, kAveraged));
}

}  // namespace

size_t BestNumDraftTokens(size_t min_draft_tokens, std::span<const double> gains, std::span<const double> step_seconds,
                          double draft_token_seconds, double other_tokens) {
  double tokens = 1 + other_tokens, best_rate = 0;
  for (const double gain : gains.first(min_draft_tokens)) tokens += gain;
  size_t best = min_draft_tokens;
  for (size_t draft_tokens = min_draft_tokens;; ++draft_tokens) {
    const double rate = tokens / (step_seconds[draft_tokens] + static_cast<double>(draft_tokens) * draft_token_seconds);
    if (rate > best_rate) {
      best_rate = rate;
      best = draft_tokens;
    }
    if (draft_tokens == gains.size()) return best;
    tokens += gains[draft_tokens];
  }
}

size_t NumDraftTokens::Next() const {
  if (min_ == max_) return max_;
  const bool is_timed = steps_[min_].count != 0;
  const size_t first = predicted_.any() ? kWaitForTimes : 0;
  const bool is_first = num_steps_ >= first && num_steps_ < first + kWaitForTimes;
  if (asks_min_ || (!is_timed && is_first) || (is_timed && since_min_ >= kTimeMinSteps)) return min_;
  const size_t best = Best();
  const bool is_time = is_promising_ || since_drafts_ >= pause_;
  return best == 0 && is_time ? std::min(max_, TryWidth()) : best;
}

void NumDraftTokens::Drafted(size_t draft_tokens, double seconds, bool reads_text) {
  ++num_offers_;
  is_catching_up_ = reads_text && (since_drafts_ != 0 || num_steps_ == 0);
  try_seconds_ = seconds / static_cast<double>(draft_tokens);
  if (is_catching_up_ || order_ == DraftOrder::kTree) return;
  Average(seconds / static_cast<double>(order_ == DraftOrder::kAtOnce ? 1 : draft_tokens), ++num_drafted_,
          &draft_token_seconds_);
}

bool NumDraftTokens::Begin(size_t draft_tokens) {
  const bool is_try = draft_tokens != 0 && min_ == 0 && Best() == 0;
  ++num_steps_;
  asks_min_ = false;
  since_min_ = draft_tokens <= min_ ? 0 : since_min_ + 1;
  const double fade = draft_tokens == 0 ? kFadeOfPlainStep : kFadeOfDraft;
  for (Count& count : by_position_) count.Fade(fade);
  all_.Fade(fade);
  since_drafts_ = draft_tokens == 0 ? since_drafts_ + 1 : 0;
  return is_try;
}

void NumDraftTokens::Checked(size_t draft_tokens, size_t accepted) {
  const bool is_try = Begin(draft_tokens);
  if (draft_tokens == 0) return;
  for (size_t i = 0; i < std::min(accepted + 1, draft_tokens); ++i) {
    for (Count* count : {&by_position_[i], &all_}) {
      count->verified += 1;
      count->accepted += i < accepted ? 1 : 0;
    }
  }
  End(is_try, accepted != 0);
}

void NumDraftTokens::CheckedTree(size_t nodes, std::span<const uint32_t> accepted) {
  const bool is_try = Begin(nodes);
  if (nodes == 0) return;
  for (size_t i = 0; i < nodes; ++i) by_position_[i].verified += 1;
  for (const uint32_t node : accepted) by_position_[node].accepted += 1;
  all_.verified += static_cast<double>(nodes);
  all_.accepted += static_cast<double>(accepted.size());
  End(is_try, !accepted.empty());
}

void NumDraftTokens::End(bool is_try, bool any_accepted) {
  // The time of a draft token is known from the second try on; until then a prediction must not rule it out.
  const bool is_draft_token_timed = order_ == DraftOrder::kTree
                                        ? !predicted_.any() || Widest() != min_
                                        : num_drafted_ != 0 || (!predicted_.any() && predicted_draft_token_ == 0);
  is_promising_ = is_try && any_accepted && tries_ != 0 && (!is_draft_token_timed || CouldPay());
  if (is_promising_) {
    --tries_;
  } else if (is_try) {
    pause_ = std::min((TryWidth() == kTryWidth ? 2 : 4) * pause_, kLongestPause);
    if (pause_ == kLongestPause) tries_ = kTries;
  } else if (any_accepted) {  // drafting pays: after some of these the pause and the tries start over
    pause_ = std::max(pause_ / 2, kFirstPause);
    if (pause_ == kFirstPause) tries_ = kTries;
  }
}

void NumDraftTokens::Took(size_t draft_tokens, double seconds, double other_tokens) {
  if (order_ == DraftOrder::kTree && draft_tokens != 0 && is_catching_up_) return;  // it includes draft prefill
  if (!IsKnown(draft_tokens)) steps_[draft_tokens] = {};  // what it took long ago says nothing
  Seconds& step = steps_[draft_tokens];
  Average(seconds, ++step.count, &step.mean);
  step.last = num_steps_;
  other_tokens_ += (other_tokens - other_tokens_) / kAveraged;
  if (!predicted_.any() || !IsKnown(min_) || Widest() == min_) return;
  num_compared_ += draft_tokens > min_ ? 1 : 0;
  const bool is_wrong = !IsOfPredictedShape();
  asks_min_ = is_wrong && steps_[min_].count == 1;
  if (num_compared_ >= kPredictedSteps || (is_wrong && !asks_min_)) predicted_ = {};
}

bool NumDraftTokens::IsKnown(size_t draft_tokens) const {
  const Seconds& step = steps_[draft_tokens];
  return step.count != 0 && (draft_tokens == min_ || num_steps_ - step.last < kForgetSteps);
}

size_t NumDraftTokens::Widest() const {
  size_t widest = max_;
  while (widest > min_ && !IsKnown(widest)) --widest;
  return widest;
}

void NumDraftTokens::FillStepSeconds(std::span<double> seconds) const {
  const size_t num_draft_tokens = seconds.size() - 1;
  // Fewer rows take no more time than more of them: what says otherwise is noise.
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = num_draft_tokens + 1; i-- > min_;) {
    if (IsKnown(i)) seconds[i] = least = std::min(least, steps_[i].mean);
  }
  if (predicted_.any()) return ScalePredicted(seconds);
  if (!IsKnown(min_)) seconds[min_] = std::isinf(least) ? 1 : least;
  size_t last = min_;
  for (size_t i = min_ + 1; i <= num_draft_tokens; ++i) {
    if (!IsKnown(i)) continue;
    for (size_t j = last + 1; j < i; ++j) {
      seconds[j] =
          seconds[last] + (seconds[i] - seconds[last]) * static_cast<double>(j - last) / static_cast<double>(i - last);
    }
    last = i;
  }
  const double slope = last == min_ ? 0 : (seconds[last] - seconds[min_]) / static_cast<double>(last - min_);
  for (size_t i = last + 1; i <= num_draft_tokens; ++i)
    seconds[i] = seconds[last] + slope * static_cast<double>(i - last);
}

void NumDraftTokens::ScalePredicted(std::span<double> seconds) const {
  size_t begin = min_;           // of those that are not known
  std::optional<double> before;  // the scale of the known one before them
  for (size_t i = min_; i <= seconds.size(); ++i) {
    const bool is_end = i == seconds.size();
    if (!is_end && !IsKnown(i)) continue;
    const double after = is_end ? before.value_or(1) : seconds[i] / predicted_.step_seconds[i];
    const double from = before.value_or(after), slope = (after - from) / static_cast<double>(i - begin + 1);
    for (size_t j = begin; j < i; ++j)
      seconds[j] = predicted_.step_seconds[j] * (from + slope * static_cast<double>(j - begin + 1));
    before = after;
    begin = i + 1;
  }
}

bool NumDraftTokens::IsOfPredictedShape() const {
  std::array<double, kMax + 1> seconds = {};
  FillStepSeconds(std::span(seconds).first(max_ + 1));
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (size_t i = min_; i <= max_; ++i) {
    if (!IsKnown(i) || (i != min_ && steps_[i].count < 2)) continue;  // a single one may have been disturbed
    const double times = seconds[i] / predicted_.step_seconds[i];
    low = std::min(low, times);
    high = std::max(high, times);
  }
  return high <= kSameShape * low;
}

void NumDraftTokens::HopeForStairs(std::span<double> seconds) const {
  for (size_t i = min_ + 1, last = min_; i < seconds.size(); ++i) {
    if (!IsKnown(i)) continue;
    if (last + 1 < i) seconds[(last + i) / 2] = seconds[last];
    last = i;
  }
}

double NumDraftTokens::Gain(size_t few, size_t many) const {
  if (few < min_ || (!predicted_.any() && Widest() == min_)) return 0;
  std::array<double, kMax + 1> all_seconds = {};
  const std::span<double> seconds = std::span(all_seconds).first(many + 1);
  FillStepSeconds(seconds);
  const std::array<double, kMax> gains = Gains();
  const auto tokens = [&gains](size_t first, size_t end) {
    return std::accumulate(gains.begin() + static_cast<std::ptrdiff_t>(first),
                           gains.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
  };
  const size_t made = order_ == DraftOrder::kAtOnce ? 1 : many;
  const double whole = seconds[many] + static_cast<double>(made) * DraftTokenSeconds(seconds[min_]);
  return tokens(few, many) * whole / (1 + other_tokens_ + tokens(0, many)) - (seconds[many] - seconds[few]);
}

double NumDraftTokens::RateWith(const Count& count, double assumed) {
  return (count.accepted + assumed * kAssumedWeight) / (count.verified + kAssumedWeight);
}

std::array<double, NumDraftTokens::kMax> NumDraftTokens::Gains() const {
  std::array<double, kMax> gains = {};
  const double together = RateWith(all_, assumed_acceptance_);
  const bool is_tree = order_ == DraftOrder::kTree;
  const double power = PromisePower();
  double reached = 1;
  for (size_t i = 0; i < max_; ++i) {
    // Nodes are in order of promise: one with few counts promises no more than the one before it.
    const double promised = has_promises_ ? std::pow(promises_[i], power) : together;
    const double assumed = is_tree ? std::min(promised, reached) : together;
    const double rate = RateWith(by_position_[i], assumed);
    reached = is_tree ? rate : reached * rate;
    gains[i] = reached;
  }
  return gains;
}

double NumDraftTokens::PromisePower() const {
  const double promised = promises_[0];
  if (!has_promises_ || promised <= 0 || promised >= 1) return 1;
  return std::log(RateWith(by_position_[0], promised)) / std::log(promised);
}

double NumDraftTokens::DraftTokenSeconds(double min_step) const {
  return num_drafted_ != 0 ? draft_token_seconds_ : predicted_draft_token_ * min_step;
}

size_t NumDraftTokens::TryWidth() const {
  std::array<double, kMax + 1> seconds = {};
  FillStepSeconds(std::span(seconds).first(max_ + 1));
  const double draft_token =
      num_drafted_ != 0 ? draft_token_seconds_ : std::max(try_seconds_, DraftTokenSeconds(seconds[0]));
  const bool is_dear = order_ == DraftOrder::kOneByOne && draft_token > kCheapDraftToken * seconds[0];
  return is_dear ? 1 : kTryWidth;
}

bool NumDraftTokens::CouldPay() const {
  std::array<double, kMax> gains;
  double reached = 1;
  for (double& gain : gains) gain = reached *= kBestHope;
  return Best(gains) != 0;
}

size_t NumDraftTokens::Best(std::span<const double> gains) const {
  // Before the second draft its time is only predicted.
  const size_t ramp = num_offers_ >= 2 ? 2 * Widest() + kTryWidth : predicted_.any() ? max_ : kTryWidth;
  const size_t num_draft_tokens = std::min(max_, std::max(min_, ramp));
  std::array<double, kMax + 1> all_seconds = {};
  const std::span<double> seconds = std::span(all_seconds).first(num_draft_tokens + 1);
  FillStepSeconds(seconds);
  if (!predicted_.any()) HopeForStairs(seconds);
  const double draft_token = DraftTokenSeconds(seconds[min_]);
  const bool at_once = order_ == DraftOrder::kAtOnce;
  if (at_once) {
    for (double& step : seconds.subspan(1)) step += draft_token;
  }
  return BestNumDraftTokens(min_, gains.first(num_draft_tokens), seconds, at_once ? 0 : draft_token, other_tokens_);
}

}  // namespace tidemill
