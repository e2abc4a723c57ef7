// Draft tokens by the model's own first layers: what an early exit says, made in the unused rows of the request's state, which stays as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/engine_driver.h"
#include "tests/support/model_runner.h"
#include "tests/support/random_requests.h"

namespace tidemill::layers_draft_test {
namespace {

using testing::EngineDriver;
using testing::KeysOf;
using testing::Outcome;
using testing::SmallContextModel;

using Ids = std::vector<int32_t>;

constexpr size_t kLayers = 1;  // of two

// Runs ids through so many layers and commits them; the likeliest id behind the last.
int32_t Feed(Engine::Impl& impl, SequenceState& state, std::span<const int32_t> ids, size_t num_layers) {
  EXPECT_TRUE(state.Reserve(ids.size()).ok());
  const StepSequence step{.state = &state, .tokens = ids, .rows = Wanted::kLast};
  int32_t likeliest = -1;
  SequentialOrder order(num_layers);
  EXPECT_TRUE(impl.executor->Run(
      {&step, 1},
      [&](size_t, size_t, std::span<float> logits) {
        likeliest = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      },
      nullptr, order));
  state.Commit(KeysOf(ids));
  return likeliest;
}

Ids GreedyOfFirstLayers(Engine::Impl& impl, const Ids& text, size_t count) {
  const auto state = impl.NewState();
  Ids found = {Feed(impl, *state, text, kLayers)};
  while (found.size() != count) found.push_back(Feed(impl, *state, std::span(found).last(1), kLayers));
  return found;
}

// A request's state, which all of its text but the last id is in, and the drafter that drafts in it.
struct Drafting {
  Drafting(EngineDriver& driver, Ids text_before, DraftTreeKind tree = DraftTreeKind::kChain)
      : impl(driver.engine().impl()),
        text(std::move(text_before)),
        state(impl.NewState()),
        drafter(
            impl.NewDrafter({.num_draft_tokens = 25, .source = DraftSource::kLayers, .layers = kLayers, .tree = tree},
                            0, state.get())) {
    for (const int32_t id : text) drafter->Append(id);
    Feed(impl, *state, std::span(text).first(text.size() - 1), SIZE_MAX);
  }

  void Goes(std::span<const int32_t> ids) {
    Ids ran = {text.back()};
    ran.insert(ran.end(), ids.begin(), ids.end() - 1);
    Feed(impl, *state, ran, SIZE_MAX);
    text.insert(text.end(), ids.begin(), ids.end());
    for (const int32_t id : ids) drafter->Append(id);
  }

