// Requests of a recurrent-memory model in an engine: whatever runs beside them, is cached, preempted, drafted or saved, their answers are those
// that they get alone, a token a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/segments.h"
#include "runtime/engine_impl.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/recurrent_model.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::segment_engine_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::Outcome;
using testing::RandomPrompt;
using testing::Work;

constexpr size_t kSegment = 7, kPositions = 64;  // of the fixtures

std::shared_ptr<const Model> ModelOf(const std::string& fixture) {
  return testing::LoadRecurrent(testing::ChangedCheckpoint("armt/" + fixture));
}

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

GenerationOptions Greedy(int32_t tokens) {
  GenerationOptions generation{.max_new_tokens = tokens, .temperature = 0, .ignore_eos = true};
  generation.logprobs = 1;
  return generation;
}

// Of three ids only, so that what comes next has often stood before.
GenerationOptions FewIds(int32_t tokens) {
  GenerationOptions generation = Greedy(tokens);
  generation.logit_bias = {{20, 40.0F}, {21, 40.0F}, {22, 40.0F}};
  return generation;
}

// Around whole segments, of one segment and of many, with answers that stay within a segment and that do not.
std::vector<Work> MixedWork() {
  std::vector<Work> work;
  for (const size_t length : {1, 6, 7, 8, 13, 14, 15, 21, 50, 70, 71, 150}) {
    GenerationOptions generation = length % 3 == 0 ? Greedy(30) : FewIds(5 + static_cast<int32_t>(length % 20));
    generation.temperature = length % 2 == 0 ? 0.0F : 0.8F;
    generation.seed = length;
    work.push_back({.prompt = RandomPrompt(length, length), .generation = generation});
  }
  return work;
}

// With associative memories and without.
class SegmentEngine : public ::testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const Model> model() const { return Of().model; }

  Outcome Alone(const std::vector<int32_t>& prompt, const GenerationOptions& generation) const {
    EngineDriver driver(model(), {.threads = 1, .max_batch = 1, .prefill_chunk = 1, .prefix_cache = false});
    return driver.Run(prompt, generation);
  }

  // Of MixedWork.
  const std::vector<Outcome>& Answers() const {
    std::vector<Outcome>& answers = Of().answers;
    for (const Work& work : answers.empty() ? MixedWork() : std::vector<Work>())
      answers.push_back(Alone(work.prompt, work.generation));
    return answers;
  }

 private:
  struct Known {
    std::shared_ptr<const Model> model;
    std::vector<Outcome> answers;
  };
  static Known& Of() {
    static std::map<std::string, Known> known;
    Known& of = known[GetParam()];
    if (of.model == nullptr) of.model = ModelOf(GetParam());
    return of;
  }
};

INSTANTIATE_TEST_SUITE_P(Memory, SegmentEngine, ::testing::Values("llama", "rmt_llama"),
                         [](const auto& fixture) { return std::string(fixture.param); });

TEST_P(SegmentEngine, ConcurrentRequests_GetWhatTheyGetAlone) {
  const std::vector<Work> work = MixedWork();
  for (const size_t chunk : {1, 5, 7, 9, 64, 512}) {
    for (const size_t batch : {1, 3, 12}) {
      EngineDriver driver(model(), {.threads = 2, .max_batch = batch, .prefill_chunk = chunk});
      const auto ids = testing::RunTogether(driver, work, chunk + batch);
      for (size_t i = 0; i < work.size(); ++i) {
        ExpectSame(driver.outcome(ids[i]), Answers()[i],
                   "chunks of " + std::to_string(chunk) + ", batches of " + std::to_string(batch) + ", request " +
                       std::to_string(i));
      }
      if (HasFailure()) return;
    }
  }
}

// A first turn's tail becomes segments of the second's prompt.
TEST_P(SegmentEngine, SecondTurn_GoesOnFromTheFirst) {
  for (const int32_t tokens : {2, 9, 30}) {
    EngineDriver driver(model(), {.threads = 1, .prefill_chunk = 50});
    std::vector<int32_t> text = RandomPrompt(45, 1);
    for (int turn = 0; turn < 3; ++turn) {
      const Outcome expected = Alone(text, Greedy(tokens)), found = driver.Run(text, Greedy(tokens));
      ExpectSame(found, expected, "turn " + std::to_string(turn));
      EXPECT_EQ(found.stats.cached_tokens != 0, turn != 0) << turn;
      text = Joined(Joined(text, expected.ids), RandomPrompt(9, 50 + static_cast<uint64_t>(turn)));
    }
    EXPECT_EQ(driver.engine().prefix_cache().hits, 2U);
  }
}

TEST_P(SegmentEngine, PreemptedRequests_GoOnAsIfNothingHadBeen) {
  std::vector<Work> work;
  for (uint64_t i = 0; i < 6; ++i)
    work.push_back({.prompt = RandomPrompt(9 + 5 * i, 70 + i), .generation = i % 2 == 0 ? FewIds(52) : Greedy(55)});
  const std::vector<Outcome> alone = testing::RunUnbatched(
      model(), work, {.threads = 1, .kv_increment = 4, .prefill_chunk = 8, .prefix_cache = false});
  for (const bool spills : {false, true}) {
    EngineOptions options{.threads = 2, .kv_increment = 4, .max_batch = 6, .prefill_chunk = 8, .prefix_cache = !spills};
    options.spill_folder = spills ? ::testing::TempDir() : "";
    uint64_t sum = 0;
    for (const Outcome& o : alone) sum += o.stats.growth.allocated_bytes;
    options.state_memory = sum * 5 / 8;
    EngineDriver driver(model(), options);
    std::vector<RequestId> ids;
    for (const Work& w : work) ids.push_back(driver.Submit(w.prompt, w.generation));
    driver.RunUntilIdle();
    size_t preempted = 0;
    for (size_t i = 0; i < work.size(); ++i) {
      ExpectSame(driver.outcome(ids[i]), alone[i],
                 (spills ? "spilled, request " : "computed again, request ") + std::to_string(i));
      preempted += driver.outcome(ids[i]).stats.preemptions;
    }
    EXPECT_GT(preempted, 0U) << spills;
    driver.engine().ClearPrefixCache();
    EXPECT_EQ(driver.engine().impl().memory->held(), 0U);
  }
}

