// What the features of a draft head take is a part of the state memory: a request that would not fit with them is refused, or waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"

namespace tidemill::draft_memory_test {
namespace {

using testing::DraftingModel;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::Outcome;

const GenerationOptions kGeneration{.max_new_tokens = 20, .ignore_eos = true};
const std::vector<int32_t> kPrompt = {7, 8, 9, 10, 11};
constexpr size_t kPositions = 24;  // the last token has none

std::vector<DraftingModel> Heads() {
  std::vector<DraftingModel> heads = testing::DraftingModels();
  std::erase_if(heads, [](const DraftingModel& model) { return model.draft_head == nullptr; });
  EXPECT_EQ(heads.size(), 2U);
  return heads;
}

EngineOptions OptionsOf(const DraftingModel& head, uint64_t state_memory) {
  EngineOptions options = head.Options(2);
  options.kv_policy = KvPolicy::kIterative;
  options.state_memory = state_memory;
  return options;
}

struct Bytes {
  uint64_t state = 0, features = 0;
};

// features: 64 rows that wait and one of the head's own; of a tree 2 * 64 more of those.
Bytes BytesOf(const DraftingModel& head, DraftTreeKind tree) {
  EngineDriver driver(head.model, OptionsOf(head, uint64_t{1} << 30));
  const LanguageModel& model = *head.draft_head->impl().head;
  const size_t own = tree == DraftTreeKind::kChain ? 1 : 129;
  return {driver.engine().impl().NewState()->LedgerGrowth(kPositions, kPositions),
          (64 * model.features.width + own * model.settings.hidden_size) * sizeof(float)};
}

TEST(DraftMemory, RequestThatDoesNotFitWithItsFeatures_IsRefused) {
  for (const DraftingModel& head : Heads()) {
    EngineDriver plain(head.model, {.threads = 1});
    const Outcome expected = plain.Run(kPrompt, kGeneration);
    for (const DraftTreeKind tree : {DraftTreeKind::kChain, DraftTreeKind::kFixed}) {
      const Bytes bytes = BytesOf(head, tree);
      const uint64_t need = bytes.state + bytes.features;
      const Request request{.prompt = kPrompt, .generation = kGeneration, .draft = head.Draft(4, tree)};
      EngineDriver little(head.model, OptionsOf(head, need - 1)), enough(head.model, OptionsOf(head, need));
      const auto refused = little.engine().Submit(request);
      ASSERT_FALSE(refused.ok()) << head.name;
      EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
      EXPECT_EQ(refused.error().message(),
                "submit request: 24 tokens: expected at most " + std::to_string(need - 1) + " bytes of state, found " +
                    std::to_string(need) + ", of which " + std::to_string(bytes.features) +
                    " are a draft head's features; ask for fewer tokens, no draft tokens or give more --state-memory");
      ExpectSame(little.Run(kPrompt, kGeneration), expected, head.name + ", without draft tokens");
      const RequestId id = enough.Submit(request);
      enough.RunUntilIdle();
      ExpectSame(enough.outcome(id), expected, head.name + ", with room for both");
      EXPECT_EQ(enough.outcome(id).stats.preemptions, 0U);
    }
  }
}

// Two states have room together; with the features of both they have not.
TEST(DraftMemory, RequestThatDoesNotFitBesideOthersFeatures_Waits) {
  for (const DraftingModel& head : Heads()) {
    EngineDriver plain(head.model, {.threads = 1});
    const Outcome expected = plain.Run(kPrompt, kGeneration);
    const Bytes bytes = BytesOf(head, DraftTreeKind::kFixed);
    ASSERT_GT(bytes.features, bytes.state);
    for (const bool drafts : {false, true}) {
      EngineDriver driver(head.model, OptionsOf(head, bytes.features + 2 * bytes.state - 1));
      const DraftOptions draft = drafts ? head.Draft(4, DraftTreeKind::kFixed) : DraftOptions{};
      std::vector<RequestId> ids;
      for (int i = 0; i < 2; ++i)
        ids.push_back(driver.Submit({.prompt = kPrompt, .generation = kGeneration, .draft = draft}));
      size_t num_draft_tokens = 0, drafting = 0;
      while (!driver.engine().idle()) {
        driver.Step();
        const auto step = driver.engine().impl().scheduler->step();
        num_draft_tokens = std::max(num_draft_tokens, step.size());
        drafting += std::any_of(step.begin(), step.end(), [](const auto& s) { return !s.parents.empty(); }) ? 1U : 0U;
      }
      EXPECT_EQ(num_draft_tokens, drafts ? 1U : 2U) << head.name;
      EXPECT_EQ(drafting != 0, drafts) << head.name;
      for (const RequestId id : ids) {
        ExpectSame(driver.outcome(id), expected, head.name);
        EXPECT_EQ(driver.outcome(id).stats.preemptions, 0U) << head.name << ": it waits, it is not preempted";
      }
    }
  }
}

// A request that nobody bounded grows until features have no room beside its state: they go, and the answer goes on.
TEST(DraftMemory, RequestThatOutgrowsItsFeatures_GoesOnWithoutDraftTokens) {
  const GenerationOptions generation{.ignore_eos = true};
  for (const DraftingModel& head : Heads()) {
    EngineDriver plain(head.model, {.threads = 1});
    const Outcome expected = plain.Run(kPrompt, generation);
    const Bytes bytes = BytesOf(head, DraftTreeKind::kFixed);
    for (const uint64_t missing : {uint64_t{0}, uint64_t{1}, bytes.features}) {
      EngineDriver roomy(head.model, OptionsOf(head, uint64_t{1} << 30));
      const uint64_t whole =
          roomy.engine().impl().NewState()->LedgerGrowth(roomy.engine().context(), roomy.engine().context());
      EngineDriver driver(head.model, OptionsOf(head, whole + bytes.features - missing));
      const RequestId id =
          driver.Submit({.prompt = kPrompt, .generation = generation, .draft = head.Draft(4, DraftTreeKind::kFixed)});
      driver.RunUntilIdle();
      ExpectSame(driver.outcome(id), expected, head.name);
      EXPECT_GT(driver.outcome(id).stats.drafted_tokens, 20U) << head.name;
      EXPECT_NE(driver.outcome(id).stats.draft_trouble, "") << head.name << ": first its state has no room";
    }
  }
}

// What they took is there for others at once.
TEST(DraftMemory, GivenUpFeatures_MakeRoomForARequestThatWaits) {
  for (const DraftingModel& head : Heads()) {
    const Bytes bytes = BytesOf(head, DraftTreeKind::kFixed);
    EngineDriver roomy(head.model, OptionsOf(head, uint64_t{1} << 30));
    const size_t half = roomy.engine().context() / 2;
    EngineDriver driver(
        head.model, OptionsOf(head, roomy.engine().impl().NewState()->LedgerGrowth(half, half) + bytes.features - 1));
    const RequestId large = driver.Submit(
        {.prompt = kPrompt, .generation = {.ignore_eos = true}, .draft = head.Draft(4, DraftTreeKind::kFixed)});
    while (driver.outcome(large).ids.size() + kPrompt.size() <= half) driver.Step();
    ASSERT_FALSE(driver.outcome(large).ended());
    (void)driver.Submit({.prompt = kPrompt, .generation = {.max_new_tokens = 2, .ignore_eos = true}});
    driver.Step();
    EXPECT_EQ(driver.engine().impl().scheduler->step().size(), 2U) << head.name;
  }
}

// What waits, or was preempted, holds no features.
TEST(DraftMemory, Features_AreHeldWhileARequestRuns) {
  for (const DraftingModel& head : Heads()) {
    EngineDriver driver(head.model, OptionsOf(head, uint64_t{1} << 30));
    const auto drafter = driver.engine().impl().NewDrafter(head.Draft(4, DraftTreeKind::kFixed), 0, nullptr);
    const std::vector<float> feature(head.draft_head->impl().head->features.width, 0.5F);
    drafter->Append(7);
    drafter->Append(8);
    const testing::HeapWatch before;
    drafter->AddFeature(0, feature);
    EXPECT_GE(before.PeakBytes(), drafter->feature_bytes()) << head.name;
    EXPECT_FALSE(drafter->Propose(4).ids.empty());
    drafter->Release();
    const testing::HeapWatch after;
    drafter->AddFeature(0, feature);
    EXPECT_GE(after.PeakBytes(), drafter->feature_bytes()) << head.name << ": they were given back";
    EXPECT_FALSE(drafter->Propose(4).ids.empty());
  }
}

}  // namespace
}  // namespace tidemill::draft_memory_test
