// Requests that are saved while their prompts are read: whoever goes on from any of these states says what an uninterrupted request says, and
// ends with the same state, bit by bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/hybrid_models.h"
#include "tests/support/random_requests.h"
#include "tests/support/recurrent_model.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::engine_snapshots_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::FailAllocations;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::RandomPrompt;

constexpr double kAtOnce = 1e-9;  // seconds

GenerationOptions Generation() {
  GenerationOptions generation{.max_new_tokens = 9, .temperature = 0.8F, .ignore_eos = true, .seed = 3};
  generation.logprobs = 1;
  return generation;
}

// With a snapshot behind each step of the prompt.
Outcome RunWithSnapshots(EngineDriver& driver, Request request) {
  driver.engine().impl().snapshot_share = 1e9;
  const RequestId id = driver.Submit(std::move(request));
  driver.RunUntilIdle();
  return driver.outcome(id);
}

Outcome Resume(const std::shared_ptr<const Model>& model, const EngineOptions& options,
               const std::shared_ptr<const std::vector<std::byte>>& saved) {
  EngineDriver driver(model, options);
  Outcome from;
  from.saved = saved;
  return testing::ResumeSaved(driver, from, {.keep_state = true});
}

struct Case {
  const char* name;
  std::shared_ptr<const Model> model;
  size_t prompt;
};

std::vector<Case> Cases() {
  const auto recurrent = [](const std::string& fixture) {
    return testing::LoadRecurrent(testing::ChangedCheckpoint("armt/" + fixture));
  };
  return {{"a KV cache", testing::ResumedModel(), 70},
          {"segments", recurrent("llama"), 75},
          {"segments of equal size", recurrent("center"), 75},
          {"the first segment is short", recurrent("right"), 75},
          {"linear attention", testing::LoadHybrid("qwen3_5_text_ratio3"), 70}};
}

TEST(Snapshots, EachOfThem_GoesOnWithTheSameBits) {
  for (const Case& c : Cases()) {
    const Request request{.prompt = RandomPrompt(c.prompt, 1),
                          .generation = Generation(),
                          .keep_state = true,
                          .snapshot_seconds = kAtOnce};
    EngineDriver driver(c.model, {.threads = 1, .prefill_chunk = 5, .prefix_cache = false});
    const Outcome whole = RunWithSnapshots(driver, request);
    ASSERT_NE(whole.saved, nullptr) << c.name << whole.message;
    ASSERT_GT(whole.snapshots.size(), 10U) << c.name;
    for (size_t i = 0; i < whole.snapshots.size(); ++i) {
      const std::string where = std::string(c.name) + ", snapshot " + std::to_string(i);
      const SavedRequest saved = SavedRequest::Read(*whole.snapshots[i]).value();
      EXPECT_TRUE(saved.is_in_prompt()) << where;
      EXPECT_TRUE(std::ranges::equal(saved.ids(), request.prompt)) << where;
      const Outcome rest =
          Resume(c.model, {.threads = 1 + i % 2, .prefill_chunk = i % 3 == 0 ? 64 : 1 + i % 7}, whole.snapshots[i]);
      ExpectSame(rest, whole, where);
      EXPECT_EQ(*rest.saved, *whole.saved) << where;
      EXPECT_GT(rest.stats.cached_tokens, 0U) << where << ": it began from the start";
      if (HasFailure()) return;
    }
    EXPECT_FALSE(SavedRequest::Read(*whole.saved)->is_in_prompt()) << c.name;
  }
}

// Whole segments at a time, side by side with another prompt, and of a request that was resumed itself.
TEST(Snapshots, OfWavesAndOfResumedRequests_AreTheSame) {
  const Case c = Cases()[1];
  constexpr double kSeconds = 0.02;
  const Request request{
      .prompt = RandomPrompt(40000, 2), .generation = Generation(), .keep_state = true, .snapshot_seconds = kSeconds};
  EngineDriver driver(c.model, {.threads = 2, .prefix_cache = false});
  std::atomic<size_t> longest{0};  // pieces of a wave
  driver.engine().impl().waves.given = WaveForm{WaveOrder::kTeams, 2, 1};
  driver.engine().impl().waves.passed = [&](const WavePiece& piece, size_t) {
    size_t seen = longest.load();
    while (piece.number + 1 > seen && !longest.compare_exchange_weak(seen, piece.number + 1)) {
    }
  };
  const Outcome whole = RunWithSnapshots(driver, request);
  ASSERT_GT(whole.snapshots.size(), 2U);
  EXPECT_GT(longest.load(), 1U);
  EngineDriver second(c.model, {.threads = 2, .prefix_cache = false});
  second.engine().impl().snapshot_share = 1e9;
  const SavedRequest saved = SavedRequest::Read(*whole.snapshots.front()).value();
  const RequestId id = second.engine().Resume(saved, {.keep_state = true, .snapshot_seconds = kSeconds}).value();
  const RequestId other = second.Submit({.prompt = RandomPrompt(300, 3), .generation = Generation()});
  second.RunUntilIdle();
  ExpectSame(second.outcome(id), whole, "resumed once");
  EXPECT_EQ(*second.outcome(id).saved, *whole.saved);
  EXPECT_TRUE(second.outcome(other).snapshots.empty()) << "it asked for none";
  ASSERT_FALSE(second.outcome(id).snapshots.empty());
  const Outcome last = Resume(c.model, {.threads = 2}, second.outcome(id).snapshots.back());
  ExpectSame(last, whole, "resumed twice");
  EXPECT_EQ(*last.saved, *whole.saved);
}

