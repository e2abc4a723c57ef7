// Requests under attention policies in an engine: whatever runs beside them, is cached, preempted, drafted or saved, their answers are those that
// they get alone, a token a step.
//
// By hand: TIDEMILL_MIXES=500 for so many mixes, TIDEMILL_SEED for other ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/sparse_requests.h"

namespace tidemill::sparse_engine_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::NamedPolicy;
using testing::Outcome;
using testing::SparseAlone;
using testing::SparseAnswers;
using testing::SparseFewIds;
using testing::SparseGreedy;
using testing::SparseModel;
using testing::SparsePolicies;
using testing::SparsePrompt;
using testing::SparseWork;
using testing::Work;

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

DraftOptions Ngrams(size_t num_draft_tokens) {
  return {.num_draft_tokens = num_draft_tokens, .min_draft_tokens = num_draft_tokens, .ngram_min = 1};
}

// Policies give something up here, each something else: else nothing below would be seen.
TEST(SparseEngine, Policies_ChangeAnswers) {
  const std::vector<Work> work = SparseWork();
  for (size_t i = 0; i < work.size(); ++i) {
    const Outcome dense = SparseAlone({}, work[i].prompt, work[i].generation);
    EXPECT_FALSE(dense.stats.attention.has_value());
    const size_t tokens = work[i].prompt.size() + dense.ids.size();
    for (size_t p = 0; p < SparsePolicies().size(); ++p) {
      const Outcome& found = SparseAnswers()[p][i];
      const std::string where = SparsePolicies()[p].name + ", request " + std::to_string(i);
      ASSERT_EQ(found.message, "") << where;
      ASSERT_TRUE(found.stats.attention.has_value()) << where;
      if (tokens > 130) {
        EXPECT_NE(found.logprob_bits, dense.logprob_bits) << where;
        const SparseStats& stats = *found.stats.attention;
        EXPECT_LT(stats.all.bytes, stats.all.dense_bytes) << where;
        if (!SparsePolicies()[p].policy.floors.alphas.empty()) {
          EXPECT_GT(stats.all.dense_share, 0) << where;
          EXPECT_LT(stats.all.dense_share, 1) << where;
          EXPECT_GT(stats.all.audits, 0U) << where;
        }
      }
      for (size_t other = 0; other < p && tokens > 130; ++other) {
        const bool same = SparsePolicies()[p].name == "sparq, from rows" && other == 0;
        const bool may = SparsePolicies()[p].name == "sparq, from 50" || SparsePolicies()[p].name == "sparq, a floor";
        if (!may) {
          EXPECT_EQ(found.logprob_bits == SparseAnswers()[other][i].logprob_bits, same) << where << ", " << other;
        }
      }
    }
  }
}

TEST(SparseEngine, ConcurrentRequests_GetWhatTheyGetAlone) {
  const std::vector<Work> work = SparseWork();
  for (size_t p = 0; p < SparsePolicies().size(); ++p) {
    for (const size_t chunk : {7, 512}) {
      for (const KvPolicy growth : {KvPolicy::kBmc, KvPolicy::kPaged}) {
        EngineDriver driver(SparseModel(), {.threads = 2,
                                            .kv_policy = growth,
                                            .kv_increment = 48,
                                            .attention = SparsePolicies()[p].policy,
                                            .max_batch = 4,
                                            .prefill_chunk = chunk});
        const auto ids = testing::RunTogether(driver, work, chunk);
        for (size_t i = 0; i < work.size(); ++i) {
          ExpectSame(
              driver.outcome(ids[i]), SparseAnswers()[p][i],
              SparsePolicies()[p].name + ", chunks of " + std::to_string(chunk) + ", request " + std::to_string(i));
        }
        if (HasFailure()) return;
      }
    }
  }
}

