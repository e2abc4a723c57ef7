// Many requests at once: each gets what it would get alone, bit by bit, whoever else is there, and cancelling one changes no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/engine_driver.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill {
namespace {

using testing::BuildTinyLlama;
using testing::EngineDriver;
using testing::LoadModel;
using testing::Outcome;

constexpr int kVocab = 300;
constexpr size_t kContext = 96;

std::shared_ptr<const Model> TinyModel(DType dtype) {
  return LoadModel("engine_batch",
                   BuildTinyLlama({.vocab = kVocab, .context = kContext, .dtype = dtype, .tied = false, .seed = 5}));
}

struct Work {
  std::vector<int32_t> prompt;
  GenerationOptions generation;
};

// Requests of every sort: greedy and drawn, with and without penalties, stops and log-probabilities, ending in every way.
std::vector<Work> MakeWork(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<Work> work(count);
  for (size_t i = 0; i < count; ++i) {
    Work& w = work[i];
    const size_t lengths[] = {1, 2, below(12) + 1, below(40) + 1, 70 + below(24), kContext};
    w.prompt.resize(lengths[i % 6]);
    for (int32_t& id : w.prompt) id = static_cast<int32_t>(3 + below(kVocab - 3));
    GenerationOptions& g = w.generation;
    if (below(4) != 0) g.max_new_tokens = static_cast<int32_t>(1 + below(16));
    g.ignore_eos = below(2) == 0;
    if (below(3) != 0) g.temperature = 0.5f + static_cast<float>(below(4));
    if (below(3) == 0) g.top_k = 40;
    if (below(3) == 0) g.top_p = 0.9f;
    if (below(3) == 0) g.repetition_penalty = 1.3f;
    if (below(3) == 0) g.stop = {"e", "th", "a", "qz"};
    if (below(3) == 0) {
      g.logit_bias = {{testing::kTinyEosToken, 6.0f}};
      g.ignore_eos = false;
    }
    if (below(2) == 0) g.logprobs = static_cast<int32_t>(below(4));
    g.seed = random();
  }
  return work;
}

std::vector<Outcome> RunAlone(const std::shared_ptr<const Model>& model, const std::vector<Work>& work) {
  EngineDriver driver(model, {.threads = 1, .max_batch = 1, .prefill_chunk = 512});
  std::vector<Outcome> outcomes;
  for (const Work& w : work) outcomes.push_back(driver.Run(w.prompt, w.generation));
  return outcomes;
}

void ExpectSame(const Outcome& found, const Outcome& expected, const std::string& where) {
  EXPECT_EQ(found.fault, "") << where;
  EXPECT_EQ(found.last_events, 1U) << where;
  EXPECT_EQ(found.ids, expected.ids) << where;
  EXPECT_EQ(found.text, expected.text) << where;
  EXPECT_EQ(found.logprob_bits, expected.logprob_bits) << where;
  EXPECT_EQ(found.finish, expected.finish) << where;
  EXPECT_EQ(found.error, expected.error) << where;
  EXPECT_EQ(found.stats.state_bytes, expected.stats.state_bytes) << where;
}

// Submits everything at random moments and runs to the end.
std::vector<RequestId> RunTogether(EngineDriver& driver, const std::vector<Work>& work, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<RequestId> ids(work.size());
  for (size_t submitted = 0; submitted < work.size() || !driver.engine().idle();) {
    const size_t arrivals = std::min<size_t>(work.size() - submitted, random() % 4);
    for (size_t i = 0; i < arrivals; ++i, ++submitted)
      ids[submitted] = driver.Submit(work[submitted].prompt, work[submitted].generation);
    driver.Step();
  }
  return ids;
}

class EngineBatch : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, EngineBatch, ::testing::Values(DType::kF32, DType::kQ8_0),
                         [](const auto& test) { return std::string(InfoOf(test.param).name); });

TEST_P(EngineBatch, EveryRequest_GetsWhatItGetsAlone) {
  const auto model = TinyModel(GetParam());
  const auto work = MakeWork(18, 7);
  const auto alone = RunAlone(model, work);
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
  const auto model = TinyModel(DType::kQ8_0);
  const auto work = MakeWork(18, 11);
  const auto alone = RunAlone(model, work);
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
  const auto model = TinyModel(DType::kQ8_0);
  const auto work = MakeWork(18, 13);
  const auto alone = RunAlone(model, work);
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
}  // namespace tidemill
