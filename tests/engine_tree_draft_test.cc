// Trees of draft tokens by a draft model: no answer changes, and each node is what the model says behind its own path.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "decoding/acceptance_counts.h"
#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill::engine_tree_draft_test {
namespace {

using testing::BuildCountingModel;
using testing::BuildTinyLlama;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::kSmallContext;
using testing::LoadModel;
using testing::MakeWork;
using testing::Outcome;
using testing::RunUnbatched;
using testing::SmallContextModel;
using testing::Work;

constexpr DraftTreeKind kKinds[] = {DraftTreeKind::kFixed, DraftTreeKind::kDynamic, DraftTreeKind::kOptimal};

std::string NameOf(DraftTreeKind kind) { return "tree " + std::to_string(static_cast<int>(kind)); }

DraftOptions OptionsOf(DraftTreeKind kind, const std::shared_ptr<const Model>& drafting, size_t num_draft_tokens,
                       size_t min_draft_tokens) {
  return {.num_draft_tokens = num_draft_tokens,
          .min_draft_tokens = min_draft_tokens,
          .source = drafting == nullptr ? DraftSource::kLayers : DraftSource::kModel,
          .layers = drafting == nullptr ? size_t{1} : 0,
          .tree = kind};
}

// Greedy and drawn answers, alone and in batches, with every growth policy, free rows for a part of a tree only, and too little memory.
TEST(TreeDraft, EveryRequest_GetsWhatItGetsWithout) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const auto work = MakeWork(18, 23);
  const auto alone = RunUnbatched(model, work);
  // Another one, whose context is full early, and which has fewer ids.
  const auto other = LoadModel("tree_draft", BuildTinyLlama({.vocab = 270,
                                                             .hidden = 32,
                                                             .layers = 1,
                                                             .heads = 2,
                                                             .kv_heads = 1,
                                                             .ffn = 64,
                                                             .context = 40,
                                                             .dtype = DType::kQ8_0,
                                                             .seed = 9}));
  constexpr KvPolicy kPolicies[] = {KvPolicy::kBmc,       KvPolicy::kIterative, KvPolicy::kUpfront,
                                    KvPolicy::kGeometric, KvPolicy::kReserve,   KvPolicy::kPaged};
  size_t drafted = 0, accepted = 0, later = 0, preemptions = 0, at = 0;
  for (const DraftTreeKind kind : kKinds) {
    for (const std::shared_ptr<const Model>& drafting : {model, other, std::shared_ptr<const Model>()}) {
      for (uint64_t seed = 0; seed < 6; ++seed, ++at) {
        std::mt19937_64 random(at);
        const auto one_of = [&random](std::vector<size_t> values) { return values[random() % values.size()]; };
        const size_t num_draft_tokens = (std::vector<size_t>{25, 5, 64, 1, 12, 3})[seed];
        EngineOptions options{.threads = one_of({1, 2}),
                              .kv_policy = kPolicies[random() % std::size(kPolicies)],
                              .kv_increment = one_of({1, 5, 16}),
                              .max_batch = one_of({5, 32}),
                              .prefill_chunk = one_of({1, 7, 64, 512}),
                              .draft_model = drafting};
        EngineDriver roomy(model, options);
        if (seed % 2 == 1)
          options.state_memory = roomy.engine().impl().NewState(0)->LedgerGrowth(kSmallContext, kSmallContext) * 9 / 8;
        EngineDriver driver(model, options);
        std::vector<RequestId> ids;
        for (const Work& w : work) {
          ids.push_back(driver.Submit(
              {.prompt = w.prompt,
               .generation = w.generation,
               .draft = OptionsOf(kind, drafting, num_draft_tokens, seed % 3 == 2 ? seed % 2 : num_draft_tokens)}));
        }
        driver.RunUntilIdle();
        for (size_t i = 0; i < work.size(); ++i) {
          const Outcome& found = driver.outcome(ids[i]);
          ExpectSame(found, alone[i], NameOf(kind) + ", request " + std::to_string(i) + ", run " + std::to_string(at));
          EXPECT_LE(found.stats.accepted_tokens, found.stats.drafted_tokens);
          EXPECT_LE(found.stats.drafts.later_siblings, found.stats.accepted_tokens);
          drafted += found.stats.drafted_tokens;
          accepted += found.stats.accepted_tokens;
          later += found.stats.drafts.later_siblings;
          preemptions += found.stats.preemptions;
        }
        driver.engine().ClearPrefixCache();
        EXPECT_EQ(driver.engine().impl().memory->held(), 0U) << at;
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  EXPECT_GT(drafted - accepted, 1000U);
  EXPECT_GT(accepted, 200U);
  EXPECT_GT(later, 20U);
  EXPECT_GT(preemptions, 4U);
}

// What the model says behind each path, the likeliest first, without its special tokens.
std::vector<TokenProbability> Ranked(Engine& engine, const Model& model, const std::vector<int32_t>& ids) {
  std::vector<TokenProbability> ranked;
  EXPECT_TRUE(
      engine
          .Score(ids, true,
                 [&](size_t, std::span<const float> logits) -> Result<void> {
                   double sum = 0;
                   for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
                   for (size_t id = 0; id < logits.size(); ++id)
                     ranked.push_back({static_cast<int32_t>(id), std::exp(static_cast<double>(logits[id])) / sum});
                   return {};
                 })
          .ok());
  std::erase_if(ranked, [&](const TokenProbability& token) { return model.text().tokenizer.IsSpecial(token.id); });
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.probability > b.probability; });
  return ranked;
}

// Siblings are the best tokens behind their own path, in order: so each level's rows saw their ancestors and nothing else. Rounds follow
// each other with what was drafted, and with something else.
TEST(TreeDraft, Nodes_AreTheBestBehindTheirPath) {
  const auto model = SmallContextModel(DType::kF32);
  for (const DraftTreeKind kind : kKinds) {
    EngineDriver driver(model, {.threads = 1, .draft_model = model});
    Engine& engine = driver.engine();
    std::vector<int32_t> text = {7, 8, 9, 40, 41};
    const auto drafter = engine.impl().NewDrafter(OptionsOf(kind, model, 25, 25), 0, nullptr);
    for (const int32_t id : text) drafter->Append(id);
    for (size_t round = 0; round < 4; ++round) {
      const std::string where = NameOf(kind) + ", round " + std::to_string(round);
      const DraftTree tree = drafter->Propose(25);
      ASSERT_EQ(tree.ids.size(), 25U) << where;
      ASSERT_EQ(tree.parents.size(), 25U) << where;
      if (kind == DraftTreeKind::kFixed) {
        const DraftShape shape = OrderByPromise(FixedDraftShape(), AcceptanceCounts().Rates());
        EXPECT_TRUE(std::equal(tree.parents.begin(), tree.parents.end(), shape.parents.begin())) << where;
      }
      std::vector<double> promises(25);
      double smallest = 1;
      for (int32_t parent = -1; parent < 25; ++parent) {
        std::vector<int32_t> path;
        for (int32_t at = parent; at >= 0; at = tree.parents[static_cast<size_t>(at)])
          path.insert(path.begin(), tree.ids[static_cast<size_t>(at)]);
        path.insert(path.begin(), text.begin(), text.end());
        if (std::find(tree.parents.begin(), tree.parents.end(), parent) == tree.parents.end()) continue;
        const auto ranked = Ranked(engine, *model, path);
        size_t rank = 0;
        for (size_t node = 0; node < 25; ++node) {
          if (tree.parents[node] != parent) continue;
          EXPECT_EQ(tree.ids[node], ranked[rank].id) << where << ", node " << node;
          promises[node] = ranked[rank++].probability * (parent < 0 ? 1 : promises[static_cast<size_t>(parent)]);
        }
      }
      for (size_t node = 0; node < 25 && kind == DraftTreeKind::kDynamic; ++node) {
        EXPECT_LE(promises[node], smallest * (1 + 1e-6)) << where;
        smallest = promises[node];
      }
      std::vector<int32_t> came = {text.back() + 3};
      if (round % 2 == 0) {  // the first path to the end
        came.clear();
        for (int32_t at = -1;;) {
          const auto child = std::find(tree.parents.begin(), tree.parents.end(), at);
          if (child == tree.parents.end()) break;
          at = static_cast<int32_t>(child - tree.parents.begin());
          came.push_back(tree.ids[static_cast<size_t>(at)]);
        }
        EXPECT_GE(came.size(), 2U) << where;
      }
      for (const int32_t id : came) drafter->Append(id);
      text.insert(text.end(), came.begin(), came.end());
    }
  }
}

// After 1 comes a special token, after 299 a row of the head without a token.
TEST(TreeDraft, SpecialAndPaddedIds_AreNeverDrafted) {
  const auto model = LoadModel("tree_special", BuildCountingModel({.vocab = 300, .rows_without_token = 20}));
  for (const DraftTreeKind kind : kKinds) {
    for (const int32_t last : {0, 1, 298, 299}) {
      EngineDriver driver(model, {.threads = 1, .draft_model = model});
      const auto drafter = driver.engine().impl().NewDrafter(OptionsOf(kind, model, 25, 25), 0, nullptr);
      drafter->Append(last);
      const DraftTree tree = drafter->Propose(25);
      EXPECT_GE(tree.ids.size(), 8U);
      for (const int32_t id : tree.ids) {
        EXPECT_FALSE(model->text().tokenizer.IsSpecial(id)) << id;
        EXPECT_LT(id, 300) << NameOf(kind) << " after " << last;
      }
    }
  }
}

// Five tokens of the fixed tree are right in each step, and one more is drawn; a chain of its 25 rows would be right in all.
TEST(TreeDraft, SameModel_IsRightToTheLeaf) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const GenerationOptions generation{.max_new_tokens = 40, .ignore_eos = true};
  EngineDriver plain(model, {.threads = 1});
  const Outcome expected = plain.Run({7, 8, 9}, generation);
  for (const DraftTreeKind kind : kKinds) {
    EngineDriver driver(model, {.threads = 1, .draft_model = model});
    const RequestId id =
        driver.Submit({.prompt = {7, 8, 9}, .generation = generation, .draft = OptionsOf(kind, model, 25, 25)});
    size_t steps = 0;
    for (; !driver.engine().idle(); ++steps) driver.Step();
    const Outcome& found = driver.outcome(id);
    ExpectSame(found, expected, NameOf(kind));
    EXPECT_LE(steps, 20U) << NameOf(kind);
    EXPECT_EQ(found.stats.accepted_tokens + steps, 40U) << NameOf(kind);
    const DraftStats& drafts = found.stats.drafts;
    EXPECT_EQ(drafts.later_siblings, 0U) << "greedy answers are what the model thinks likeliest";
    EXPECT_EQ(drafts.drafted[0], steps - 1 - drafts.steps_by_draft_tokens[0]) << NameOf(kind);
    EXPECT_EQ(std::accumulate(drafts.accepted.begin(), drafts.accepted.end(), size_t{0}), found.stats.accepted_tokens);
    if (kind == DraftTreeKind::kFixed) {
      EXPECT_GE(drafts.accepted[4], 4U);
      EXPECT_EQ(drafts.drafted[5], 0U);
    }
  }
}

