// Speed tests: on models whose states forget, and of the memory beside a decode.
#include <gtest/gtest.h>

#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tidemill/measure.h"

namespace tidemill::engine_bench_test {
namespace {

TEST(EngineBench, ModelWithWindows_FillsAgainWhatItNoLongerHas) {
  testing::EngineDriver driver(testing::WindowedModel(), {.threads = 1});
  BenchCaches caches;
  for (const BenchTest& test : {BenchTest{.test = "prefill", .prompt_tokens = 300, .prompts = {}, .repeat = 2},
                                BenchTest{.test = "decode", .depth = 16, .gen_tokens = 300, .prompts = {}, .repeat = 2},
                                BenchTest{.test = "batch", .gen_tokens = 300, .prompts = {16, 8}, .repeat = 2}}) {
    for (const bool kept : {false, true}) {
      const auto result = RunBench(driver.engine(), test, &caches);
      ASSERT_TRUE(result.ok()) << test.test << ": " << result.error().message();
      EXPECT_EQ(result->samples.size(), 2U);
      EXPECT_EQ(result->kept, kept) << test.test;
    }
  }
}

// More than a thread reads at once: parts that are read twice in a row would come from a cache (Reader::Repeat stops the process).
TEST(EngineBench, RateOfManyBytes_IsMeasuredInParts) {
  testing::EngineDriver driver(testing::WindowedModel(), {.threads = 2});
  for (const size_t threads : {1, 2}) {
    const Result<double> rate = ReadRateNow(driver.engine(), 80.0 * (1 << 20), threads);
    ASSERT_TRUE(rate.ok()) << rate.error().message();
    EXPECT_GT(*rate, 0.0);
  }
}

}  // namespace
}  // namespace tidemill::engine_bench_test