// What a signal does to `tidemill run --save-state`.
TEST(Snapshots, CancelledInThePrompt_GoesOnToo) {
  for (const Case& c : Cases()) {
    const Request request{.prompt = RandomPrompt(c.prompt, 4), .generation = Generation(), .keep_state = true};
    EngineDriver driver(c.model, {.threads = 1, .prefix_cache = false});
    const Outcome whole = RunWithSnapshots(driver, request);
    for (const size_t steps : {0, 1, 7, 14}) {
      const std::string where = std::string(c.name) + ", " + std::to_string(steps) + " steps";
      EngineDriver cut(c.model, {.threads = 1, .prefill_chunk = 4, .prefix_cache = false});
      cut.engine().impl().scheduler->StopWaves();
      const RequestId id = cut.Submit(request);
      for (size_t i = 0; i < steps; ++i) cut.Step();
      cut.engine().Cancel(id);
      cut.RunUntilIdle();
      ASSERT_NE(cut.outcome(id).saved, nullptr) << where;
      EXPECT_TRUE(SavedRequest::Read(*cut.outcome(id).saved)->is_in_prompt()) << where;
      const Outcome rest = Resume(c.model, {.threads = 1}, cut.outcome(id).saved);
      ExpectSame(rest, whole, where);
      EXPECT_EQ(*rest.saved, *whole.saved) << where;
    }
    if (HasFailure()) return;
  }
}

TEST(Snapshots, AreMadeAsOftenAsAskedFor) {
  const Request request{.prompt = RandomPrompt(70, 5), .generation = Generation()};
  const auto count = [&](double seconds, double share) {
    EngineDriver driver(testing::ResumedModel(), {.threads = 1, .prefill_chunk = 5, .prefix_cache = false});
    driver.engine().impl().snapshot_share = share;
    Request asking = request;
    asking.snapshot_seconds = seconds;
    const RequestId id = driver.Submit(std::move(asking));
    driver.RunUntilIdle();
    return driver.outcome(id).snapshots.size();
  };
  EXPECT_EQ(count(0, 1e9), 0U);
  EXPECT_EQ(count(3600, 1e9), 0U);
  EXPECT_EQ(count(kAtOnce, 1e9), 13U) << "behind each step of 5 tokens but the last";
  EXPECT_EQ(count(kAtOnce, 1e-9), 1U) << "what it took is far more than that share";
}

TEST(Snapshots, SecondsThatAreNone_AreRefused) {
  EngineDriver driver(testing::ResumedModel(), {.threads = 1});
  for (const double seconds : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    const auto id = driver.engine().Submit({.prompt = {40}, .snapshot_seconds = seconds});
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(id.error().message(), HasSubstr("submit request: snapshot_seconds: expected at least 0, found "));
  }
}

TEST(Snapshots, WithoutMemory_TheRequestGoesOn) {
  const Request request{.prompt = RandomPrompt(20, 6), .generation = Generation(), .snapshot_seconds = kAtOnce};
  const auto engine = [] { return EngineDriver(testing::ResumedModel(), {.threads = 1, .prefill_chunk = 10}); };
  EngineDriver first = engine();
  const Outcome whole = RunWithSnapshots(first, request);
  ASSERT_EQ(whole.snapshots.size(), 1U);
  size_t missing = 0;
  for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
    for (size_t n = 0;; ++n) {
      ASSERT_LT(n, 2000U);
      EngineDriver driver = engine();
      driver.engine().impl().snapshot_share = 1e9;
      const RequestId id = driver.Submit(request);
      FailAllocations failure(n, count);
      const auto events = driver.engine().Step();
      const bool reached = failure.Stop();
      driver.Consume(events);
      driver.RunUntilIdle();
      const Outcome& outcome = driver.outcome(id);
      if (!outcome.error.has_value()) {  // else there was no memory for its state
        ExpectSame(outcome, whole, "allocation " + std::to_string(n));
        missing += outcome.snapshots.empty() ? 1 : 0;
      }
      if (!reached) break;
    }
  }
  EXPECT_GT(missing, 10U);
}

TEST(Snapshots, PromptRead_CountsTokensOfThePrompt) {
  EngineDriver driver(testing::ResumedModel(), {.threads = 1, .prefill_chunk = 30, .prefix_cache = false});
  const RequestId id = driver.Submit({.prompt = RandomPrompt(60, 7), .generation = Generation()});
  EXPECT_EQ(driver.engine().prompt_read(id), 0U);
  driver.Step();
  EXPECT_EQ(driver.engine().prompt_read(id), 30U);
  driver.Step();
  driver.Step();
  EXPECT_EQ(driver.engine().prompt_read(id), 60U) << "not what was generated";
  driver.RunUntilIdle();
  EXPECT_EQ(driver.engine().prompt_read(id), std::nullopt);
  EXPECT_EQ(driver.engine().prompt_read(id + 1), std::nullopt);
}

}  // namespace
}  // namespace tidemill::engine_snapshots_test