// Drawn answers are often a sibling that a chain would not have had.
TEST(TreeDraft, DrawnAnswers_AcceptLaterSiblings) {
  const auto model = SmallContextModel(DType::kQ8_0);
  size_t accepted = 0, later = 0, accepted_of_chains = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const GenerationOptions generation{
        .max_new_tokens = 40, .temperature = 1, .top_k = 6, .ignore_eos = true, .seed = seed};
    for (const DraftTreeKind kind : {DraftTreeKind::kChain, DraftTreeKind::kDynamic}) {
      EngineDriver driver(model, {.threads = 1, .draft_model = model});
      const RequestId id =
          driver.Submit({.prompt = {7, 8, 9}, .generation = generation, .draft = OptionsOf(kind, model, 16, 16)});
      size_t steps = 0;
      for (; !driver.engine().idle(); ++steps) driver.Step();
      const RequestStats& stats = driver.outcome(id).stats;
      EXPECT_EQ(stats.accepted_tokens + steps, 40U);
      (kind == DraftTreeKind::kChain ? accepted_of_chains : accepted) += stats.accepted_tokens;
      later += stats.drafts.later_siblings;
    }
  }
  EXPECT_GT(later, 20U);
  EXPECT_GT(accepted, accepted_of_chains);
}

TEST(TreeDraft, WhatHasNoTrees_IsRefused) {
  const auto model = SmallContextModel(DType::kF32);
  EngineDriver driver(model, {.threads = 1, .draft_model = model});
  const auto refused = [&](const DraftOptions& draft, const std::string& what) {
    const auto id = driver.engine().Submit({.prompt = {5}, .generation = {}, .draft = draft});
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(id.error().message(), "submit request: draft: " + what);
  };
  for (const DraftTreeKind kind : kKinds) {
    refused({.num_draft_tokens = 4, .tree = kind},
            "expected a chain of DraftSource::kNgram, which drafts one continuation, found a tree; choose kModel, "
            "kLayers or kSparq");
  }
}

TEST(TreeDraft, Steps_AllocateOnlyWhereAStateGrows) {
  const auto model =
      LoadModel("tree_allocation", BuildCountingModel({.vocab = 1000, .context = 700, .eos_token = 999}));
  for (const DraftTreeKind kind : kKinds) {
    EngineDriver driver(model, {.threads = 1, .kv_increment = 256, .draft_model = model});
    driver.Submit({.prompt = {5}, .generation = {}, .draft = OptionsOf(kind, model, 12, 12)});
    size_t steps = 0, growths = 0;
    for (; !driver.engine().idle(); ++steps) {
      const size_t before = testing::NumAllocations();
      ASSERT_GE(driver.engine().Step().size(), 1U);
      if (testing::NumAllocations() != before) ++growths;
    }
    EXPECT_GE(steps, 60U);
    // The first steps, those where a state grows, and those where the best shape is found anew: at 1, 2, 4, 8 and every 16 trees.
    EXPECT_LE(growths, kind == DraftTreeKind::kOptimal ? 14 + steps / 16 : 10U) << NameOf(kind);
  }
}

}  // namespace
}  // namespace tidemill::engine_tree_draft_test
