// Draft tokens for the sequences of a batch are made together: the draft model runs once for each draft token, whoever wants it, and each sequence's
// draft tokens are those that it gets alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_drafter.h"
#include "tests/support/tiny_model.h"

namespace tidemill::batched_draft_test {
namespace {

using testing::BuildTinyLlama;
using testing::DraftingModel;
using testing::DraftingModels;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::MakeWork;
using testing::Outcome;
using testing::Work;

// Different lengths, none of them longer than 12.
std::vector<int32_t> Prompt(size_t index) {
  std::vector<int32_t> prompt(2 + 3 * index % 11);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(5 + (7 * index + 13 * i) % 90);
  return prompt;
}

size_t NumSteps(EngineDriver& driver) { return driver.engine().impl().scheduler->draft_steps().num_steps(); }

// Whether each sequence of the last step checked as many draft tokens as it may.
bool AllDraft(EngineDriver& driver, const std::vector<size_t>& num_draft_tokens) {
  const auto step = driver.engine().impl().scheduler->step();
  if (step.size() != num_draft_tokens.size()) return false;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i].rows != Wanted::kAll || step[i].tokens.size() != 1 + num_draft_tokens[i]) return false;
  }
  return true;
}

TEST(BatchedDraft, DraftModel_RunsOnceForEachDraftToken) {
  for (const DraftingModel& source : DraftingModels()) {
    for (const std::vector<size_t>& num_draft_tokens :
         {std::vector<size_t>{4}, {4, 4}, {4, 4, 4, 4, 4, 4, 4, 4}, {1, 6, 3}, {2, 2, 2, 2, 2, 7}}) {
      EngineDriver driver(source.model, source.Options(num_draft_tokens.size()));
      for (size_t i = 0; i < num_draft_tokens.size(); ++i) {
        driver.Submit({.prompt = Prompt(i),
                       .generation = {.max_new_tokens = 60, .ignore_eos = true},
                       .draft = source.Draft(num_draft_tokens[i])});
      }
      const size_t deepest = *std::max_element(num_draft_tokens.begin(), num_draft_tokens.end());
      size_t counted = 0;
      while (!driver.engine().idle()) {
        const size_t before = NumSteps(driver);
        driver.Step();
        if (!AllDraft(driver, num_draft_tokens)) continue;
        EXPECT_EQ(NumSteps(driver) - before, source.at_once ? 1 : deepest)
            << source.name << ", " << num_draft_tokens.size() << " sequences";
        ++counted;
      }
      EXPECT_GT(counted, 3U) << source.name << ", " << num_draft_tokens.size() << " sequences";
    }
  }
}

// A step of a tree's level for all trees, whatever their shapes: as many as the deepest has levels.
TEST(BatchedDraft, Trees_RunTheDraftModelOnceForEachLevel) {
  for (const DraftingModel& source : DraftingModels()) {
    if (source.at_once) continue;
    EngineDriver driver(source.model, source.Options(3));
    for (size_t i = 0; i < 3; ++i) {
      driver.Submit({.prompt = Prompt(i),
                     .generation = {.max_new_tokens = 40, .ignore_eos = true},
                     .draft = source.Draft(25, DraftTreeKind::kFixed)});
    }
    size_t counted = 0;
    while (!driver.engine().idle()) {
      const size_t before = NumSteps(driver);
      driver.Step();
      if (!AllDraft(driver, {25, 25, 25})) continue;
      EXPECT_EQ(NumSteps(driver) - before, 5U) << source.name;  // five tokens deep
      ++counted;
    }
    EXPECT_GT(counted, 2U) << source.name;
  }
}

// Requests with other models, other numbers of layers, lookups and nothing at all: each model has its own steps.
TEST(BatchedDraft, EachModel_HasStepsOfItsOwn) {
  const DraftingModel& source = DraftingModels()[0];
  const auto model = testing::LoadModel("batched_draft_deep", BuildTinyLlama({.vocab = testing::WorkSpec().vocab,
                                                                              .layers = 4,
                                                                              .context = 96,
                                                                              .dtype = DType::kQ8_0,
                                                                              .tied = false,
                                                                              .seed = 5}));
  EngineOptions options = source.Options(8);
  options.draft_model = source.draft_model;
  EngineDriver driver(model, options), plain(model, {.threads = 1});
  const auto layers = [](size_t count, size_t num_draft_tokens) {
    return DraftOptions{.num_draft_tokens = num_draft_tokens,
                        .min_draft_tokens = num_draft_tokens,
                        .source = DraftSource::kLayers,
                        .layers = count};
  };
  const DraftOptions drafts[] = {
      source.Draft(3), layers(1, 2), layers(2, 4),    {.num_draft_tokens = 4, .min_draft_tokens = 4},
      source.Draft(3), layers(1, 2), source.Draft(1), {}};
  const GenerationOptions generation{.max_new_tokens = 50, .ignore_eos = true};
  std::vector<RequestId> ids;
  for (size_t i = 0; i < std::size(drafts); ++i)
    ids.push_back(driver.Submit({.prompt = Prompt(i), .generation = generation, .draft = drafts[i]}));
  size_t counted = 0;
  while (!driver.engine().idle()) {
    const size_t before = NumSteps(driver);
    driver.Step();
    const auto step = driver.engine().impl().scheduler->step();
    bool all = step.size() == std::size(drafts);
    for (size_t i = 0; all && i < step.size(); ++i)
      all = drafts[i].source == DraftSource::kNgram || step[i].tokens.size() == 1 + drafts[i].num_draft_tokens;
    if (!all) continue;
    EXPECT_EQ(NumSteps(driver) - before, 3U + 2U + 4U);
    ++counted;
  }
  EXPECT_GT(counted, 3U);
  for (size_t i = 0; i < ids.size(); ++i)
    ExpectSame(driver.outcome(ids[i]), plain.Run(Prompt(i), generation), "request " + std::to_string(i));
}