// Each request has a policy of its own; they share steps and no state.
TEST(SparseEngine, RequestsOfSeveralPolicies_ShareSteps) {
  const std::vector<Work> work = SparseWork();
  EngineDriver driver(SparseModel(), {.threads = 2, .max_batch = 16, .prefill_chunk = 50});
  std::vector<std::vector<RequestId>> ids(SparsePolicies().size());
  std::vector<RequestId> dense;
  for (const Work& one : work) {
    for (size_t p = 0; p < ids.size(); ++p) {
      ids[p].push_back(
          driver.Submit({.prompt = one.prompt, .generation = one.generation, .attention = SparsePolicies()[p].policy}));
    }
    dense.push_back(driver.Submit({.prompt = one.prompt, .generation = one.generation}));
  }
  driver.RunUntilIdle();
  for (size_t i = 0; i < work.size(); ++i) {
    for (size_t p = 0; p < ids.size(); ++p)
      ExpectSame(driver.outcome(ids[p][i]), SparseAnswers()[p][i],
                 SparsePolicies()[p].name + ", request " + std::to_string(i));
    ExpectSame(driver.outcome(dense[i]), SparseAlone({}, work[i].prompt, work[i].generation),
               "dense, request " + std::to_string(i));
  }
}

// Of an earlier turn only the rows of its prompt are what a prompt's rows are.
TEST(SparseEngine, SecondTurn_TakesUpNoMoreThanThePrompt) {
  for (const NamedPolicy& policy : SparsePolicies()) {
    EngineDriver driver(SparseModel(), {.threads = 1, .attention = policy.policy, .prefill_chunk = 50});
    driver.engine().impl().memory->prefix_cache().set_fewest_tokens(1);
    std::vector<int32_t> text = SparsePrompt(80, 1);
    size_t most = 0;
    for (int turn = 0; turn < 3; ++turn) {
      const Outcome expected = SparseAlone(policy.policy, text, SparseGreedy(21)),
                    found = driver.Run(text, SparseGreedy(21));
      const std::string where = policy.name + ", turn " + std::to_string(turn);
      ExpectSame(found, expected, where);
      EXPECT_LE(found.stats.cached_tokens, most) << where;
      if (!policy.evicts() && !policy.policy.from && turn != 0) {
        EXPECT_GT(found.stats.cached_tokens, 0U) << where;
      }
      if (policy.evicts()) {
        EXPECT_EQ(found.stats.cached_tokens, 0U) << where;
      }
      most = policy.policy.from ? std::min(*policy.policy.from, text.size()) : text.size();
      text = Joined(Joined(text, expected.ids), SparsePrompt(9, 50 + static_cast<uint64_t>(turn)));
    }
  }
}

TEST(SparseEngine, PreemptedRequests_GoOnAsIfNothingHadBeen) {
  for (const NamedPolicy& policy : SparsePolicies()) {
    std::vector<Work> work;
    for (uint64_t i = 0; i < 5; ++i)
      work.push_back({.prompt = SparsePrompt(2 + 9 * i, 70 + i),
                      .generation = i % 2 == 0 ? SparseFewIds(150) : SparseGreedy(160)});
    std::vector<Outcome> alone;
    uint64_t sum = 0;
    for (const Work& one : work) {
      alone.push_back(SparseAlone(policy.policy, one.prompt, one.generation));
      sum += alone.back().stats.growth.allocated_bytes;
    }
    for (const bool spills : {false, true}) {
      EngineOptions options{.threads = 2,
                            .kv_increment = 4,
                            .attention = policy.policy,
                            .max_batch = 5,
                            .prefill_chunk = 8,
                            .state_memory = sum * 5 / 8,
                            .spill_folder = spills ? ::testing::TempDir() : "",
                            .prefix_cache = !spills};
      EngineDriver driver(SparseModel(), options);
      std::vector<RequestId> ids;
      for (const Work& one : work)
        ids.push_back(driver.Submit({.prompt = one.prompt, .generation = one.generation, .needs_room_for_all = false}));
      driver.RunUntilIdle();
      size_t preempted = 0;
      for (size_t i = 0; i < work.size(); ++i) {
        ExpectSame(driver.outcome(ids[i]), alone[i],
                   policy.name + (spills ? ", spilled" : ", computed again") + ", request " + std::to_string(i));
        preempted += driver.outcome(ids[i]).stats.preemptions;
      }
      EXPECT_GT(preempted, 0U) << policy.name << (spills ? ", spilled" : ", computed again");
      driver.engine().ClearPrefixCache();
      EXPECT_EQ(driver.engine().impl().memory->held(), 0U);
    }
    if (HasFailure()) return;
  }
}

