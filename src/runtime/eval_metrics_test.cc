#include "runtime/eval_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tidemill::eval_metrics_test {
namespace {

// Of probabilities 1/2, 1/4, 1/4, and 1/4, 1/4, 1/2, shifted by a constant.
const std::vector<float> kHalfFirst = {static_cast<float>(std::log(2.0)), 0, 0};
const std::vector<float> kHalfLast = {100, 100, static_cast<float>(100 + std::log(2.0))};

TEST(EvalMetrics, NegativeLogLikelihood_IsThatOfTheSoftmax) {
  EXPECT_NEAR(NegativeLogLikelihood(kHalfFirst, 0), std::log(2.0), 1e-7);
  EXPECT_NEAR(NegativeLogLikelihood(kHalfFirst, 2), std::log(4.0), 1e-7);
  EXPECT_NEAR(NegativeLogLikelihood(kHalfLast, 2), std::log(2.0), 1e-5);
}

TEST(EvalMetrics, KlDivergence_OfHandValues) {
  // 1/2 log(2) + 1/4 log(1) + 1/4 log(1/2)
  EXPECT_NEAR(KlDivergence(kHalfFirst, kHalfLast), 0.25 * std::log(2.0), 1e-5);
  EXPECT_EQ(KlDivergence(kHalfFirst, kHalfFirst), 0.0);
  const std::vector<float> even = {1, 1}, skewed = {static_cast<float>(std::log(3.0)), 0};  // 3/4, 1/4
  EXPECT_NEAR(KlDivergence(even, skewed), 0.5 * std::log(2.0 / 3) + 0.5 * std::log(2.0), 1e-7);
  EXPECT_NEAR(KlDivergence(skewed, even), 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-7);
}

TEST(EvalMetrics, LogitThatIsNotFinite_GivesNaN) {
  const std::vector<float> bad = {0, std::numeric_limits<float>::infinity(), 0};
  EXPECT_TRUE(std::isnan(NegativeLogLikelihood(bad, 0)));
  EXPECT_TRUE(std::isnan(KlDivergence(bad, kHalfFirst)));
  EXPECT_TRUE(std::isnan(KlDivergence(kHalfFirst, bad)));
}

TEST(EvalMetrics, ArgMax_TakesTheFirstOfEquals) {
  EXPECT_EQ(ArgMax(std::vector<float>{1, 3, 3, 2}), 1U);
  EXPECT_EQ(ArgMax(std::vector<float>{-1}), 0U);
}

TEST(EvalMetrics, RougeL_OfHandValues) {
  EXPECT_EQ(RougeL("The mill, by the river.", "the mill by the river"), 1.0);
  // Common: "police the gunman" of 4 and 4 words, "the gunman" of 4 and 4.               C.-Y. Lin, section 3
  EXPECT_NEAR(RougeL("police killed the gunman", "police kill the gunman"), 2 * 3.0 / 8, 1e-12);
  EXPECT_NEAR(RougeL("police killed the gunman", "the gunman kill police"), 2 * 2.0 / 8, 1e-12);
  EXPECT_NEAR(RougeL("a b c d e f", "c d"), 2 * 2.0 / 8, 1e-12);
  EXPECT_EQ(RougeL("a b", "c d"), 0.0);
  EXPECT_EQ(RougeL("a b", "..."), 0.0);
  EXPECT_EQ(RougeL("", "!"), 1.0);
}

TEST(EvalMetrics, Bootstrap_HasTheMeanAndAnIntervalOfItsSpread) {
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back(i % 2 == 0 ? 1.0 : 3.0);  // standard error of the mean: 0.1
  const BootstrapMean mean = BootstrapMeanOf(values, 7);
  EXPECT_DOUBLE_EQ(mean.mean, 2.0);
  EXPECT_NEAR(mean.low, 2 - 1.96 * 0.1, 0.03);
  EXPECT_NEAR(mean.high, 2 + 1.96 * 0.1, 0.03);
  const BootstrapMean again = BootstrapMeanOf(values, 7), other = BootstrapMeanOf(std::vector<double>{1, 2, 4}, 8);
  EXPECT_EQ(again.low, mean.low);
  EXPECT_EQ(again.high, mean.high);
  EXPECT_EQ(other.low, 1.0);  // of 2000 draws of three, 1 in 27 has the least only
  EXPECT_EQ(other.high, 4.0);
}

TEST(EvalMetrics, BootstrapOfOneValue_IsThatValue) {
  const BootstrapMean mean = BootstrapMeanOf(std::vector<double>{0.5}, 1);
  EXPECT_EQ(mean.mean, 0.5);
  EXPECT_EQ(mean.low, 0.5);
  EXPECT_EQ(mean.high, 0.5);
}

}  // namespace
}  // namespace tidemill::eval_metrics_test