// What a drafter said where so many ids were known.
struct Proposal {
  std::vector<int32_t> ids, parents;

  bool operator==(const Proposal&) const = default;
};
using Proposals = std::map<std::pair<size_t, size_t>, Proposal>;  // by request and ids

// The number of the request that is submitted next is *request.
void Record(EngineDriver& driver, const size_t* request, Proposals* proposals) {
  Engine::Impl& impl = driver.engine().impl();
  impl.make_drafter = [&impl, request, proposals](const Request& submitted, size_t expected, SequenceState& state) {
    const auto keep = [proposals, number = *request](size_t num_ids, const DraftTree& tree) {
      Proposal& proposal = (*proposals)[{number, num_ids}];
      proposal.ids.assign(tree.ids.begin(), tree.ids.end());
      proposal.parents.assign(tree.parents.begin(), tree.parents.end());
    };
    return std::make_unique<testing::RecordingDrafter>(impl.NewDrafter(submitted.draft, expected, &state), keep);
  };
}

// Chains and trees of many widths, prompts that the draft model runs in parts beside others' draft tokens, and requests
// that come and go: with steps of many rows, where every draft token is compared, and of so few that not all sequences have room in one, where
// those of chains are that came as well.
TEST(BatchedDraft, DraftTokens_AreThoseOfOneSequenceAtATime) {
  constexpr DraftTreeKind kKinds[] = {DraftTreeKind::kChain, DraftTreeKind::kFixed, DraftTreeKind::kDynamic,
                                      DraftTreeKind::kOptimal};
  constexpr size_t kMax[] = {4, 1, 8, 3, 25, 6};
  for (const DraftingModel& source : DraftingModels()) {
    const auto work = MakeWork(14, 77, {.vocab = source.vocab});
    const auto request_of = [&](size_t i) {
      const DraftTreeKind kind = source.at_once ? DraftTreeKind::kChain : kKinds[i / 2 % 4];
      Request request{
          .prompt = work[i].prompt, .generation = work[i].generation, .draft = source.Draft(kMax[i % 6], kind)};
      if (i % 5 == 0) request.draft.min_probability = 0.02F;
      return request;
    };
    size_t request = 0;
    Proposals alone;
    std::vector<Outcome> outcomes;
    EngineDriver one(source.model, source.Options(1));
    Record(one, &request, &alone);
    for (; request < work.size(); ++request) {
      const RequestId id = one.Submit(request_of(request));
      one.RunUntilIdle();
      outcomes.push_back(one.outcome(id));
    }
    for (const size_t chunk : {512, 40}) {
      EngineOptions options = source.Options(work.size());
      options.prefill_chunk = chunk;
      EngineDriver driver(source.model, options);
      Proposals together;
      Record(driver, &request, &together);
      std::vector<RequestId> ids;
      for (request = 0; request < work.size(); ++request) {
        ids.push_back(driver.Submit(request_of(request)));
        for (size_t steps = request % 4; steps > 1; --steps) driver.Step();
      }
      driver.RunUntilIdle();
      size_t nodes = 0, compared = 0, begun = 0;
      for (const auto& [at, proposal] : together) nodes += proposal.ids.size();
      EXPECT_GT(nodes, 100U) << source.name;
      for (size_t i = 0; i < work.size(); ++i) {
        const std::string where = source.name + ", request " + std::to_string(i) + ", chunk " + std::to_string(chunk);
        // A prompt whose last token comes alone, in this batch mates, is drafted behind as well: then other lengths follow. So they do where
        // rows are few.
        const bool begins_alike = !together.contains({i, work[i].prompt.size()}) || work[i].prompt.size() == 1;
        const bool is_compared = begins_alike && chunk == 512;
        ExpectSame(driver.outcome(ids[i]), outcomes[i], where);
        for (auto at = together.lower_bound({i, 0}); is_compared && at != together.end() && at->first.first == i;
             ++at) {
          const auto found = alone.find(at->first);
          ASSERT_NE(found, alone.end()) << where << ", " << at->first.second << " ids";
          EXPECT_EQ(at->second, found->second) << where << ", " << at->first.second << " ids";
          ++compared;
        }
        // Where rows are few, chains behind the same text begin alike: how long they are hangs on the rows that are left.
        const bool begins = chunk == 40 && request_of(i).draft.tree == DraftTreeKind::kChain;
        for (auto at = together.lower_bound({i, 0}); begins && at != together.end() && at->first.first == i; ++at) {
          const auto found = alone.find(at->first);
          if (found == alone.end()) continue;
          const size_t length = std::min(at->second.ids.size(), found->second.ids.size());
          EXPECT_TRUE(std::equal(at->second.ids.begin(), at->second.ids.begin() + static_cast<ptrdiff_t>(length),
                                 found->second.ids.begin()))
              << where << ", " << at->first.second << " ids";
          begun += length;
        }
      }
      EXPECT_EQ(compared > 40, chunk == 512) << source.name << ": " << compared;
      EXPECT_EQ(begun > 5, chunk == 40) << source.name << ": " << begun;
    }
  }
}