TEST(SparseEngine, DraftTokens_ChangeNoAnswer) {
  const std::vector<Work> work = SparseWork();
  const std::vector<std::pair<const char*, DraftOptions>> drafts = {
      {"n-grams", Ngrams(7)},
      {"many n-grams", Ngrams(DraftOptions::kMax)},
      {"a layer", {.num_draft_tokens = 4, .min_draft_tokens = 4, .source = DraftSource::kLayers, .layers = 1}},
      {"a tree of two layers",
       {.num_draft_tokens = 12,
        .min_draft_tokens = 12,
        .source = DraftSource::kLayers,
        .layers = 2,
        .tree = DraftTreeKind::kFixed}}};
  for (const auto& [name, draft] : drafts) {
    size_t drafted = 0, accepted = 0;
    for (size_t p = 0; p < SparsePolicies().size(); ++p) {
      const NamedPolicy& policy = SparsePolicies()[p];
      EngineDriver driver(SparseModel(),
                          {.threads = 2, .attention = policy.policy, .max_batch = 4, .prefill_chunk = 40});
      if (policy.evicts()) {
        const auto refused = driver.engine().Submit({.prompt = {5, 6}, .generation = SparseGreedy(2), .draft = draft});
        ASSERT_FALSE(refused.ok()) << policy.name;
        EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
        continue;
      }
      std::vector<RequestId> ids;
      for (const Work& w : work)
        ids.push_back(driver.Submit({.prompt = w.prompt, .generation = w.generation, .draft = draft}));
      driver.RunUntilIdle();
      for (size_t i = 0; i < work.size(); ++i) {
        ExpectSame(driver.outcome(ids[i]), SparseAnswers()[p][i],
                   policy.name + ", " + name + ", request " + std::to_string(i));
        drafted += driver.outcome(ids[i]).stats.drafted_tokens;
        accepted += driver.outcome(ids[i]).stats.accepted_tokens;
      }
      if (HasFailure()) return;
    }
    std::printf("  %s: %zu drafted, %zu accepted\n", name, drafted, accepted);
    EXPECT_GT(drafted, 0U) << name;
    EXPECT_GT(accepted, 0U) << name;
  }
}

