#include "runtime/eval_metrics.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "decoding/random.h"

namespace tidemill {
namespace {

// log sum_i exp(logits[i]); NaN when a logit is not finite.
double LogSumExp(std::span<const float> logits) {
  double max = -INFINITY, sum = 0;
  for (const float logit : logits) {
    if (!std::isfinite(logit)) return NAN;
    max = std::max(max, static_cast<double>(logit));
  }
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  return max + std::log(sum);
}

std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  for (const char c : text) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool is_letter =
        (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) > 127;
    if (is_letter && !in_word) words.emplace_back();
    if (is_letter) words.back() += lower;
    in_word = is_letter;
  }
  return words;
}

}  // namespace

double NegativeLogLikelihood(std::span<const float> logits, int32_t target) {
  return LogSumExp(logits) - static_cast<double>(logits[static_cast<size_t>(target)]);
}

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  TIDEMILL_CHECK(p_logits.size() == q_logits.size());
  const double p_all = LogSumExp(p_logits), q_all = LogSumExp(q_logits);
  if (std::isnan(p_all) || std::isnan(q_all)) return NAN;
  double sum = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = static_cast<double>(p_logits[i]) - p_all, log_q = static_cast<double>(q_logits[i]) - q_all;
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return std::max(0.0, sum);
}

size_t ArgMax(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double RougeL(std::string_view reference, std::string_view candidate) {
  const std::vector<std::string> a = WordsOf(reference), b = WordsOf(candidate);
  if (a.empty() && b.empty()) return 1;
  std::vector<size_t> common(b.size() + 1);  // of a's first words and b's first i
  for (const std::string& word : a) {
    size_t diagonal = 0;
    for (size_t i = 0; i < b.size(); ++i) {
      const size_t above = common[i + 1];
      common[i + 1] = word == b[i] ? diagonal + 1 : std::max(above, common[i]);
      diagonal = above;
    }
  }
  return 2 * static_cast<double>(common.back()) / static_cast<double>(a.size() + b.size());
}

BootstrapMean BootstrapMeanOf(std::span<const double> values, uint64_t seed) {
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  BootstrapMean result = {.mean = sum / n, .low = sum / n, .high = sum / n};
  if (values.size() < 2) return result;
  std::vector<double> means(kBootstrapDraws);
  for (size_t draw = 0; draw < kBootstrapDraws; ++draw) {
    const RandomStream stream = {.seed = seed, .sequence = draw};
    double drawn = 0;
    for (uint32_t i = 0; i < values.size(); ++i) drawn += values[static_cast<size_t>(UniformAt(stream, i) * n)];
    means[draw] = drawn / n;
  }
  std::sort(means.begin(), means.end());
  result.low = means[kBootstrapDraws / 40];
  result.high = means[kBootstrapDraws - 1 - kBootstrapDraws / 40];
  return result;
}

}  // namespace tidemill
