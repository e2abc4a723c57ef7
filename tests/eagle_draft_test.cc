// Draft tokens by a draft head: they are the original's, and change how many steps an answer takes and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/eagle_golden.h"
#include "tests/support/eagle_models.h"
#include "tests/support/eagle_pairs.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_drafter.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/tiny_model.h"

namespace tidemill::eagle_draft_test {
namespace {

using testing::ChangedCheckpoint;
using testing::EagleGolden;
using testing::EagleTokenizer;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::Fixture;
using testing::kEagleVocab;
using testing::LoadHead;
using testing::LoadTarget;
using testing::MakeWork;
using testing::ModelFolder;
using testing::OptionsOf;
using testing::Outcome;
using testing::RunUnbatched;
using testing::TryHead;
using testing::Work;

constexpr DraftTreeKind kKinds[] = {DraftTreeKind::kChain, DraftTreeKind::kFixed, DraftTreeKind::kDynamic,
                                    DraftTreeKind::kOptimal};
constexpr const char* kHeads[] = {"eagle1", "eagle3"};

// What a drafter said where so many ids were known.
struct Proposal {
  size_t request = 0, ids = 0;
  std::vector<int32_t> nodes = {}, parents = {};

  // The ids along the path of each node.
  std::set<std::vector<int32_t>> Paths() const {
    std::vector<std::vector<int32_t>> paths(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int32_t parent = parents.empty() ? static_cast<int32_t>(i) - 1 : parents[i];
      if (parent >= 0) paths[i] = paths[static_cast<size_t>(parent)];
      paths[i].push_back(nodes[i]);
    }
    return {paths.begin(), paths.end()};
  }
};

// Of all requests from now on, numbered as they are submitted.
void Record(EngineDriver& driver, std::vector<Proposal>* proposals) {
  Engine::Impl& impl = driver.engine().impl();
  impl.make_drafter = [&impl, proposals, count = size_t{0}](const Request& request, size_t expected,
                                                            SequenceState& state) mutable {
    const auto keep = [proposals, number = count++](size_t num_ids, const DraftTree& tree) {
      proposals->push_back({.request = number,
                            .ids = num_ids,
                            .nodes = {tree.ids.begin(), tree.ids.end()},
                            .parents = {tree.parents.begin(), tree.parents.end()}});
    };
    return std::make_unique<testing::RecordingDrafter>(impl.NewDrafter(request.draft, expected, &state), keep);
  };
}

// The trees of the authors' mathematics, from features of prompts in one chunk and in small ones, and of the paths that were right.
TEST(EagleDraft, FixedTrees_AreTheOriginals) {
  const auto model = LoadTarget(Fixture("target"), true, EagleTokenizer(kEagleVocab, false));
  for (const char* name : kHeads) {
    const EagleGolden golden(name);
    const auto head = LoadHead(Fixture(name), model, true);
    for (size_t p = 0; p < golden.num_prompts(); ++p) {
      for (const size_t chunk : {64, 3}) {
        SCOPED_TRACE(std::string(name) + ", prompt " + std::to_string(p) + ", chunk " + std::to_string(chunk));
        EngineDriver driver(
            model, {.threads = 2, .kv_policy = KvPolicy::kUpfront, .prefill_chunk = chunk, .draft_head = head});
        std::vector<Proposal> proposals;
        Record(driver, &proposals);
        const RequestId id = driver.Submit({.prompt = golden.Ids(p, "input_ids"),
                                            .generation = {.max_new_tokens = 80, .ignore_eos = true},
                                            .draft = OptionsOf(DraftTreeKind::kFixed, 25, 25)});
        driver.RunUntilIdle();
        // A prompt of one id asks for draft tokens like any last sampled token; nothing has run yet.
        EXPECT_EQ(proposals.front().nodes.empty(), golden.Ids(p, "input_ids").size() == 1);
        std::erase_if(proposals, [](const Proposal& proposal) { return proposal.nodes.empty(); });
        ASSERT_GE(proposals.size(), golden.num_steps(p));
        for (size_t step = 0; step < golden.num_steps(p); ++step) {
          const Proposal expected{.nodes = golden.Nodes(p, step, "node_ids"), .parents = golden.Parents()};
          EXPECT_EQ(proposals[step].Paths(), expected.Paths()) << "step " << step;
          // The first level in its order.
          std::vector<int32_t> first, found;
          for (size_t i = 0; i < 25; ++i) {
            if (expected.parents[i] < 0) first.push_back(expected.nodes[i]);
            if (proposals[step].parents[i] < 0) found.push_back(proposals[step].nodes[i]);
          }
          EXPECT_EQ(found, first) << "step " << step;
        }
        const std::vector<int32_t> greedy = golden.Ids(p, "greedy_ids");
        const std::vector<int32_t>& found = driver.outcome(id).ids;
        ASSERT_GE(found.size(), greedy.size());
        EXPECT_TRUE(std::equal(greedy.begin(), greedy.end(), found.begin()));
      }
    }
  }
}

// Greedy and drawn answers with every growth policy, in batches, with little memory, ended by stop texts and end-of-sequence tokens.
TEST(EagleDraft, EveryRequest_GetsWhatItGetsWithout) {
  const auto model = LoadTarget(Fixture("target"));
  const auto work = MakeWork(18, 21, {.vocab = kEagleVocab});
  const auto alone = RunUnbatched(model, work);
  constexpr KvPolicy kPolicies[] = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc,
                                    KvPolicy::kGeometric, KvPolicy::kReserve, KvPolicy::kPaged};
  const std::string folders[] = {"", ::testing::TempDir()};
  size_t drafted = 0, accepted = 0, later = 0, preemptions = 0, at = 0;
  for (const char* name : kHeads) {
    const auto head = LoadHead(Fixture(name), model);
    size_t accepted_here = 0;
    for (const DraftTreeKind kind : kKinds) {
      for (uint64_t seed = 0; seed < 6; ++seed, ++at) {
        std::mt19937_64 random(at);
        const auto one_of = [&random](std::vector<size_t> values) { return values[random() % values.size()]; };
        const size_t num_draft_tokens = (std::vector<size_t>{25, 3, 64, 1, 12, 8})[seed];
        EngineOptions options{.threads = one_of({1, 2}),
                              .kv_policy = kPolicies[(at + at / 6) % 6],
                              .kv_increment = one_of({1, 5, 16}),
                              .max_batch = one_of({5, 32}),
                              .prefill_chunk = one_of({1, 7, 64, 512}),
                              .spill_folder = folders[at % 2],
                              .draft_head = head};
        EngineDriver roomy(model, options);
        if (seed % 2 == 0) options.state_memory = roomy.engine().impl().NewState(0)->LedgerGrowth(128, 128) * 3;
        EngineDriver driver(model, options);
        std::vector<RequestId> ids;
        for (const Work& w : work) {
          ids.push_back(
              driver.Submit({.prompt = w.prompt,
                             .generation = w.generation,
                             .draft = OptionsOf(kind, num_draft_tokens, seed % 3 == 2 ? 0 : num_draft_tokens)}));
        }
        driver.RunUntilIdle();
        for (size_t i = 0; i < work.size(); ++i) {
          const Outcome& found = driver.outcome(ids[i]);
          ExpectSame(found, alone[i],
                     std::string(name) + ", request " + std::to_string(i) + ", run " + std::to_string(at));
          drafted += found.stats.drafted_tokens;
          accepted_here += found.stats.accepted_tokens;
          later += found.stats.drafts.later_siblings;
          preemptions += found.stats.preemptions;
        }
        driver.engine().ClearPrefixCache();
        EXPECT_EQ(driver.engine().impl().memory->held(), 0U) << at;
        ASSERT_FALSE(HasFailure());
      }
    }
    EXPECT_GT(accepted_here, 100U) << name;
    accepted += accepted_here;
  }
  EXPECT_GT(drafted - accepted, 1000U);
  EXPECT_GT(later, 10U);
  EXPECT_GT(preemptions, 10U);
}

// Draft tokens are the target's ids, of a head that drafts few of them; none is one that the tokenizer has no text for.
TEST(EagleDraft, DraftTokens_AreIdsThatTheHeadDraftsAndTheTokenizerKnows) {
  constexpr size_t kKnown = 60;
  const auto model = LoadTarget(Fixture("target"), false, EagleTokenizer(kKnown));
  for (const char* name : kHeads) {
    const auto head = LoadHead(Fixture(name), model);
    const std::vector<int32_t>& drafted = head->impl().head->features.target_ids;
    EXPECT_EQ(drafted.empty(), std::string(name) == "eagle1");
    if (!drafted.empty()) {
      EXPECT_TRUE(std::any_of(drafted.begin(), drafted.end(), [](int32_t id) { return id >= 60; }));
    }
    for (const DraftTreeKind kind : kKinds) {
      for (const bool draws : {false, true}) {
        EngineDriver driver(model, {.threads = 1, .draft_head = head});
        std::vector<Proposal> proposals;
        Record(driver, &proposals);
        driver.Submit({.prompt = {30, 77, 95, 5},
                       .generation = {.max_new_tokens = 60, .temperature = draws ? 1.0F : 0, .ignore_eos = true},
                       .draft = OptionsOf(kind, 12, 12)});
        driver.RunUntilIdle();
        size_t nodes = 0;
        for (const Proposal& proposal : proposals) {
          nodes += proposal.nodes.size();
          for (const int32_t id : proposal.nodes) {
            EXPECT_LT(static_cast<size_t>(id), kKnown);
            EXPECT_TRUE(drafted.empty() || std::find(drafted.begin(), drafted.end(), id) != drafted.end()) << id;
            if (kind != DraftTreeKind::kChain) {
              EXPECT_FALSE(model->text().tokenizer.IsSpecial(id));
            }
          }
        }
        EXPECT_GT(nodes, 50U) << name;
      }
    }
  }
}

// States that are computed again bring all features again: then the draft tokens are those of requests that were never preempted. Those that
// come back from a file bring none, and the head begins with what comes.
TEST(EagleDraft, Preempted_DraftTokensGoOn) {
  const auto model = LoadTarget(Fixture("target"));
  const auto work = MakeWork(12, 5, {.vocab = kEagleVocab});
  const std::string folders[] = {"", ::testing::TempDir()};
  for (const char* name : kHeads) {
    const auto head = LoadHead(Fixture(name), model);
    std::map<std::pair<size_t, size_t>, std::vector<int32_t>> never;
    for (const std::string& folder : {std::string("roomy"), folders[0], folders[1]}) {
      EngineOptions options{
          .threads = 1, .kv_increment = 16, .spill_folder = folder == "roomy" ? "" : folder, .draft_head = head};
      EngineDriver driver(model, options);
      Engine::Impl& impl = driver.engine().impl();
      std::vector<Proposal> proposals;
      Record(driver, &proposals);
      std::vector<RequestId> ids;
      for (const Work& w : work) {
        GenerationOptions generation = w.generation;
        generation.max_new_tokens.reset();
        generation.ignore_eos = true;
        generation.stop.clear();
        ids.push_back(driver.Submit(
            {.prompt = w.prompt, .generation = generation, .draft = OptionsOf(DraftTreeKind::kChain, 5, 5)}));
      }
      for (size_t step = 0; !driver.engine().idle(); ++step) {
        driver.Step();
        const auto& youngest = std::find_if(impl.requests.rbegin(), impl.requests.rend(),
                                            [](const auto& request) { return request->running(); });
        if (folder != "roomy" && step % 17 == 5 && youngest != impl.requests.rend()) (*youngest)->Preempt(folder);
      }
      size_t preemptions = 0, compared = 0;
      for (const RequestId id : ids) {
        EXPECT_EQ(driver.outcome(id).fault, "");
        EXPECT_EQ(driver.outcome(id).stats.draft_trouble, "");
        preemptions += driver.outcome(id).stats.preemptions;
      }
      for (const Proposal& proposal : proposals) {
        if (proposal.nodes.empty()) continue;
        const std::pair key(proposal.request, proposal.ids);
        if (folder == "roomy") {
          never[key] = proposal.nodes;
        } else if (const auto found = never.find(key); found != never.end()) {
          ++compared;
          if (folder.empty()) {
            const size_t both = std::min(found->second.size(), proposal.nodes.size());
            EXPECT_TRUE(std::equal(proposal.nodes.begin(), proposal.nodes.begin() + static_cast<ptrdiff_t>(both),
                                   found->second.begin()))
                << name << ", request " << proposal.request << ", " << proposal.ids << " ids";
          }
        }
      }
      EXPECT_EQ(preemptions > 3, folder != "roomy");
      EXPECT_EQ(compared > 50, folder != "roomy");
      EXPECT_GT(proposals.size(), 100U);
    }
  }
}

TEST(EagleDraft, SavedRequests_GoOnWithAndWithout) {
  const auto model = LoadTarget(Fixture("target"));
  const GenerationOptions generation{.max_new_tokens = 60, .temperature = 0.8F, .ignore_eos = true, .logprobs = 2};
  const std::vector<int32_t> prompt = {40, 41, 42, 43, 44, 45, 46};
  EngineDriver plain(model, {.threads = 1});
  const Outcome whole = plain.Run(prompt, generation);
  GenerationOptions part = generation;
  part.max_new_tokens = 17;
  for (const char* name : kHeads) {
    const auto head = LoadHead(Fixture(name), model);
    const DraftOptions draft = OptionsOf(DraftTreeKind::kDynamic, 8, 8);
    EngineDriver driver(model, {.threads = 1, .draft_head = head});
    const RequestId id = driver.Submit({.prompt = prompt, .generation = part, .draft = draft, .keep_state = true});
    driver.RunUntilIdle();
    for (const DraftOptions& then : {draft, DraftOptions{}}) {
      EngineDriver other(model, {.threads = 1, .draft_head = head});
      const Outcome rest = testing::ResumeSaved(other, driver.outcome(id), {.generation = generation, .draft = then});
      testing::ExpectJoined(driver.outcome(id), rest, whole, "most " + std::to_string(then.num_draft_tokens));
      EXPECT_EQ(rest.stats.drafted_tokens > 20, then.num_draft_tokens != 0) << rest.stats.drafted_tokens;
      EXPECT_EQ(rest.stats.accepted_tokens > 5, then.num_draft_tokens != 0) << rest.stats.accepted_tokens;
    }
  }
}

// A state of few bytes, or of a head with few positions, forgets and goes on; one without any makes no draft tokens, and says why.
TEST(EagleDraft, WithLittleRoom_PlainDecodingGoesOn) {
  const auto model = LoadTarget(Fixture("target"));
  const GenerationOptions generation{.max_new_tokens = 100, .ignore_eos = true};
  EngineDriver plain(model, {.threads = 1});
  const Outcome expected = plain.Run({7, 8, 9}, generation);
  const auto head = LoadHead(Fixture("eagle1"), model);
  const DraftOptions draft = OptionsOf(DraftTreeKind::kChain, 4, 4);
  // Beside the state that is full and the features, so many bytes.
  const auto run = [&](const std::shared_ptr<const DraftHead>& drafting, KvPolicy policy, uint64_t bytes) {
    EngineOptions options{.threads = 1, .kv_policy = policy, .draft_head = drafting};
    EngineDriver measured(model, options);
    Engine::Impl& impl = measured.engine().impl();
    options.state_memory =
        impl.NewState(103)->LedgerGrowth(102, 102) + impl.NewDrafter(draft, 0, nullptr)->feature_bytes() + bytes;
    EngineDriver driver(model, options);
    const RequestId id = driver.Submit({.prompt = {7, 8, 9}, .generation = generation, .draft = draft});
    driver.RunUntilIdle();
    ExpectSame(driver.outcome(id), expected, std::to_string(bytes) + " bytes");
    return driver.outcome(id).stats;
  };
  const RequestStats roomy = run(head, KvPolicy::kIterative, uint64_t{1} << 30),
                     none = run(head, KvPolicy::kUpfront, 0);
  EXPECT_EQ(roomy.draft_trouble, "");
  EXPECT_EQ(none.drafted_tokens, 0U);
  EXPECT_EQ(none.draft_trouble, "there is no room for the draft head's state");
  const uint64_t bytes = head->impl().head->MakeState({.max_length = 128})->GrowthBytes(16);
  const auto narrow =
      LoadHead(Fixture("eagle1").Replace("\"max_position_embeddings\": 128", "\"max_position_embeddings\": 16"), model);
  for (const RequestStats& little :
       {run(head, KvPolicy::kIterative, bytes), run(narrow, KvPolicy::kIterative, uint64_t{1} << 30)}) {
    EXPECT_EQ(little.draft_trouble, "");
    EXPECT_GT(little.drafted_tokens, roomy.drafted_tokens / 2);
    EXPECT_GT(little.accepted_tokens, 4U);
  }
}

// Features of positions that do not follow, an id that is not known yet, and a step that was never made.
TEST(EagleDraft, WithoutFeatures_NothingIsDrafted) {
  const auto model = LoadTarget(Fixture("target"));
  EngineDriver driver(model, {.threads = 1, .draft_head = LoadHead(Fixture("eagle1"), model)});
  const auto drafter = driver.engine().impl().NewDrafter(OptionsOf(DraftTreeKind::kChain, 4, 4), 0, nullptr);
  const std::vector<float> feature(32, 0.5F);
  for (const int32_t id : {7, 8, 9, 10}) drafter->Append(id);
  EXPECT_TRUE(drafter->Propose(4).ids.empty());
  drafter->AddFeature(0, feature);
  EXPECT_TRUE(drafter->Propose(4).ids.empty()) << "two ids stand behind that position";
  drafter->AddFeature(2, feature);
  EXPECT_EQ(drafter->Propose(4).ids.size(), 4U) << "it starts over";
  EXPECT_TRUE(drafter->Propose(4).ids.empty()) << "nothing came";
  drafter->Append(11);
  drafter->AddFeature(3, feature);
  EXPECT_EQ(drafter->Propose(2).ids.size(), 2U);
  drafter->Release();
  EXPECT_EQ(driver.engine().impl().memory->held(), 0U);
  EXPECT_TRUE(drafter->Propose(4).ids.empty());
}

// Memory that the system does not give ends the draft tokens, not the answer.
TEST(EagleDraft, WithoutMemory_NothingIsDraftedAnyMore) {
  const auto model = LoadTarget(Fixture("target"));
  for (const char* name : kHeads) {
    const auto head = LoadHead(Fixture(name), model);
    const std::vector<float> feature(head->impl().head->features.width, 0.5F);
    for (const bool in_prompt : {true, false}) {
      EngineDriver driver(model, {.threads = 1, .draft_head = head});
      const auto drafter = driver.engine().impl().NewDrafter(OptionsOf(DraftTreeKind::kChain, 4, 4), 0, nullptr);
      for (int32_t id = 3; id < 80; ++id) drafter->Append(id);
      const size_t rows = in_prompt ? 76 : 60;
      {
        const testing::FailAllocations fail(0, testing::FailAllocations::kAllFurther);
        for (size_t position = 76 - rows; position < 76; ++position) drafter->AddFeature(position, feature);
        EXPECT_TRUE(drafter->Propose(4).ids.empty());
      }
      EXPECT_EQ(drafter->trouble(), "there is no memory for the draft head's state");
      drafter->Append(9);
      drafter->AddFeature(76, feature);
      EXPECT_TRUE(drafter->Propose(4).ids.empty());
      EXPECT_EQ(driver.engine().impl().memory->held(), 0U);
    }
  }
}

// A head in a folder drafts for a model in a GGUF file, whose embedding and head it takes; requests without draft tokens stand in its steps.
TEST(EagleDraft, QuantisedTarget_AndBatchMatesWithoutDraftTokens) {
  const auto model = testing::LoadModel("eagle_target", testing::BuildTinyLlama({.vocab = 300,
                                                                                 .hidden = 32,
                                                                                 .layers = 2,
                                                                                 .heads = 2,
                                                                                 .kv_heads = 1,
                                                                                 .ffn = 64,
                                                                                 .context = 96,
                                                                                 .dtype = DType::kQ8_0,
                                                                                 .seed = 9}));
  const auto head = LoadHead(
      Fixture("eagle1").Remove("embed_tokens.weight").Replace("\"vocab_size\": 96", "\"vocab_size\": 300"), model);
  auto work = MakeWork(18, 4);
  for (Work& w : work) w.generation.max_new_tokens = 20;
  const auto alone = RunUnbatched(model, work);
  EngineDriver driver(model, {.threads = 2, .max_batch = 6, .prefill_chunk = 16, .draft_head = head});
  const DraftOptions drafts[] = {
      OptionsOf(DraftTreeKind::kChain, 6, 6), {}, {.num_draft_tokens = 4}, OptionsOf(DraftTreeKind::kFixed, 25, 25)};
  std::vector<RequestId> ids;
  for (size_t i = 0; i < work.size(); ++i)
    ids.push_back(driver.Submit({.prompt = work[i].prompt, .generation = work[i].generation, .draft = drafts[i % 4]}));
  driver.RunUntilIdle();
  size_t drafted = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    ExpectSame(driver.outcome(ids[i]), alone[i], "request " + std::to_string(i));
    drafted += i % 4 == 0 ? driver.outcome(ids[i]).stats.drafted_tokens : 0;
  }
  EXPECT_GT(drafted, 20U);
}