// Sparse steps of the model itself draft for dense ones: answers and states are those of plain decoding, byte for byte.
TEST(SparseEngine, SparseDraftTokens_LeaveDenseAnswersAndStates) {
#ifdef TIDEMILL_FEW_POSITIONS
  constexpr uint64_t kPrompts = 12;
#else
  constexpr uint64_t kPrompts = 200;
#endif
  EngineDriver plain(SparseModel(), {.threads = 1, .prefill_chunk = 512}),
      drafting(SparseModel(), {.threads = 2, .max_batch = 3, .prefill_chunk = 40});
  drafting.engine().impl().memory->prefix_cache().set_fewest_tokens(1);
  plain.engine().impl().memory->prefix_cache().set_fewest_tokens(1);
  size_t drafted = 0, accepted = 0, cached = 0;
  for (uint64_t first = 0; first < kPrompts; first += 4) {
    std::vector<RequestId> ids, dense;
    for (uint64_t i = first; i < first + 4; ++i) {
      std::vector<int32_t> prompt = SparsePrompt(1 + 37 * i % 190, 1 + i / 3);  // some go on from others
      GenerationOptions generation = i % 3 == 0 ? SparseGreedy(40) : SparseFewIds(30);
      generation.temperature = i % 2 == 0 ? 0.0F : 0.7F;
      generation.seed = i;
      const DraftOptions draft{.num_draft_tokens = 1 + i % 9,
                               .min_draft_tokens = 1 + i % 9,
                               .source = DraftSource::kSparq,
                               .sparq = {.kind = AttentionKind::kSparq, .r = 3, .k = 12 + i % 30},
                               .tree = i % 5 == 4 ? DraftTreeKind::kFixed : DraftTreeKind::kChain};
      Request request{.prompt = prompt, .generation = generation, .keep_state = true};
      // Half of them are plain here, too: their states and those of the others go on from each other.
      if (i % 4 != 3) request.draft = draft;
      ids.push_back(drafting.Submit(request));
      request.draft = {};
      dense.push_back(plain.Submit(request));
    }
    plain.RunUntilIdle();
    drafting.RunUntilIdle();
    for (size_t i = 0; i < ids.size(); ++i) {
      const Outcome &found = drafting.outcome(ids[i]), &expected = plain.outcome(dense[i]);
      const std::string where = "prompt " + std::to_string(first + i);
      ExpectSame(found, expected, where);
      ASSERT_TRUE(found.saved != nullptr && expected.saved != nullptr) << where;
      EXPECT_TRUE(*found.saved == *expected.saved) << where;
      EXPECT_FALSE(found.stats.attention.has_value()) << where;
      EXPECT_EQ(found.stats.numeric_class, expected.stats.numeric_class);
      drafted += found.stats.drafted_tokens;
      accepted += found.stats.accepted_tokens;
      cached += found.stats.cached_tokens;
    }
    if (HasFailure()) return;
  }
  std::printf("  %zu drafted, %zu accepted, %zu cached\n", drafted, accepted, cached);
  EXPECT_GT(accepted, 0U);
  EXPECT_LT(accepted, drafted);
  EXPECT_GT(cached, 0U);
  const auto refused = drafting.engine().Submit({.prompt = {5, 6},
                                                 .generation = SparseGreedy(2),
                                                 .draft = {.num_draft_tokens = 2, .source = DraftSource::kSparq},
                                                 .attention = SparsePolicies()[0].policy});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("expected dense attention"));
}

