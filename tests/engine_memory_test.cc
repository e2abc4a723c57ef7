// Requests that have to share too little memory: they wait, give way and come back. That each still gets what it would get alone is
// tests/engine_batch_mates_test.cc's.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/tiny_model.h"

namespace tidemill::engine_memory_test {
namespace {

using testing::BuildCountingModel;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::FailAllocations;
using testing::kSmallContext;
using testing::LoadModel;
using testing::Outcome;
using testing::SmallContextModel;

// Bytes of a state with `positions` under a policy.
uint64_t StateBytesOf(const std::shared_ptr<const Model>& model, EngineOptions options, size_t positions) {
  options.state_memory = 0;
  return EngineDriver(model, options).engine().impl().NewState(positions)->LedgerGrowth(positions, positions);
}

TEST(EngineMemory, RequestThatCanNeverFit_IsRefusedAtOnce) {
  const auto model = SmallContextModel(DType::kF32);
  EngineOptions options{.threads = 1, .kv_policy = KvPolicy::kIterative};
  const uint64_t bytes = StateBytesOf(model, options, 20);
  options.state_memory = bytes;
  EngineDriver driver(model, options);
  // The last token of all is in no state.
  EXPECT_TRUE(driver.engine().Submit({.prompt = {5, 6, 7}, .generation = {.max_new_tokens = 18}}).ok());
  driver.RunUntilIdle();
  const auto refused = driver.engine().Submit({.prompt = {5, 6, 7}, .generation = {.max_new_tokens = 19}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(refused.error().message(), "submit request: 21 tokens: expected at most " + std::to_string(bytes) +
                                           " bytes of state, found " +
                                           std::to_string(StateBytesOf(model, options, 21)) +
                                           "; ask for fewer tokens or give more --state-memory");
  EXPECT_TRUE(driver.engine().idle());
}

TEST(EngineMemory, TokensThatAreOnlyALimit_NeedNoRoom) {
  const auto model = SmallContextModel(DType::kF32);
  EngineOptions options{.threads = 1, .kv_policy = KvPolicy::kIterative};
  options.state_memory = StateBytesOf(model, options, 20);
  EngineDriver driver(model, options);
  const auto run = [&driver](int32_t tokens) {
    const RequestId id = driver.Submit({.prompt = {5, 6, 7},
                                        .generation = {.max_new_tokens = tokens, .ignore_eos = true},
                                        .needs_room_for_all = false});
    driver.RunUntilIdle();
    return driver.outcome(id);
  };
  EXPECT_EQ(run(18).finish, FinishReason::kLength);
  const Outcome too_long = run(1000);
  EXPECT_EQ(too_long.error, ErrorCode::kOutOfMemory);
  EXPECT_EQ(too_long.ids.size(), 18U);
}

// Layers with a window forget a long prompt while it comes in parts: it needs no memory for all of it.
TEST(EngineMemory, LongPromptBehindWindows_FitsWhereItsStepsDo) {
  const auto model = testing::WindowedModel();
  EngineOptions options{.threads = 1, .kv_policy = KvPolicy::kIterative, .prefill_chunk = 8};
  constexpr size_t kPositions = testing::kWindowedContext - 2;
  {
    EngineDriver measured(model, options);
    const auto state = measured.engine().impl().NewState();
    options.state_memory = state->LedgerGrowth(kPositions, options.prefill_chunk);
    ASSERT_LT(options.state_memory, state->LedgerGrowth(kPositions, kPositions));
  }
  std::vector<int32_t> prompt(kPositions - 2);
  std::iota(prompt.begin(), prompt.end(), 5);
  for (int32_t& id : prompt) id = 5 + id % 100;
  const GenerationOptions three{.max_new_tokens = 3, .ignore_eos = true};
  EngineDriver driver(model, options);
  ExpectSame(driver.Run(prompt, three), EngineDriver(model, {.threads = 1}).Run(prompt, three), "in parts");
}

// Pages that chunks begin are not promised together: a step needs its own rows.
TEST(EngineMemory, PagesOfChunks_NeedNoRoomForAllOfThePrompt) {
  const auto model = SmallContextModel(DType::kF32);
  const std::vector<int32_t> prompt(42, 7);
  const GenerationOptions three{.max_new_tokens = 3, .ignore_eos = true};
  for (const size_t chunk : {size_t{1}, size_t{7}, size_t{13}}) {
    EngineOptions options{
        .threads = 1, .kv_policy = KvPolicy::kPaged, .kv_increment = 33, .max_batch = 1, .prefill_chunk = chunk};
    options.state_memory = StateBytesOf(model, options, 66);
    EngineDriver driver(model, options);
    ExpectSame(driver.Run(prompt, three), EngineDriver(model, {.threads = 1}).Run(prompt, three),
               std::to_string(chunk));
  }
}

// The last token of all is in no state: what Submit accepts runs.
TEST(EngineMemory, RequestForOneToken_NeedsNoRowForIt) {
  const auto model = SmallContextModel(DType::kF32);
  EngineOptions options{.threads = 1, .kv_policy = KvPolicy::kIterative};
  options.state_memory = StateBytesOf(model, options, 3);
  EngineDriver driver(model, options);
  const GenerationOptions one{.max_new_tokens = 1, .ignore_eos = true};
  ExpectSame(driver.Run({5, 6, 7}, one), EngineDriver(model, {.threads = 1}).Run({5, 6, 7}, one), "one token");
}

// Nobody could know how long it gets; what it generated until then is there.
TEST(EngineMemory, RequestThatGrowsTooLarge_EndsWithItsTextAndDisturbsNobody) {
  const auto model = SmallContextModel(DType::kF32);
  EngineOptions options{.threads = 1, .kv_policy = KvPolicy::kIterative};
  options.state_memory = StateBytesOf(model, options, 20);
  EngineDriver driver(model, options);
  const GenerationOptions endless{.ignore_eos = true}, three{.max_new_tokens = 3, .ignore_eos = true};
  const Outcome alone = EngineDriver(model, {.threads = 1}).Run({5, 6, 7}, endless);
  const RequestId large = driver.Submit({5, 6, 7}, endless), small = driver.Submit({9, 8}, three);
  driver.RunUntilIdle();
  const Outcome& found = driver.outcome(large);
  EXPECT_EQ(found.error, ErrorCode::kOutOfMemory);
  EXPECT_EQ(found.ids.size(), 18U);  // 20 positions, and one more token
  EXPECT_TRUE(std::equal(found.ids.begin(), found.ids.end(), alone.ids.begin()));
  EXPECT_NE(found.message.find("expected at most"), std::string::npos) << found.message;
  ExpectSame(driver.outcome(small), EngineDriver(model, {.threads = 1}).Run({9, 8}, three), "small");
}

// Nothing overtakes: with room for one state, requests end in the order in which they came.
TEST(EngineMemory, OldestFirst) {
  const auto model = SmallContextModel(DType::kF32);
  EngineOptions options{.threads = 1, .kv_policy = KvPolicy::kUpfront};
  options.state_memory = StateBytesOf(model, options, kSmallContext);
  EngineDriver driver(model, options);
  std::vector<RequestId> ids, ended;
  for (const int32_t tokens : {30, 2, 9}) ids.push_back(driver.Submit({5, 6, 7, tokens}, {.ignore_eos = true}));
  while (!driver.engine().idle()) {
    driver.Step();
    for (const RequestId id : ids) {
      if (driver.outcome(id).ended() && std::find(ended.begin(), ended.end(), id) == ended.end()) ended.push_back(id);
    }
    ASSERT_LE(driver.held_bytes(), options.state_memory);
  }
  EXPECT_EQ(ended, ids);
}

TEST(EngineMemory, CancelledWhileWaiting_EndsAndFreesItsPlace) {
  const auto model = SmallContextModel(DType::kF32);
  EngineOptions options{.threads = 1, .kv_policy = KvPolicy::kUpfront};
  options.state_memory = StateBytesOf(model, options, kSmallContext);
  EngineDriver driver(model, options);
  const RequestId first = driver.Submit({5, 6, 7}, {.ignore_eos = true});
  const RequestId waits = driver.Submit({5, 6, 8}, {.ignore_eos = true});
  const RequestId last = driver.Submit({5, 6, 9}, {.max_new_tokens = 2, .ignore_eos = true});
  driver.Step();
  driver.engine().Cancel(waits);
  driver.Step();
  EXPECT_EQ(driver.outcome(waits).finish, FinishReason::kCancelled);
  EXPECT_EQ(driver.outcome(waits).stats.state_bytes, 0U);
  driver.RunUntilIdle();
  EXPECT_EQ(driver.outcome(first).finish, FinishReason::kLength);
  EXPECT_EQ(driver.outcome(last).ids.size(), 2U);
}

// Giving way and coming back while each allocation in turn fails: both go on with the right tokens, or end with an error and the right
// beginning. What cannot be preempted is computed again.
TEST(EngineMemory, GivingWayWithoutMemory_LosesNothing) {
  const auto model = LoadModel("engine_memory", BuildCountingModel({.vocab = 400, .context = 64, .eos_token = 399}));
  EngineOptions options{.threads = 1, .kv_policy = KvPolicy::kIterative};
  options.state_memory = StateBytesOf(model, options, 20);
  size_t errors = 0, preemptions = 0;
  for (const std::string& folder : {std::string(), ::testing::TempDir()}) {
    options.spill_folder = folder;
    for (size_t failing_step = 0; failing_step < 40; ++failing_step) {
      for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
        for (size_t n = 0, reached = 1; reached != 0; ++n) {
          ASSERT_LT(n, 100U);
          EngineDriver driver(model, options);
          const RequestId ids[] = {driver.Submit({20}, {.max_new_tokens = 16}),
                                   driver.Submit({50}, {.max_new_tokens = 14})};
          for (size_t i = 0; i < failing_step; ++i) driver.Step();
          FailAllocations failure(n, count);
          const auto events = driver.engine().Step();
          reached = failure.Stop() ? 1 : 0;
          driver.Consume(events);
          driver.RunUntilIdle();
          for (const RequestId id : ids) {
            const Outcome& outcome = driver.outcome(id);
            const std::string where = "step " + std::to_string(failing_step) + ", allocation " + std::to_string(n);
            EXPECT_EQ(outcome.last_events, 1U) << where;
            std::vector<int32_t> expected(outcome.error ? outcome.ids.size() : id == ids[0] ? 16 : 14);
            std::iota(expected.begin(), expected.end(), id == ids[0] ? 21 : 51);
            EXPECT_EQ(outcome.ids, expected) << where;
            EXPECT_EQ(outcome.error.value_or(ErrorCode::kOutOfMemory), ErrorCode::kOutOfMemory) << where;
            errors += outcome.error.has_value();
            preemptions += outcome.stats.preemptions;
          }
          ASSERT_FALSE(HasFailure());
        }
      }
    }
  }
  EXPECT_GT(errors, 20U);
  EXPECT_GT(preemptions, 100U);
}

TEST(EngineMemory, Default_IsHalfOfWhatIsFree) {
  EngineDriver driver(SmallContextModel(DType::kF32), {.threads = 1});
  EXPECT_GT(driver.engine().state_memory(), uint64_t{1} << 20);
  EXPECT_LT(driver.engine().state_memory(), uint64_t{1} << 50);
  EXPECT_EQ(driver.engine().notice(), "");
}

TEST(EngineMemory, DefaultWhereNobodyKnowsWhatIsFree_IsLittleAndSaysSo) {
  const DefaultStateMemory known = ChooseStateMemory(uint64_t{6} << 30);
  EXPECT_EQ(known.bytes, uint64_t{3} << 30);
  EXPECT_EQ(known.notice, "");
  EXPECT_EQ(ChooseStateMemory(0).bytes, 1U);
  const DefaultStateMemory unknown = ChooseStateMemory(std::nullopt);
  EXPECT_EQ(unknown.bytes, uint64_t{512} << 20);
  EXPECT_NE(unknown.notice.find("--state-memory"), std::string::npos) << unknown.notice;
  EXPECT_NE(unknown.notice.find("512 MiB"), std::string::npos) << unknown.notice;
}

// What the answer has already is in the prompt: it is not counted twice.
TEST(EngineMemory, ResumedRequest_NeedsWhatIsLeft) {
  const auto model = SmallContextModel(DType::kF32);
  EngineOptions options{.threads = 1, .kv_policy = KvPolicy::kIterative};
  options.state_memory = StateBytesOf(model, options, 20);
  EngineDriver driver(model, options);
  const Outcome first = testing::RunAndSave(driver, {5, 6, 7, 8}, {.max_new_tokens = 10, .ignore_eos = true});
  const SavedRequest saved = testing::ReadSaved(first);
  const auto resume = [&](int32_t tokens) {
    return driver.engine().Resume(saved,
                                  {.generation = GenerationOptions{.max_new_tokens = tokens, .ignore_eos = true}});
  };
  const auto refused = resume(18);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_NE(refused.error().message().find("21 tokens: expected at most"), std::string::npos)
      << refused.error().message();
  const auto id = resume(17);
  ASSERT_TRUE(id.ok()) << id.error().message();
  driver.RunUntilIdle();
  EXPECT_EQ(driver.outcome(*id).finish, FinishReason::kLength);
  EXPECT_EQ(driver.outcome(*id).ids.size(), 7U);
}

}  // namespace
}  // namespace tidemill::engine_memory_test
