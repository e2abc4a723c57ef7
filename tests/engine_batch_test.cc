// Many requests at once: each gets what it would get alone, bit by bit, whoever else is there, and cancelling one changes no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "decoding/vocab_parts.h"
#include "runtime/engine_impl.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/tiny_model.h"

namespace tidemill::engine_batch_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::MakeWork;
using testing::Outcome;
using testing::RunTogether;
using testing::RunUnbatched;
using testing::SmallContextModel;
using testing::Work;

class EngineBatch : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, EngineBatch, ::testing::Values(DType::kF32, DType::kQ8_0),
                         [](const auto& test) { return std::string(InfoOf(test.param).name); });

TEST_P(EngineBatch, EveryRequest_GetsWhatItGetsAlone) {
  const auto model = SmallContextModel(GetParam());
  const auto work = MakeWork(18, 7);
  const auto alone = RunUnbatched(model, work);
  size_t finishes[3] = {};
  for (const Outcome& o : alone) {
    ASSERT_TRUE(o.finish.has_value());
    ++finishes[static_cast<size_t>(*o.finish)];
  }
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kEos}) {
    EXPECT_GT(finishes[static_cast<size_t>(reason)], 0U) << FinishReasonName(reason);
  }
  uint64_t seed = 0;
  for (const size_t max_batch : {1, 2, 8, 32}) {
    for (const size_t chunk : {1, 7, 64, 512}) {
      for (const size_t threads : {1, 2}) {
        EngineDriver driver(model, {.threads = threads, .max_batch = max_batch, .prefill_chunk = chunk});
        const auto ids = RunTogether(driver, work, ++seed);
        for (size_t i = 0; i < work.size(); ++i) {
          ExpectSame(driver.outcome(ids[i]), alone[i],
                     "request " + std::to_string(i) + ", max_batch " + std::to_string(max_batch) + ", chunk " +
                         std::to_string(chunk) + ", threads " + std::to_string(threads) + ", seed " +
                         std::to_string(seed));
        }
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

// Rows of each step, until `id` has its first token.
std::vector<size_t> RowsOfSteps(EngineDriver& driver, RequestId id) {
  std::vector<size_t> rows;
  while (driver.outcome(id).ids.empty()) {
    driver.Step();
    rows.push_back(0);
    for (const StepSequence& sequence : driver.engine().impl().scheduler->step()) rows.back() += sequence.tokens.size();
  }
  return rows;
}

// Draws from a vocabulary large enough for its passes to be shared among the engine's threads.
TEST(EngineBatch, LargeVocabulary_GivesTheSameTokensWithAnyThreads) {
  constexpr int kVocab = 2 * static_cast<int>(VocabParts::kMinTokens) + 300;
  const auto model = testing::LoadModel("large_vocabulary", testing::BuildTinyLlama({.vocab = kVocab, .layers = 1}));
  const std::vector<GenerationOptions> all = {
      {.max_new_tokens = 8, .temperature = 1.0f, .ignore_eos = true, .logprobs = 2},
      {.max_new_tokens = 8, .temperature = 3.0f, .top_k = 20000, .top_p = 0.9f, .ignore_eos = true}};
  std::vector<Outcome> alone;
  for (const size_t threads : {1, 3}) {
    EngineDriver driver(model, {.threads = threads});
    std::vector<RequestId> ids;
    for (const GenerationOptions& options : all) ids.push_back(driver.Submit({5, 40, kVocab - 1}, options));
    driver.RunUntilIdle();
    for (size_t i = 0; i < all.size(); ++i) {
      const Outcome& outcome = driver.outcome(ids[i]);
      ASSERT_EQ(outcome.ids.size(), 8U) << outcome.message;
      if (threads == 1) {
        alone.push_back(outcome);
      } else {
        EXPECT_EQ(outcome.ids, alone[i].ids) << "options " << i;
        EXPECT_EQ(outcome.logprob_bits, alone[i].logprob_bits) << "options " << i;
      }
    }
  }
}

// The others wait for each step.
TEST(EngineBatch, PromptBesideRequestsThatDecode_ComesInSmallParts) {
  const auto model = testing::LoadModel("engine_batch_beside",
                                        testing::BuildCountingModel({.vocab = 400, .context = 256, .eos_token = 399}));
  const std::vector<int32_t> prompt(200, 7);
  const auto rows_beside = [&](size_t decoding, size_t chunk) {
    EngineDriver driver(model, {.threads = 1, .max_batch = 64, .prefill_chunk = chunk});
    for (size_t i = 0; i < decoding; ++i)
      driver.Submit(std::vector<int32_t>{static_cast<int32_t>(20 + i)}, {.max_new_tokens = 50, .ignore_eos = true});
    if (decoding != 0) driver.Step();
    auto rows = RowsOfSteps(driver, driver.Submit(prompt, {.max_new_tokens = 1, .ignore_eos = true}));
    for (size_t& step : rows) step -= decoding;
    return rows;
  };
  using Rows = std::vector<size_t>;
  EXPECT_EQ(rows_beside(0, 512), (Rows{200}));
  EXPECT_EQ(rows_beside(0, 99), (Rows{67, 67, 66}));  // not 99, 99 and 2: equal where nobody waits
  EXPECT_EQ(rows_beside(1, 512), (Rows{32, 32, 32, 32, 32, 32, 8}));
  EXPECT_EQ(rows_beside(32, 512), (Rows{32, 32, 32, 32, 32, 32, 8}));
  EXPECT_EQ(rows_beside(60, 512), (Rows{60, 60, 60, 20}));
  EXPECT_EQ(rows_beside(1, 90), (Rows{32, 32, 32, 32, 32, 32, 8}));
  Rows sixteen(12, 16);
  sixteen.push_back(8);
  EXPECT_EQ(rows_beside(1, 16), sixteen);
}

// A cancelled request has a beginning of what it would have had; the others have all of theirs.
void ExpectCancelledOrSame(const Outcome& found, const Outcome& expected, const std::string& where) {
  if (found.finish != FinishReason::kCancelled) return ExpectSame(found, expected, where);
  EXPECT_EQ(found.fault, "") << where;
  EXPECT_EQ(found.last_events, 1U) << where;
  ASSERT_LE(found.ids.size(), expected.ids.size()) << where;
  EXPECT_TRUE(std::equal(found.ids.begin(), found.ids.end(), expected.ids.begin())) << where;
  EXPECT_TRUE(std::equal(found.logprob_bits.begin(), found.logprob_bits.end(), expected.logprob_bits.begin())) << where;
}

TEST(EngineCancel, BetweenSteps_ChangesNoOtherRequest) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const auto work = MakeWork(18, 11);
  const auto alone = RunUnbatched(model, work);
  size_t cancelled = 0, whole = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::mt19937_64 random(seed);
    EngineDriver driver(model, {.threads = 1, .max_batch = 8, .prefill_chunk = 16});
    std::vector<RequestId> ids;
    for (const Work& w : work) ids.push_back(driver.Submit(w.prompt, w.generation));
    while (!driver.engine().idle()) {
      if (random() % 3 == 0) {
        const RequestId victim = ids[random() % ids.size()];
        const bool had_ended = driver.outcome(victim).ended();
        driver.engine().Cancel(victim);
        driver.Step();
        ASSERT_TRUE(had_ended || driver.outcome(victim).finish == FinishReason::kCancelled) << "seed " << seed;
      } else {
        driver.Step();
      }
    }
    for (size_t i = 0; i < work.size(); ++i) {
      const Outcome& found = driver.outcome(ids[i]);
      ++(found.finish == FinishReason::kCancelled ? cancelled : whole);
      ExpectCancelledOrSame(found, alone[i], "request " + std::to_string(i) + ", seed " + std::to_string(seed));
    }
  }
  EXPECT_GT(cancelled, 20U);
  EXPECT_GT(whole, 20U);
}

TEST(EngineCancel, FromAnotherThreadDuringSteps_ChangesNoOtherRequest) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const auto work = MakeWork(18, 13);
  const auto alone = RunUnbatched(model, work);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    EngineDriver driver(model, {.threads = 2, .max_batch = 18, .prefill_chunk = 64});
    std::vector<RequestId> ids;
    for (const Work& w : work) ids.push_back(driver.Submit(w.prompt, w.generation));
    std::atomic<size_t> steps{0};
    std::atomic<bool> stop{false};
    std::vector<RequestId> victims = ids;
    std::shuffle(victims.begin(), victims.end(), std::mt19937_64(seed));
    victims.resize(9);
    std::thread canceller([&] {
      for (size_t i = 0; i < victims.size(); ++i) {
        while (steps.load() < i && !stop.load()) std::this_thread::yield();
        driver.engine().Cancel(victims[i]);
      }
    });
    while (!driver.engine().idle()) {
      driver.Step();
      ++steps;
    }
    stop = true;
    canceller.join();
    for (size_t i = 0; i < work.size(); ++i) {
      const std::string where = "request " + std::to_string(i) + ", seed " + std::to_string(seed);
      const bool victim = std::find(victims.begin(), victims.end(), ids[i]) != victims.end();
      EXPECT_TRUE(victim || driver.outcome(ids[i]).finish != FinishReason::kCancelled) << where;
      ExpectCancelledOrSame(driver.outcome(ids[i]), alone[i], where);
    }
  }
}

}  // namespace
}  // namespace tidemill::engine_batch_test