TEST(SparseEngine, SavedRequest_GoesOnWithTheSameBits_AndUnderNoOtherPolicy) {
  const std::vector<int32_t> prompt = SparsePrompt(75, 6);
  GenerationOptions generation = SparseGreedy(90);
  for (const NamedPolicy& policy : SparsePolicies()) {
    const Outcome whole = SparseAlone(policy.policy, prompt, generation);
    for (const int32_t cut : {1, 60}) {
      GenerationOptions first = generation;
      first.max_new_tokens = cut;
      EngineDriver driver(SparseModel(), {.threads = 1, .attention = policy.policy, .prefill_chunk = 20});
      const Outcome saved = testing::RunAndSave(driver, prompt, first);
      ASSERT_NE(saved.saved, nullptr);
      EngineDriver elsewhere(
          SparseModel(),
          {.threads = 2, .kv_policy = KvPolicy::kPaged, .attention = policy.policy, .prefix_cache = false});
      const std::string where = policy.name + ", cut after " + std::to_string(cut);
      testing::ExpectJoined(saved, testing::ResumeSaved(elsewhere, saved, {.generation = generation}), whole, where);
      // As if all of it had been submitted: the answer's rows are a prompt's then.
      const std::vector<int32_t> longer = Joined(Joined(prompt, saved.ids), {9, 8, 7});
      const Outcome more =
          testing::ResumeSaved(elsewhere, saved, {.generation = SparseGreedy(20), .more_prompt = {9, 8, 7}});
      ExpectSame(more, SparseAlone(policy.policy, longer, SparseGreedy(20)), where + ", with more prompt");
      const SavedRequest read = testing::ReadSaved(saved);
      EngineDriver dense(SparseModel(), {.threads = 1});
      const Result<RequestId> resumed = dense.engine().Resume(read, {.generation = generation});
      ASSERT_FALSE(resumed.ok()) << where;
      EXPECT_EQ(resumed.error().code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(resumed.error().message(), ::testing::HasSubstr("--attention"));
      const Outcome own = testing::ResumeSaved(dense, saved, {.generation = generation, .attention = policy.policy});
      testing::ExpectJoined(saved, own, whole, where + ", in a dense engine");
    }
    if (HasFailure()) return;
  }
}

TEST(SparseEngine, AnyMix_GivesEachItsAnswerAlone) {
#ifdef TIDEMILL_FEW_POSITIONS  // emulated or sanitized
  constexpr uint64_t kMixes = 3;
#else
  constexpr uint64_t kMixes = 16;
#endif
  const uint64_t mixes = testing::CountByHand("TIDEMILL_MIXES", kMixes), first = testing::FirstSeed();
  const std::vector<Work> work = SparseWork();
  size_t cached = 0, preempted = 0, accepted = 0, cancelled = 0;
  for (uint64_t seed = first; seed < first + mixes; ++seed) {
    std::mt19937_64 random(seed);
    EngineOptions options{.threads = 1 + random() % 3,
                          .kv_policy = random() % 2 == 0 ? KvPolicy::kBmc : KvPolicy::kPaged,
                          .kv_increment = 16,
                          .max_batch = 1 + random() % 8,
                          .prefill_chunk = std::array<size_t, 4>{7, 16, 70, 512}[random() % 4]};
    options.spill_folder = random() % 2 == 0 ? ::testing::TempDir() : "";
    if (random() % 2 == 0) {
      EngineDriver measured(SparseModel(), options);
      for (const NamedPolicy& policy : SparsePolicies()) {
        const auto one = measured.Submit(
            {.prompt = work.back().prompt, .generation = work.back().generation, .attention = policy.policy});
        measured.RunUntilIdle();
        options.state_memory =
            std::max(options.state_memory, measured.outcome(one).stats.growth.allocated_bytes * 3 / 2);
      }
    }
    EngineDriver driver(SparseModel(), options);
    driver.engine().impl().memory->prefix_cache().set_fewest_tokens(1);
    struct Sent {
      RequestId id;
      size_t work, policy;
    };
    std::vector<Sent> sent;
    while (sent.size() < 24 || !driver.engine().idle()) {
      for (size_t arrivals = random() % 4; arrivals != 0 && sent.size() < 24; --arrivals) {
        const size_t i = random() % work.size(), p = random() % SparsePolicies().size();
        Request request{
            .prompt = work[i].prompt, .generation = work[i].generation, .attention = SparsePolicies()[p].policy};
        if (random() % 2 == 0 && !SparsePolicies()[p].evicts()) request.draft = Ngrams(1 + random() % 12);
        sent.push_back({driver.Submit(std::move(request)), i, p});
      }
      if (random() % 16 == 0 && !sent.empty()) driver.engine().Cancel(sent[random() % sent.size()].id);
      driver.Step();
      ASSERT_FALSE(HasFailure()) << "seed " << seed;
    }
    for (const Sent& one : sent) {
      const Outcome &found = driver.outcome(one.id), &expected = SparseAnswers()[one.policy][one.work];
      cached += found.stats.cached_tokens;
      preempted += found.stats.preemptions;
      accepted += found.stats.accepted_tokens;
      const std::string where =
          SparsePolicies()[one.policy].name + ", seed " + std::to_string(seed) + ", work " + std::to_string(one.work);
      if (found.finish == FinishReason::kCancelled) {
        ++cancelled;
        ASSERT_TRUE(std::equal(found.ids.begin(), found.ids.end(), expected.ids.begin())) << where;
      } else {
        ExpectSame(found, expected, where);
      }
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  std::printf("  cached tokens %zu, preempted %zu, accepted draft tokens %zu, cancelled %zu\n", cached, preempted,
              accepted, cancelled);
  EXPECT_GT(cached, 0U);
  EXPECT_TRUE(preempted > 0 || mixes < 16);
  EXPECT_GT(accepted, 0U);
  EXPECT_GT(cancelled, 0U);
}

}  // namespace
}  // namespace tidemill::sparse_engine_test
