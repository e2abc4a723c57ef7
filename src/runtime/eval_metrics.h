// How far a policy's answer is from the reference and from dense attention's.
#ifndef TIDEMILL_RUNTIME_EVAL_METRICS_H_
#define TIDEMILL_RUNTIME_EVAL_METRICS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tidemill {

// -log softmax(logits)[target] in f64; NaN when a logit is not finite.
double NegativeLogLikelihood(std::span<const float> logits, int32_t target);

// KL(p || q) in nats, f64, of the softmaxes of two rows of one length; at least 0; NaN when a logit is not finite.
double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits);

// The place of the greatest, the first of equals. Not empty.
size_t ArgMax(std::span<const float> logits);

// F1 of the longest common subsequence of words, 0 to 1; 1 where neither has a word. Words are runs of letters and digits, letters of ASCII in either
// case alike, bytes above 127 letters.                                                              C.-Y. Lin, ROUGE, ACL 2004
// Cost: words of one times words of the other.
double RougeL(std::string_view reference, std::string_view candidate);

struct BootstrapMean {
  double mean = 0, low = 0, high = 0;  // of a 95 % interval
};

// Percentile bootstrap of the mean: values are drawn with replacement. Of one value the interval is that value.
BootstrapMean BootstrapMeanOf(std::span<const double> values, uint64_t seed);
inline constexpr size_t kBootstrapDraws = 2000;

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_EVAL_METRICS_H_