  Engine::Impl& impl;
  Ids text;
  std::unique_ptr<SequenceState> state;
  std::unique_ptr<Drafter> drafter;
};

TEST(LayersDraft, Chain_IsWhatAnEarlyExitSays) {
  EngineDriver driver(SmallContextModel(DType::kF32), {.threads = 1});
  Drafting drafting(driver, {7, 8, 9, 40, 41});
  for (size_t round = 0; round < 6; ++round) {
    const auto before = drafting.state->Checkpoint();
    const DraftTree draft_tokens = drafting.drafter->Propose(6);
    const Ids expected = GreedyOfFirstLayers(driver.engine().impl(), drafting.text, 6);
    EXPECT_EQ(Ids(draft_tokens.ids.begin(), draft_tokens.ids.end()), expected) << "round " << round;
    const auto after = drafting.state->Checkpoint();
    ASSERT_TRUE(before.ok() && after.ok());
    EXPECT_TRUE(*before == *after) << "round " << round;
    const Ids right(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(round));
    Ids came = right;
    came.push_back(50 + static_cast<int32_t>(round));
    drafting.Goes(came);
  }
}

// Each node of a tree is one of the best behind its own path: the first child of each is what the chain would go on with.
TEST(LayersDraft, Tree_GoesOnWithWhatAnEarlyExitSays) {
  EngineDriver driver(SmallContextModel(DType::kF32), {.threads = 1});
  for (const DraftTreeKind kind : {DraftTreeKind::kFixed, DraftTreeKind::kDynamic, DraftTreeKind::kOptimal}) {
    Drafting drafting(driver, {7, 8, 9, 40, 41}, kind);
    for (size_t round = 0; round < 3; ++round) {
      const DraftTree tree = drafting.drafter->Propose(25);
      ASSERT_EQ(tree.ids.size(), 25U);
      size_t inner = 0;
      for (int32_t parent = -1; parent < 25; ++parent) {
        const auto first = std::find(tree.parents.begin(), tree.parents.end(), parent);
        if (first == tree.parents.end()) continue;
        Ids path;
        for (int32_t at = parent; at >= 0; at = tree.parents[static_cast<size_t>(at)])
          path.insert(path.begin(), tree.ids[static_cast<size_t>(at)]);
        path.insert(path.begin(), drafting.text.begin(), drafting.text.end());
        EXPECT_EQ(tree.ids[static_cast<size_t>(first - tree.parents.begin())],
                  GreedyOfFirstLayers(driver.engine().impl(), path, 1)[0])
            << "tree " << static_cast<int>(kind) << ", behind node " << parent;
        ++inner;
      }
      EXPECT_GE(inner, 4U);
      drafting.Goes(Ids{tree.ids[0], 60 + static_cast<int32_t>(round)});
    }
  }
}

// Checked they stand behind the last sampled token: k unused rows are k - 1 draft tokens. Where there never was a place for one, the drafter says so.
TEST(LayersDraft, DraftTokens_StandInUnusedRowsOnly) {
  struct Case {
    KvPolicy policy;
    size_t increment, draft_tokens;
  };
  for (const Case& c :
       {Case{KvPolicy::kBmc, 8, 2}, Case{KvPolicy::kBmc, 7, 1}, Case{KvPolicy::kBmc, 6, 0}, Case{KvPolicy::kBmc, 5, 0},
        Case{KvPolicy::kBmc, 1, 0}, Case{KvPolicy::kIterative, 0, 0}, Case{KvPolicy::kUpfront, 0, 6},
        Case{KvPolicy::kPaged, 8, 2}, Case{KvPolicy::kGeometric, 0, 6}, Case{KvPolicy::kReserve, 8, 2}}) {
    SCOPED_TRACE(std::string(KvPolicyName(c.policy)) + ", increment " + std::to_string(c.increment));
    EngineDriver driver(SmallContextModel(DType::kF32),
                        {.threads = 1, .kv_policy = c.policy, .kv_increment = c.increment});
    Drafting drafting(driver, {7, 8, 9, 40, 41, 42});
    const uint64_t held = drafting.state->bytes().reserved;
    const DraftTree draft_tokens = drafting.drafter->Propose(6);
    if (c.policy == KvPolicy::kReserve) {
      EXPECT_GE(draft_tokens.ids.size(), c.draft_tokens) << "whole pages of memory have more rows";
    } else {
      EXPECT_EQ(draft_tokens.ids.size(), c.draft_tokens);
    }
    EXPECT_EQ(drafting.drafter->trouble(), c.draft_tokens == 0 ? "the cache has no unused rows for draft tokens" : "");
    if (c.draft_tokens == 0) {
      EXPECT_EQ(draft_tokens.empty, DraftTree::Empty::kNothing);
    }
    EXPECT_EQ(drafting.state->bytes().reserved, held);
    EXPECT_EQ(drafting.state->length(), 5U);
  }
}

TEST(LayersDraft, CacheThatOnceHadUnusedRows_IsNoTrouble) {
  EngineDriver driver(SmallContextModel(DType::kF32), {.threads = 1, .kv_increment = 5});
  Drafting drafting(driver, {7, 8, 9, 40, 41, 42});
  EXPECT_TRUE(drafting.drafter->Propose(6).ids.empty());
  EXPECT_NE(drafting.drafter->trouble(), "");
  drafting.Goes(Ids{43});
  EXPECT_EQ(drafting.drafter->Propose(6).ids.size(), 3U);
  EXPECT_EQ(drafting.drafter->trouble(), "");
  drafting.Goes(Ids{44, 45, 46, 47});
  EXPECT_TRUE(drafting.drafter->Propose(6).ids.empty()) << "the block is full";
  EXPECT_EQ(drafting.drafter->trouble(), "");
}

// A full block grows for the last sampled token, which it must anyway, before draft tokens are made; none is made that cannot be checked.
TEST(LayersDraft, FullBlock_GrowsBeforeDraftTokensAreMade) {
  for (const size_t increment : {2, 3, 8}) {
    EngineDriver driver(SmallContextModel(DType::kF32), {.threads = 1, .kv_increment = increment});
    Engine::Impl& impl = driver.engine().impl();
    const RequestId id = driver.Submit(
        {.prompt = Ids(4 * increment, 7),
         .generation = {.max_new_tokens = 60, .ignore_eos = true},
         .draft = {.num_draft_tokens = 4, .min_draft_tokens = 4, .source = DraftSource::kLayers, .layers = kLayers}});
    size_t full = 0;
    while (!driver.engine().idle()) {
      SequenceState& state = impl.requests[0]->state();
      const size_t length = state.length();
      const bool is_full = length != 0 && length % increment == 0;
      driver.Step();
      if (!is_full || length + 5 >= 4 * increment + 60) continue;  // at the end fewer are wanted
      ++full;
      EXPECT_EQ(impl.scheduler->step()[0].tokens.size(), std::min<size_t>(increment, 5)) << "at " << length;
    }
    const RequestStats& stats = driver.outcome(id).stats;
    EXPECT_GT(full, 4U) << "increment " << increment;
    EXPECT_GT(stats.drafted_tokens, 4U);
    EXPECT_EQ(stats.drafts.cut, 0U);
    EXPECT_EQ(impl.scheduler->draft_steps().num_steps(), stats.drafted_tokens);
  }
}

TEST(LayersDraft, OnlyDraftModels_ReadText) {
  const auto model = SmallContextModel(DType::kF32);
  EngineDriver driver(model, {.threads = 1, .draft_model = model});
  Engine::Impl& impl = driver.engine().impl();
  const auto state = impl.NewState();
  for (const DraftSource source : {DraftSource::kNgram, DraftSource::kModel, DraftSource::kLayers}) {
    const auto drafter = impl.NewDrafter({.num_draft_tokens = 1, .source = source, .layers = kLayers}, 0, state.get());
    EXPECT_EQ(drafter->reads_text(), source == DraftSource::kModel) << static_cast<int>(source);
  }
}

TEST(LayersDraft, StateThatLacksMoreThanTheLastId_IsNotDraftedIn) {
  EngineDriver driver(SmallContextModel(DType::kF32), {.threads = 1});
  Drafting drafting(driver, {7, 8, 9, 40, 41});
  drafting.drafter->Append(42);
  EXPECT_TRUE(drafting.drafter->Propose(6).ids.empty());
  drafting.state->Clear();
  EXPECT_TRUE(drafting.drafter->Propose(6).ids.empty());
}

// Nothing reads the prompt for the draft tokens: each takes one step, the first of all, too; and no memory beside the state's.
TEST(LayersDraft, DraftToken_TakesOneStepAndNoMemory) {
  EngineDriver driver(SmallContextModel(DType::kF32), {.threads = 1});
  Engine::Impl& impl = driver.engine().impl();
  const Ids prompt(60, 7);
  const RequestId id = driver.Submit(
      {.prompt = prompt,
       .generation = {.max_new_tokens = 20, .ignore_eos = true},
       .draft = {.num_draft_tokens = 3, .min_draft_tokens = 3, .source = DraftSource::kLayers, .layers = kLayers}});
  while (!driver.engine().idle()) {
    driver.Step();
    for (const auto& request : impl.requests) {
      const StateBytes bytes = request->state().bytes();
      EXPECT_EQ(impl.memory->held(), bytes.reserved + bytes.keys);
    }
  }
  const Outcome& found = driver.outcome(id);
  EXPECT_GT(found.stats.drafted_tokens, 20U);
  EXPECT_EQ(impl.scheduler->draft_steps().num_steps(), found.stats.drafted_tokens);
}

}  // namespace
}  // namespace tidemill::layers_draft_test
