#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tidemill/measure.h"

namespace tidemill::limit_rules_test {
namespace {

using ::testing::HasSubstr;

// 50 GB/s, 1000 Gop/s, 200 Gflop/s, each loop alike; f32: two instructions of 32 operations in a cycle of 3.125 GHz.
LimitSet Limits() {
  LimitSet limits;
  limits.threads = 2;
  limits.of(Limit::kRead) = {.first = 50, .second = 50, .quiet_rounds = 5};
  limits.of(Limit::kInt8) = {.first = 1000, .second = 1000, .quiet_rounds = 5};
  limits.of(Limit::kBFloat16) = {.first = 400, .second = 400, .quiet_rounds = 5};
  limits.of(Limit::kF32) = {
      .first = 200, .second = 200, .instructions_per_op = 1.0 / 32, .clock_ghz = 3.125, .quiet_rounds = 5};
  return limits;
}

TEST(Limits, LoopsThatAgree_AreKnown) {
  EXPECT_TRUE(CheckLimits(Limits()).ok());
  for (const Limit limit : kLimits) {
    LimitSet limits = Limits();
    limits.of(limit).second *= 1 - kMaxDisagreement + 0.001;
    EXPECT_TRUE(CheckLimits(limits).ok()) << LimitName(limit);
    limits.of(limit).first *= 1.001;
    EXPECT_TRUE(CheckLimits(limits).ok()) << LimitName(limit);
  }
}

TEST(Limits, LoopsThatDisagree_AreNamedWithBothNumbers) {
  for (const Limit limit : kLimits) {
    for (const bool is_first : {true, false}) {
      LimitSet limits = Limits();
      double& one = is_first ? limits.of(limit).first : limits.of(limit).second;
      one *= 1 - kMaxDisagreement - 0.001;
      const Result<void> result = CheckLimits(limits);
      ASSERT_FALSE(result.ok()) << LimitName(limit);
      EXPECT_EQ(result.error().code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(result.error().message(), HasSubstr(std::string(LimitName(limit)) + ", 2 threads"));
      EXPECT_THAT(result.error().message(), HasSubstr(is_first ? "and " : "found "));
      EXPECT_THAT(result.error().message(), HasSubstr(std::string(LimitUnit(limit))));
    }
  }
  LimitSet limits = Limits();
  limits.of(Limit::kRead).second = 31.25;
  EXPECT_THAT(CheckLimits(limits).error().message(), HasSubstr("found 50.0 and 31.2 GB/s"));
}

TEST(Limits, OneThread_IsCheckedLikeAll) {
  MachineLimits limits{.one = Limits(), .all = Limits()};
  EXPECT_TRUE(CheckLimits(limits).ok());
  limits.one.threads = 1;
  limits.one.of(Limit::kInt8).first = 700;
  EXPECT_THAT(CheckLimits(limits).error().message(), HasSubstr("int8, 1 thread:"));
}

TEST(Limits, NeverMeasured_IsNotKnown) {
  EXPECT_FALSE(CheckLimits(LimitSet{}).ok());
  LimitSet limits = Limits();
  limits.of(Limit::kF32).second = 0;
  EXPECT_FALSE(CheckLimits(limits).ok());
}

TEST(Limits, NoQuietRound_IsNotKnown) {
  LimitSet limits = Limits();
  limits.of(Limit::kRead).quiet_rounds = 0;
  EXPECT_THAT(CheckLimits(limits).error().message(),
              HasSubstr("read, 2 threads: expected every thread to keep its core"));
}

TEST(Limits, InstructionsInACycle_AreWholeOrTheirInverseIs) {
  const auto check = [](double per_cycle) {
    LimitSet limits = Limits();
    limits.of(Limit::kF32).clock_ghz = 200.0 / 32 / per_cycle;
    return CheckLimits(limits);
  };
  for (const double per_cycle : {0.25, 0.5, 0.95, 1.0, 1.09, 1.85, 2.0, 2.19, 4.0}) EXPECT_TRUE(check(per_cycle).ok());
  for (const double per_cycle : {0.4, 0.7, 0.85, 1.2, 1.5, 1.75, 2.3, 2.6})
    EXPECT_FALSE(check(per_cycle).ok()) << per_cycle;
  EXPECT_THAT(check(1.5).error().message(), HasSubstr("f32, 2 threads: expected a whole number of instructions"));
  EXPECT_THAT(check(1.5).error().message(), HasSubstr("found 1.50"));
}

TEST(Limits, Shares_AreLeastTimesByTheBestOfBothLoops) {
  LimitSet limits = Limits();
  limits.of(Limit::kRead).second = 45;
  const StepWork products{.bytes = 0.8e9, .int8_ops = 5e9, .flops = 0.4e9};  // int8 binds: 5 ms, f32 2 ms beside them
  const StepWork attention{.bytes = 0.2e9, .int8_ops = 0, .flops = 1e9};     // 5 ms
  const LimitShares shares = SharesOf(products, attention, 0.025, limits);
  EXPECT_DOUBLE_EQ(shares.bandwidth, 0.8);  // 1 GB at 50 GB/s: 20 ms
  EXPECT_DOUBLE_EQ(shares.arithmetic, 0.4);
  EXPECT_EQ(shares.binding, Limit::kRead);
  EXPECT_DOUBLE_EQ(shares.share(), 0.8);
  limits.of(Limit::kInt8) = {.first = 200, .second = 200};
  EXPECT_EQ(SharesOf(products, attention, 0.025, limits).binding, Limit::kInt8);
  limits.of(Limit::kF32) = {.first = 20, .second = 20};
  EXPECT_EQ(SharesOf(products, attention, 0.025, limits).binding, Limit::kF32);
}

TEST(Limits, LimitThatTheLevelLacks_IsNotHeldAgainstAnything) {
  LimitSet limits = Limits();
  limits.of(Limit::kBFloat16) = {.absent = true};
  EXPECT_TRUE(CheckLimits(limits).ok());
  EXPECT_DOUBLE_EQ(SharesOf({.bytes = 1e9}, {}, 0.04, limits).share(), 0.5);
  const LimitShares shares = SharesOf({.bytes = 1e6, .bfloat16_ops = 4e9}, {}, 0.02, Limits());
  EXPECT_EQ(shares.binding, Limit::kBFloat16);
  EXPECT_DOUBLE_EQ(shares.share(), 0.5);
}

TEST(Limits, SharesOfWhatIsNotKnown_AreZero) {
  const StepWork work{.bytes = 1, .int8_ops = 1, .flops = 1};
  EXPECT_EQ(SharesOf(work, {}, 0, Limits()).share(), 0.0);
  EXPECT_EQ(SharesOf(work, {}, 1, LimitSet{}).share(), 0.0);
}

TEST(Limits, ShareOfMoreThanAll_IsAnErrorThatNamesFigureAndLimit) {
  const StepWork work{.bytes = 1e9, .int8_ops = 1e9, .flops = 0};
  EXPECT_TRUE(CheckShare("decode", SharesOf(work, {}, 0.0201, Limits()), Limits()).ok());
  const Result<void> result = CheckShare("decode", SharesOf(work, {}, 0.016, Limits()), Limits());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(result.error().message(),
              HasSubstr("decode: expected at most 100 % of the read limit of 2 threads, 50.0 GB/s, found 125.0 %"));
}

}  // namespace
}  // namespace tidemill::limit_rules_test