TEST_P(SegmentEngine, DraftTokens_ChangeNoAnswer) {
  const std::vector<Work> work = MixedWork();
  for (const DraftOptions& draft :
       {DraftOptions{.num_draft_tokens = 5, .min_draft_tokens = 5, .ngram_min = 1},
        DraftOptions{.num_draft_tokens = 3, .min_draft_tokens = 3, .source = DraftSource::kLayers, .layers = 2}}) {
    EngineDriver driver(model(), {.threads = 2, .max_batch = 4, .prefill_chunk = 40});
    std::vector<RequestId> ids;
    for (const Work& w : work)
      ids.push_back(driver.Submit({.prompt = w.prompt, .generation = w.generation, .draft = draft}));
    driver.RunUntilIdle();
    size_t drafted = 0, accepted = 0;
    for (size_t i = 0; i < work.size(); ++i) {
      ExpectSame(driver.outcome(ids[i]), Answers()[i], "request " + std::to_string(i));
      drafted += driver.outcome(ids[i]).stats.drafted_tokens;
      accepted += driver.outcome(ids[i]).stats.accepted_tokens;
    }
    std::printf("  %zu drafted, %zu accepted\n", drafted, accepted);
    EXPECT_GT(drafted, 0U);
    EXPECT_GT(accepted, 0U);
    if (HasFailure()) return;
  }
}

// Cut anywhere: the answer goes on; and with more prompt all of it is one prompt.
TEST_P(SegmentEngine, SavedRequest_GoesOnWithTheSameBits) {
  for (const size_t length : {5, 7, 20, 36}) {
    const std::vector<int32_t> prompt = RandomPrompt(length, length), more = RandomPrompt(4 + length, 99);
    const Outcome whole = Alone(prompt, Greedy(24));
    for (const int32_t cut : {1, 2, 6, 7, 8, 20}) {
      const std::string where = std::to_string(length) + " tokens, cut behind " + std::to_string(cut);
      EngineDriver first(model(), {.threads = 2}), second(model(), {.threads = 1, .prefill_chunk = 3});
      const Outcome begun = testing::RunAndSave(first, prompt, Greedy(cut));
      ASSERT_NE(begun.saved, nullptr) << where << begun.message;
      const Outcome rest = testing::ResumeSaved(second, begun, {.generation = Greedy(24)});
      testing::ExpectJoined(begun, rest, whole, where);
      const Outcome longer = testing::ResumeSaved(second, begun, {.generation = Greedy(10), .more_prompt = more});
      ExpectSame(longer, Alone(Joined(Joined(prompt, begun.ids), more), Greedy(10)), where + ", more prompt");
    }
    if (HasFailure()) return;
  }
}

TEST_P(SegmentEngine, AnyLength_HasTheStateOfASegment) {
  EngineDriver driver(model(), {.threads = 1, .prefill_chunk = 64, .prefix_cache = false});
  const Outcome few = driver.Run(RandomPrompt(3 * kSegment, 1), Greedy(2)),
                many = driver.Run(RandomPrompt(300 * kSegment, 1), Greedy(2));
  EXPECT_EQ(few.stats.state_bytes, many.stats.state_bytes);
  EXPECT_EQ(few.stats.growth.allocated_bytes, many.stats.growth.allocated_bytes);
}

TEST_P(SegmentEngine, AnswerBehindTheLastPosition_EndsThere) {
  const size_t front = std::string(GetParam()) == "rmt_llama" ? 3 : 0;  // memory tokens have positions, too
  EngineDriver driver(model(), {.threads = 1});
  for (const size_t length : {size_t{3}, kSegment, kSegment + 1, 10 * kSegment + 3}) {
    const size_t tail = length - (length - 1) / kSegment * kSegment;
    const Outcome outcome = driver.Run(RandomPrompt(length, 5), Greedy(1000));
    EXPECT_EQ(outcome.finish, FinishReason::kLength) << length;
    EXPECT_EQ(outcome.ids.size(), kPositions - tail - front + 1) << length;
  }
}

// Where segments follow from the whole prompt.
TEST(SegmentAlignments, Batched_AreTheSame) {
  for (const std::string fixture : {"right", "center", "gpt2_wrap"}) {
    const auto model = ModelOf(fixture);
    const std::vector<Work> work = MixedWork();
    const std::vector<Outcome> alone =
        testing::RunUnbatched(model, work, {.threads = 1, .prefill_chunk = 1, .prefix_cache = false});
    EngineDriver driver(model, {.threads = 2, .max_batch = 5, .prefill_chunk = 20});
    const auto ids = testing::RunTogether(driver, work, 3);
    for (size_t i = 0; i < work.size(); ++i)
      ExpectSame(driver.outcome(ids[i]), alone[i], fixture + ", request " + std::to_string(i));
  }
}

}  // namespace
}  // namespace tidemill::segment_engine_test