TEST(EagleDraft, WhatCannotDraft_IsRefused) {
  const auto model = LoadTarget(Fixture("target")), other = LoadTarget(Fixture("target"));
  const auto expect = [](const auto& result, const std::string& what) {
    ASSERT_FALSE(result.ok()) << what;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(result.error().message().find(what), std::string::npos) << result.error().message();
  };
  const auto head = LoadHead(Fixture("eagle3"), model);
  expect(Engine::Create(other, {.threads = 1, .draft_head = head}),
         "start engine: expected a draft head that was loaded for this model, found one of another");
  expect(Engine::Create(model, {.threads = 1, .draft_model = model, .draft_head = head}),
         "start engine: expected a draft model or a draft head, found both; choose one");
  expect(TryHead(Fixture("eagle1").Replace("\"hidden_size\": 32", "\"hidden_size\": 64"), model),
         ": config.json: \"hidden_size\": expected the target's 32, found 64");
  expect(TryHead(Fixture("eagle3").Replace("\"vocab_size\": 96", "\"vocab_size\": 97"), model),
         ": config.json: \"vocab_size\": expected the target's 96, found 97");
  expect(DraftHead::Load(EagleGolden::Folder("target"), model, {}),
         "/target: expected the folder of a draft head of EAGLE or EAGLE-3, found another model's");
  EXPECT_FALSE(DraftHead::IsAt(EagleGolden::Folder("target")).value());
  EXPECT_EQ(DraftHead::IsAt("/no/such/folder").error().code(), ErrorCode::kNotFound);
}

TEST(EagleDraft, Steps_AllocateOnlyWhereAStateGrows) {
  const auto model = LoadTarget(Fixture("target"));
  for (const DraftTreeKind kind : kKinds) {
    EngineDriver driver(model, {.threads = 1, .kv_increment = 64, .draft_head = LoadHead(Fixture("eagle1"), model)});
    driver.Submit({.prompt = {5}, .generation = {.ignore_eos = true}, .draft = OptionsOf(kind, 3, 3)});
    size_t steps = 0, growths = 0;
    for (; !driver.engine().idle(); ++steps) {
      const size_t before = testing::NumAllocations();
      ASSERT_GE(driver.engine().Step().size(), 1U);
      if (testing::NumAllocations() != before) ++growths;
    }
    EXPECT_GE(steps, 30U);
    // Both states grow at the beginning and at 64; the last step ends the request; best shapes are found anew at 1, 2, 4, 8, 16 trees, ...
    EXPECT_LE(growths, kind == DraftTreeKind::kOptimal ? 11 + steps / 16 : 6U) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace tidemill::eagle_draft_test