// Memory that one drafter does not get, each allocation of a step in turn: it costs the draft tokens of one request, and no answer.
TEST(BatchedDraft, WithoutMemory_OneRequestHasNoDraftTokens) {
  const GenerationOptions generation{.max_new_tokens = 16, .ignore_eos = true};
  for (const DraftingModel& source : DraftingModels()) {
    EngineDriver plain(source.model, {.threads = 1});
    std::vector<Outcome> expected;
    for (size_t i = 0; i < 3; ++i) expected.push_back(plain.Run(Prompt(i), generation));
    size_t troubles = 0, others = 0;
    for (size_t n = 0, reached = 1; reached != 0; n += 1 + n / 8) {
      ASSERT_LT(n, 5000U);
      EngineOptions options = source.Options(3);
      options.threads = 1;
      EngineDriver driver(source.model, options);
      std::vector<RequestId> ids;
      for (size_t i = 0; i < 3; ++i)
        ids.push_back(driver.Submit({.prompt = Prompt(i), .generation = generation, .draft = source.Draft(3)}));
      driver.Step();
      testing::FailAllocations failure(n);
      const auto events = driver.engine().Step();
      reached = failure.Stop() ? 1 : 0;
      driver.Consume(events);
      driver.RunUntilIdle();
      size_t failed = 0, troubled = 0, drafting = 0;
      for (size_t i = 0; i < 3; ++i) {
        const Outcome& outcome = driver.outcome(ids[i]);
        if (outcome.error) {
          EXPECT_EQ(outcome.error, ErrorCode::kOutOfMemory);
          ++failed;
          continue;
        }
        ExpectSame(outcome, expected[i], source.name + ", allocation " + std::to_string(n));
        troubled += outcome.stats.draft_trouble.empty() ? 0 : 1;
        drafting += outcome.stats.drafted_tokens > 6 ? 1 : 0;
      }
      EXPECT_LE(failed + troubled, 1U) << source.name << ", allocation " << n;
      EXPECT_GE(drafting, 2U) << source.name << ", allocation " << n;
      troubles += troubled;
      others += reached != 0 && troubled == 1 && drafting == 2 ? 1 : 0;
    }
    if (source.layers != 0) {
      EXPECT_EQ(troubles, 0U) << source.name;  // it drafts in the request's own memory
    } else if (source.draft_head == nullptr) {
      EXPECT_GT(troubles, 0U) << source.name;
      EXPECT_EQ(others, troubles) << source.name;
    }
  }
}

TEST(BatchedDraft, Steps_AllocateOnlyWhereAStateGrows) {
  for (const DraftingModel& source : DraftingModels()) {
    for (const DraftTreeKind kind : {DraftTreeKind::kChain, DraftTreeKind::kFixed, DraftTreeKind::kDynamic}) {
      if (source.at_once && kind != DraftTreeKind::kChain) continue;
      EngineOptions options = source.Options(4);
      options.threads = 1;
      EngineDriver driver(source.model, options);
      for (size_t i = 0; i < 4; ++i) {
        driver.Submit({.prompt = Prompt(i),
                       .generation = {.max_new_tokens = 64, .ignore_eos = true},
                       .draft = source.Draft(4, kind)});
      }
      size_t steps = 0, allocating = 0;
      for (; driver.engine().impl().requests.size() == 4 || steps == 0; ++steps) {
        const size_t before = testing::NumAllocations();
        const size_t events = driver.engine().Step().size();
        ASSERT_GE(events, 4U);
        if (testing::NumAllocations() != before) ++allocating;
      }
      EXPECT_GE(steps, 8U) << source.name;
      // The first ones, and the last; and those in which a dynamic tree has more nodes than any before it.
      EXPECT_LE(allocating, kind == DraftTreeKind::kDynamic ? 8U : 4U)
          << source.name << ", tree " << static_cast<int>(kind);
    }
  }
}

}  // namespace
}  // namespace tidemill::batched_draft_test
