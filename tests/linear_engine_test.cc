// Requests of models with linear attention in an engine: whatever runs beside them, is cached, preempted, drafted or cancelled, their answers
// are those that they get alone.
//
// By hand: TIDEMILL_MIXES=500 for so many mixes, TIDEMILL_SEED for other ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/engine_driver.h"
#include "tests/support/linear_requests.h"
#include "tests/support/random_requests.h"
#include "tests/support/scripted_drafters.h"

namespace tidemill::linear_engine_test {
namespace {

using testing::AllAnswers;
using testing::Alone;
using testing::Answers;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::FewIds;
using testing::Greedy;
using testing::Hybrid;
using testing::Joined;
using testing::kPolicies;
using testing::MixedWork;
using testing::NameOf;
using testing::NgramDraft;
using testing::Outcome;
using testing::Prompt;
using testing::Work;

TEST(LinearEngine, ConcurrentRequests_GetWhatTheyGetAlone) {
  const std::vector<Work> work = MixedWork();
  for (const Answers& answers : AllAnswers()) {
    for (const size_t chunk : {5, 70, 512}) {
      for (const size_t batch : {2, 8}) {
        EngineDriver driver(Hybrid(),
                            {.threads = 2, .linear = answers.policy, .max_batch = batch, .prefill_chunk = chunk});
        const auto ids = testing::RunTogether(driver, work, chunk + batch);
        for (size_t i = 0; i < work.size(); ++i) {
          ExpectSame(
              driver.outcome(ids[i]), answers.alone[i],
              NameOf(answers.policy) + ", chunks of " + std::to_string(chunk) + ", request " + std::to_string(i));
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST(LinearEngine, SecondTurn_GoesOnFromTheFirst) {
  for (const LinearPolicy& policy : kPolicies) {
    EngineDriver driver(Hybrid(), {.threads = 1, .linear = policy, .prefill_chunk = 50});
    std::vector<int32_t> text = Prompt(45, 1);
    size_t known = 0;
    for (int turn = 0; turn < 3; ++turn) {
      const Outcome expected = Alone(policy, text, Greedy(21)), found = driver.Run(text, Greedy(21));
      ExpectSame(found, expected, NameOf(policy) + ", turn " + std::to_string(turn));
      EXPECT_EQ(found.stats.cached_tokens, known) << NameOf(policy) << ", turn " << turn;
      known = text.size() + expected.ids.size() - 1;  // the last token is in no state
      text = Joined(Joined(text, expected.ids), Prompt(9, 50 + static_cast<uint64_t>(turn)));
    }
    EXPECT_EQ(driver.engine().prefix_cache().hits, 2U);
  }
}

// They go on from a state that runs, side by side in the same cells.
TEST(LinearEngine, PromptsThatBeginAlike_ShareWhatOneComputes) {
  const std::vector<int32_t> text = Prompt(48, 2);
  for (const LinearPolicy& policy : kPolicies) {
    EngineDriver driver(Hybrid(), {.threads = 2, .linear = policy});
    std::vector<std::vector<int32_t>> prompts;
    std::vector<RequestId> ids;
    for (uint64_t i = 0; i < 6; ++i) {
      prompts.push_back(Joined(text, Prompt(2 + i % 3, 60 + i)));
      ids.push_back(driver.Submit(prompts.back(), Greedy(40)));
    }
    driver.RunUntilIdle();
    size_t cached = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const Outcome& found = driver.outcome(ids[i]);
      ExpectSame(found, Alone(policy, prompts[i], Greedy(40)), NameOf(policy) + ", request " + std::to_string(i));
      cached += found.stats.cached_tokens;
    }
    EXPECT_EQ(cached, 5 * text.size()) << NameOf(policy);
    if (HasFailure()) return;
  }
}

// What decoding requests hold grows by rows of attention alone, so that preemption takes long answers in little memory.
TEST(LinearEngine, PreemptedRequests_GoOnAsIfNothingHadBeen) {
  size_t all = 0;
  for (const LinearPolicy& policy : kPolicies) {
    std::vector<Work> work;
    for (uint64_t i = 0; i < 6; ++i)
      work.push_back({.prompt = Prompt(2 + 3 * i, 70 + i), .generation = i % 2 == 0 ? FewIds(260) : Greedy(300)});
    const std::vector<Outcome> alone = testing::RunUnbatched(
        Hybrid(), work, {.threads = 1, .kv_increment = 4, .linear = policy, .prefill_chunk = 8, .prefix_cache = false});
    for (const bool spills : {false, true}) {
      EngineOptions options{.threads = 2,
                            .kv_increment = 4,
                            .linear = policy,
                            .max_batch = 6,
                            .prefill_chunk = 8,
                            .prefix_cache = !spills};
      options.spill_folder = spills ? ::testing::TempDir() : "";
      uint64_t sum = 0;  // a part of what they hold in the end, which is more than they start with
      for (const Outcome& o : alone) sum += o.stats.growth.allocated_bytes;
      options.state_memory = sum * 5 / 8;
      EngineDriver driver(Hybrid(), options);
      std::vector<RequestId> ids;
      for (const Work& w : work) ids.push_back(driver.Submit(w.prompt, w.generation));
      driver.RunUntilIdle();
      size_t preempted = 0;
      for (size_t i = 0; i < work.size(); ++i) {
        ExpectSame(driver.outcome(ids[i]), alone[i],
                   NameOf(policy) + (spills ? ", spilled" : ", computed again") + ", request " + std::to_string(i));
        preempted += driver.outcome(ids[i]).stats.preemptions;
      }
      EXPECT_GT(preempted, 0U) << NameOf(policy) << (spills ? ", spilled" : ", computed again");
      all += preempted;
      driver.engine().ClearPrefixCache();
      EXPECT_EQ(driver.engine().impl().memory->held(), 0U);
    }
    if (HasFailure()) return;
  }
  std::printf("  %zu preemptions\n", all);
}

// --- Drafts ---

TEST(LinearEngine, DraftTokens_ChangeNoAnswer) {
  const std::vector<Work> work = MixedWork();
  const std::vector<std::pair<const char*, DraftOptions>> drafts = {
      {"n-grams", NgramDraft(7)},
      {"many n-grams", NgramDraft(DraftOptions::kMax)},
      {"two layers", {.num_draft_tokens = 4, .min_draft_tokens = 4, .source = DraftSource::kLayers, .layers = 2}},
      {"a tree of three layers",
       {.num_draft_tokens = 12,
        .min_draft_tokens = 12,
        .source = DraftSource::kLayers,
        .layers = 3,
        .tree = DraftTreeKind::kFixed}}};
  for (const auto& [name, draft] : drafts) {
    size_t drafted = 0, accepted = 0;
    for (const Answers& answers : AllAnswers()) {
      EngineDriver driver(Hybrid(), {.threads = 2, .linear = answers.policy, .max_batch = 4, .prefill_chunk = 40});
      std::vector<RequestId> ids;
      for (const Work& w : work)
        ids.push_back(driver.Submit({.prompt = w.prompt, .generation = w.generation, .draft = draft}));
      driver.RunUntilIdle();
      for (size_t i = 0; i < work.size(); ++i) {
        ExpectSame(driver.outcome(ids[i]), answers.alone[i],
                   NameOf(answers.policy) + ", " + name + ", request " + std::to_string(i));
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

// A request is cancelled while the engine looks at the first logits of a step that verifies draft tokens, all of whose cells have run: nothing
// of it is committed. Its batch mate repeats its own verification. What comes next goes on from what is left.
TEST(LinearEngine, CancellationInAVerification_LeavesNothingBehind) {
  std::vector<int32_t> text = Prompt(12, 3);
  while (text.size() < 90) text = Joined(text, text);
  const std::vector<int32_t> other = Joined(Prompt(5, 4), text);
  size_t verifications = 0;
  for (const LinearPolicy& policy : kPolicies) {
    const Outcome expected = Alone(policy, text, FewIds(60)), expected_mate = Alone(policy, other, FewIds(60));
    for (size_t verified = 1; verified <= 3; ++verified) {
      const std::string where = NameOf(policy) + ", verification " + std::to_string(verified);
      EngineDriver driver(Hybrid(), {.threads = 1, .linear = policy});
      Engine::Impl& impl = driver.engine().impl();
      RequestId victim = 0, mate = 0;
      size_t seen = 0;
      testing::ProposedTree last;
      // Logits come in blocks of StepRows::kHeadRows, between which a step may stop; the older request's come first.
      const RequestFaults cancels{.sampling = [&](RequestId id, std::span<float>) {
        if (id != mate) return;
        const std::span<const StepSequence> step = impl.scheduler->step();
        size_t rows = 0;
        for (const StepSequence& sequence : step) rows += sequence.tokens.size();
        const bool verifies = step.size() == 2 && step[0].rows == Wanted::kAll && step[1].rows == Wanted::kAll;
        if (!verifies || rows <= StepRows::kHeadRows || ++seen != verified) return;
        ++verifications;
        driver.engine().Cancel(victim);
      }};
      impl.faults = &cancels;
      impl.make_drafter = [&](const Request& request, size_t, SequenceState&) {
        const bool is_mate = request.prompt == other;
        return std::make_unique<testing::ScriptedDrafter>(
            testing::DraftScript{.truth = Joined(is_mate ? other : text, (is_mate ? expected_mate : expected).ids),
                                 .right = 0.8,
                                 .seed = verified,
                                 .vocab = 128},
            &last);
      };
      mate = driver.Submit({.prompt = other, .generation = FewIds(60), .draft = NgramDraft(9)});
      victim = driver.Submit({.prompt = text, .generation = FewIds(60), .draft = NgramDraft(40)});
      driver.RunUntilIdle();
      impl.faults = nullptr;
      impl.make_drafter = [](const Request&, size_t, SequenceState&) { return std::make_unique<NgramDrafter>(1); };
      const Outcome& cut = driver.outcome(victim);
      EXPECT_EQ(cut.finish, FinishReason::kCancelled) << where;
      EXPECT_TRUE(std::equal(cut.ids.begin(), cut.ids.end(), expected.ids.begin())) << where;
      ExpectSame(driver.outcome(mate), expected_mate, where + ", its batch mate");
      // The last token of the cancelled one is in no state.
      const std::vector<int32_t> longer = Joined(Joined(text, cut.ids), {30});
      const RequestId next = driver.Submit({.prompt = longer, .generation = FewIds(30), .draft = NgramDraft(9)});
      driver.RunUntilIdle();
      ExpectSame(driver.outcome(next), Alone(policy, longer, FewIds(30)), where + ", the next one");
      EXPECT_EQ(driver.outcome(next).stats.cached_tokens, longer.size() - 2) << where;
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(verifications, 3 * std::size(kPolicies));
}

// --- Everything together ---

TEST(LinearEngine, AnyMix_GivesEachItsAnswerAlone) {
#ifdef TIDEMILL_FEW_POSITIONS  // emulated or sanitized
  constexpr uint64_t kMixes = 6;
#else
  constexpr uint64_t kMixes = 24;
#endif
  const uint64_t mixes = testing::CountByHand("TIDEMILL_MIXES", kMixes), first = testing::FirstSeed();
  const std::vector<Work> work = MixedWork();
  size_t cached = 0, preempted = 0, accepted = 0, cancelled = 0;
  for (uint64_t seed = first; seed < first + mixes; ++seed) {
    std::mt19937_64 random(seed);
    EngineOptions options{.threads = 1 + random() % 3,
                          .kv_policy = random() % 2 == 0 ? KvPolicy::kBmc : KvPolicy::kPaged,
                          .kv_increment = 16,
                          .linear = kPolicies[random() % std::size(kPolicies)],
                          .max_batch = 1 + random() % 8,
                          .prefill_chunk = std::array<size_t, 4>{7, 16, 70, 512}[random() % 4]};
    options.spill_folder = random() % 2 == 0 ? ::testing::TempDir() : "";
    if (random() % 2 == 0) {
      EngineDriver measured(Hybrid(), options);
      Engine::Impl& impl = measured.engine().impl();
      for (const LinearPolicy& policy : kPolicies) {
        const auto state = impl.NewState(0, impl.ClassOf(policy).value());
        options.state_memory = std::max(options.state_memory, state->LedgerGrowth(240, options.prefill_chunk));
      }
    }
    EngineDriver driver(Hybrid(), options);
    driver.engine().impl().memory->prefix_cache().set_fewest_tokens(1);
    struct Sent {
      RequestId id;
      size_t work, policy;
    };
    std::vector<Sent> sent;
    while (sent.size() < 24 || !driver.engine().idle()) {
      for (size_t arrivals = random() % 4; arrivals != 0 && sent.size() < 24; --arrivals) {
        const size_t i = random() % work.size(), p = random() % std::size(kPolicies);
        Request request{.prompt = work[i].prompt, .generation = work[i].generation, .linear = kPolicies[p]};
        if (random() % 2 == 0) request.draft = NgramDraft(1 + random() % 12);
        sent.push_back({driver.Submit(std::move(request)), i, p});
      }
      if (random() % 16 == 0 && !sent.empty()) driver.engine().Cancel(sent[random() % sent.size()].id);
      driver.Step();
      ASSERT_FALSE(HasFailure()) << "seed " << seed;
    }
    for (const Sent& one : sent) {
      const Outcome &found = driver.outcome(one.id), &expected = AllAnswers()[one.policy].alone[one.work];
      cached += found.stats.cached_tokens;
      preempted += found.stats.preemptions;
      accepted += found.stats.accepted_tokens;
      if (found.finish == FinishReason::kCancelled) {
        ++cancelled;
        ASSERT_TRUE(std::equal(found.ids.begin(), found.ids.end(), expected.ids.begin())) << "seed " << seed;
      } else {
        ExpectSame(
            found, expected,
            NameOf(kPolicies[one.policy]) + ", seed " + std::to_string(seed) + ", work " + std::to_string(one.work));
      }
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  std::printf("  cached tokens %zu, preempted %zu, accepted draft tokens %zu, cancelled %zu\n", cached, preempted,
              accepted, cancelled);
  EXPECT_GT(cached, 0U);
  EXPECT_TRUE(preempted > 0 || mixes < 24);
  EXPECT_GT(accepted, 0U);
  EXPECT_GT(cancelled, 0U);
}

}  // namespace
}  // namespace tidemill::linear_engine_test
