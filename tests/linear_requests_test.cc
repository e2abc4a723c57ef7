// The class of linear attention that an engine, a request or a saved state has: what shares, what is refused, and what is written in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/fixtures_path.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/linear_requests.h"
#include "tests/support/model_runner.h"
#include "tests/support/random_requests.h"
#include "tests/support/resumed_requests.h"

namespace tidemill::linear_requests_test {
namespace {

using testing::AllAnswers;
using testing::Alone;
using testing::ClassOf;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::Greedy;
using ::testing::HasSubstr;
using testing::Hybrid;
using testing::Joined;
using testing::kPolicies;
using testing::MixedWork;
using testing::NameOf;
using testing::NgramDraft;
using testing::Outcome;
using testing::Prompt;
using testing::Work;

// --- Saved states ---

TEST(LinearRequests, SavedRequest_GoesOnWithTheSameBits_AndUnderNoOtherClass) {
  const std::vector<int32_t> prompt = Prompt(37, 6);
  GenerationOptions generation = Greedy(90);
  generation.logprobs = 2;
  for (const LinearPolicy& policy : kPolicies) {
    const Outcome whole = Alone(policy, prompt, generation);
    for (const int32_t cut : {1, 27, 50}) {
      GenerationOptions first = generation;
      first.max_new_tokens = cut;
      EngineDriver driver(Hybrid(), {.threads = 1, .linear = policy, .prefill_chunk = 20});
      const Outcome saved = testing::RunAndSave(driver, prompt, first);
      ASSERT_NE(saved.saved, nullptr);
      EngineDriver elsewhere(Hybrid(),
                             {.threads = 2, .kv_policy = KvPolicy::kPaged, .linear = policy, .prefix_cache = false});
      const Outcome more = testing::ResumeSaved(elsewhere, saved, {.generation = generation});
      testing::ExpectJoined(saved, more, whole, NameOf(policy) + ", cut after " + std::to_string(cut));
      const SavedRequest read = testing::ReadSaved(saved);
      for (const LinearPolicy& another : kPolicies) {
        EngineDriver stranger(Hybrid(), {.threads = 1, .linear = another});
        const Result<RequestId> resumed = stranger.engine().Resume(read, {.generation = generation});
        EXPECT_EQ(resumed.ok(), policy == another) << NameOf(policy) << " in " << NameOf(another);
        if (!resumed.ok()) {
          EXPECT_EQ(resumed.error().code(), ErrorCode::kFailedPrecondition);
          EXPECT_EQ(resumed.error().message(),
                    "resume request: " + std::to_string(saved.saved->size()) + " bytes: expected numeric class " +
                        driver.engine().numeric_class() + ", found " + stranger.engine().numeric_class() +
                        "; choose --kv-dtype, --dtype, --isa, --rope-scaling, --linear-form, --linear-buffer, "
                        "--linear-start and --linear-buffer-dtype as when it was saved");
        }
        // Any engine goes on with it where the request says its class.
        const Outcome own = testing::ResumeSaved(stranger, saved, {.generation = generation, .linear = policy});
        testing::ExpectJoined(saved, own, whole, NameOf(policy) + " in an engine of " + NameOf(another));
      }
    }
    if (HasFailure()) return;
  }
}

// --- A class for each request ---

TEST(LinearRequests, RequestsOfSeveralClasses_ShareStepsAndNoState) {
  const std::vector<Work> work = MixedWork();
  EngineDriver driver(Hybrid(), {.threads = 2, .max_batch = 16, .prefill_chunk = 50});
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<std::vector<RequestId>> ids(std::size(kPolicies));
    for (size_t i = 0; i < work.size(); ++i) {
      for (size_t p = 0; p < ids.size(); ++p) {
        ids[p].push_back(
            driver.Submit({.prompt = work[i].prompt, .generation = work[i].generation, .linear = kPolicies[p]}));
      }
    }
    driver.RunUntilIdle();
    for (size_t p = 0; p < ids.size(); ++p) {
      for (size_t i = 0; i < work.size(); ++i) {
        const Outcome& found = driver.outcome(ids[p][i]);
        const std::string where = NameOf(kPolicies[p]) + ", request " + std::to_string(i);
        ExpectSame(found, AllAnswers()[p].alone[i], where);
      }
    }
    if (HasFailure()) return;
  }
}

TEST(LinearRequests, NumericClass_IsTheRequests) {
  const std::vector<int32_t> prompt = Prompt(40, 7), longer = Joined(prompt, {9, 8});  // of states that cannot go back
  EngineDriver driver(Hybrid(), {.threads = 1, .linear = {.buffer = 5}});
  EXPECT_THAT(driver.engine().numeric_class(), ::testing::EndsWith("/linear-5"));
  for (const LinearPolicy& policy : kPolicies) {
    EngineDriver another(Hybrid(), {.threads = 1, .linear = policy});
    const RequestId id = driver.Submit({.prompt = prompt, .generation = Greedy(5), .linear = policy});
    driver.RunUntilIdle();
    const RequestStats& stats = driver.outcome(id).stats;
    EXPECT_EQ(stats.cached_tokens, 0U) << NameOf(policy);
    EXPECT_EQ(stats.numeric_class, another.engine().numeric_class());
    ASSERT_TRUE(stats.linear.has_value());
    const DeltaClass form = ClassOf(policy);
    EXPECT_EQ(stats.linear->form, policy.form) << NameOf(policy);
    EXPECT_EQ(stats.linear->start, form.start);
    EXPECT_EQ(stats.linear->buffer, form.period);
    EXPECT_EQ(stats.linear->bfloat16, policy.bfloat16);
    const RequestId again =
        driver.Submit({.prompt = longer, .generation = Greedy(5), .store = false, .linear = policy});
    driver.RunUntilIdle();
    EXPECT_EQ(driver.outcome(again).stats.cached_tokens, prompt.size()) << NameOf(policy);
    ExpectSame(driver.outcome(again), Alone(policy, longer, Greedy(5)), NameOf(policy));
  }
  const RequestId plain = driver.Submit({.prompt = prompt, .generation = Greedy(5)});
  driver.RunUntilIdle();
  EXPECT_EQ(driver.outcome(plain).stats.cached_tokens, 0U);
  EXPECT_EQ(driver.outcome(plain).stats.numeric_class, driver.engine().numeric_class());
  // The same class, however it is said.
  const RequestId named = driver.Submit({.prompt = longer,
                                         .generation = Greedy(5),
                                         .linear = LinearPolicy{.form = LinearForm::kKv, .buffer = 5, .start = 5}});
  driver.RunUntilIdle();
  EXPECT_EQ(driver.outcome(named).stats.cached_tokens, prompt.size());
}

TEST(LinearRequests, WrongClasses_AreRefusedByName) {
  EngineDriver driver(Hybrid(), {.threads = 1});
  const auto refusal = [](EngineDriver& engine, const LinearPolicy& policy) {
    const auto id = engine.engine().Submit({.prompt = {5, 6}, .generation = Greedy(2), .linear = policy});
    EXPECT_FALSE(id.ok());
    EXPECT_EQ(id.error().code(), ErrorCode::kInvalidArgument);
    return id.error().message();
  };
  EXPECT_EQ(refusal(driver, {.buffer = 513}), "submit request: linear: --linear-buffer 513: expected 1 to 512");
  EXPECT_EQ(refusal(driver, {.buffer = 8, .start = 700}),
            "submit request: linear: --linear-start 700: expected 1 to 512");
  EXPECT_EQ(refusal(driver, {.buffer = 9, .start = 8}),
            "submit request: linear: --linear-start 8: expected at least the buffer's 9");
  EXPECT_EQ(refusal(driver, {.form = LinearForm::kRecurrent, .buffer = 4}),
            "submit request: linear: --linear-form recurrent with --linear-buffer 4: expected 1 or none");
  EXPECT_TRUE(driver.engine().idle());
  EngineDriver without(testing::SmallContextModel(DType::kF32), {.threads = 1});
  EXPECT_THAT(refusal(without, {.buffer = 8}), HasSubstr("submit request: linear: --linear-form and its like: expected "
                                                         "a model with linear attention"));
  const Outcome plain = without.Run({5, 6}, Greedy(2));
  EXPECT_FALSE(plain.stats.linear.has_value());
  EXPECT_EQ(plain.stats.numeric_class, without.engine().numeric_class());
}

// --- What is written ---

TEST(LinearRequests, States_AreWrittenWhereTokensPassBoundaries) {
  for (const LinearPolicy& policy : kPolicies) {
    const DeltaClass form = ClassOf(policy);
    EngineDriver driver(Hybrid(), {.threads = 1, .linear = policy, .prefill_chunk = 50, .prefix_cache = false});
    const auto state = driver.engine().impl().NewState();
    const auto layers = testing::LinearLayersOf(*state);
    const uint64_t state_bytes = layers[0]->shape().delta.state_floats() * sizeof(float);
    const auto run = [&](size_t prompt, int32_t tokens, const DraftOptions& draft) {
      const RequestId id = driver.Submit({.prompt = Prompt(prompt, 9), .generation = Greedy(tokens), .draft = draft});
      driver.RunUntilIdle();
      return driver.outcome(id).stats;
    };
    const auto passed = [&](size_t length) { return layers.size() * testing::BoundariesPassed(form, length); };
    for (const int32_t tokens : {1, 8, 24, 25, 64, 65, 120}) {
      // From one token on, each step has one: it writes once where it passes a boundary.
      const RequestStats one = run(1, tokens, {});
      const auto length = static_cast<size_t>(tokens);  // the last token is in no state
      const std::string where = NameOf(policy) + ", " + std::to_string(tokens) + " tokens";
      ASSERT_TRUE(one.linear.has_value());
      EXPECT_EQ(one.linear->boundaries, passed(length)) << where;
      EXPECT_EQ(one.linear->state_writes, passed(length)) << where;
      EXPECT_EQ(one.linear->state_bytes, length <= form.start ? 0 : layers.size() * state_bytes) << where;
      // Prompts in chunks, and then tokens.
      const RequestStats chunks = run(130, tokens, {});
      const uint64_t num_chunks = 3,
                     decoded = passed(130 + length - 1) - std::min(passed(130 + length - 1), passed(130));
      EXPECT_LE(chunks.linear->state_writes, layers.size() * (num_chunks + 1) + decoded) << where;
      EXPECT_LE(chunks.linear->boundaries, passed(130 + length - 1)) << where;
      // A verification writes at most once, whatever it takes up: never for its draft tokens.
      const RequestStats drafted = run(40, tokens, NgramDraft(9));
      uint64_t steps = 1;
      for (const uint32_t count : drafted.drafts.steps_by_draft_tokens) steps += count;
      EXPECT_LE(drafted.linear->state_writes, layers.size() * steps) << where;
      EXPECT_LE(drafted.linear->boundaries, passed(40 + length - 1)) << where;
      if (HasFailure()) return;
    }
  }
}

// Once rings have their size, no step allocates, wherever states are folded: a token each, or trees of which a path is taken up.
TEST(LinearRequests, Steps_AllocateNothing) {
  for (const bool tree : {false, true}) {
    testing::ModelRunner runner(std::string(TIDEMILL_FIXTURES) + "/families/qwen3_next",
                                {.threads = 2, .context = 512, .max_rows = 64});
    const std::vector<int32_t> ids = tree ? std::vector<int32_t>{7, 8, 9, 10, 11} : std::vector<int32_t>{7};
    const std::vector<int32_t> parents = {-1, 0, 0, 1, 2};
    const std::vector<uint32_t> kept = {0, 2, 4};
    const std::vector<RowKey> keys = testing::KeysOf(ids);
    std::vector<std::unique_ptr<SequenceState>> states;
    std::vector<StepSequence> step;
    for (const DeltaClass& form : testing::LinearClasses()) {
      states.push_back(runner.NewState(form));
      step.push_back({.state = states.back().get(), .tokens = ids, .rows = Wanted::kAll});
      if (tree) step.back().parents = parents;
    }
    float sum = 0;
    const StepExecutor::RowSink sink = [&sum](size_t, size_t, std::span<float> logits) { sum += logits[0]; };
    size_t before = 0;
    const size_t warm = tree ? 35 : 100, steps = tree ? 45 : 140;  // within the first block of keys and values
    for (size_t i = 0; i < warm + steps; ++i) {
      if (i == warm) before = testing::NumAllocations();
      for (const auto& state : states) ASSERT_TRUE(state->Reserve(ids.size()).ok());
      ASSERT_TRUE(runner.executor().Run(step, sink, nullptr));
      for (const auto& state : states) {
        if (tree) {
          state->CommitPath(kept, std::span(keys).first(kept.size()));
        } else {
          state->Commit(keys);
        }
      }
    }
    EXPECT_EQ(testing::NumAllocations() - before, 0U) << (tree ? "trees" : "tokens");
    EXPECT_NE(sum, 0.0F);
  }
}

}  // namespace
}  // namespace tidemill::linear_requests_test
