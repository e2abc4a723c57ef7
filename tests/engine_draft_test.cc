// What becomes of draft tokens in a step: those that free rows leave, those that are right, and steps that are given up.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/scripted_drafters.h"
#include "tests/support/tiny_model.h"

namespace tidemill::engine_draft_test {
namespace {

using testing::BuildCountingModel;
using testing::DraftScript;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::LoadModel;
using testing::MakeWork;
using testing::Outcome;
using testing::ProposedTree;
using testing::RunUnbatched;
using testing::ScriptedDrafter;
using testing::SmallContextModel;
using testing::Work;

// Requests are known by their prompt and seed.
struct Script {
  std::map<std::pair<std::vector<int32_t>, uint64_t>, std::vector<int32_t>> answers;
  double right = 1;
  bool trees = false;
  mutable ProposedTree last;  // of whichever request proposed last

  Script(const std::vector<Work>& work, const std::vector<Outcome>& alone) {
    for (size_t i = 0; i < work.size(); ++i) {
      std::vector<int32_t> all = work[i].prompt;
      all.insert(all.end(), alone[i].ids.begin(), alone[i].ids.end());
      answers[{work[i].prompt, work[i].generation.seed}] = std::move(all);
    }
  }
  void Install(EngineDriver& driver, uint64_t seed) const {
    driver.engine().impl().make_drafter = [this, seed](const Request& request, size_t,
                                                       SequenceState&) -> std::unique_ptr<Drafter> {
      const std::vector<int32_t>& answer = answers.at({request.prompt, request.generation.seed});
      return std::make_unique<ScriptedDrafter>(
          DraftScript{.truth = answer, .right = right, .seed = seed, .trees = trees}, &last);
    };
  }
};

RequestId SubmitWithDraft(EngineDriver& driver, const Work& work, size_t num_draft_tokens, size_t min_draft_tokens) {
  auto id =
      driver.engine().Submit({.prompt = work.prompt,
                              .generation = work.generation,
                              .draft = {.num_draft_tokens = num_draft_tokens, .min_draft_tokens = min_draft_tokens}});
  EXPECT_TRUE(id.ok());
  return *id;
}

constexpr KvPolicy kPolicies[] = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc,
                                  KvPolicy::kGeometric, KvPolicy::kReserve, KvPolicy::kPaged};

// One request at a time, so that it is known what became of each tree: how much of it had rows, and how many of its nodes were right.
TEST(EngineDraft, TreesOfDraftTokens_AreTakenAtAnySiblingAndCutToFreeRows) {
  const auto model = SmallContextModel(DType::kF32);
  const auto work = MakeWork(18, 41);
  const auto alone = RunUnbatched(model, work);
  Script script(work, alone);
  script.trees = true;
  script.right = 0.9;
  constexpr size_t kMax = 6;
  size_t drafts = 0, beside = 0, cut = 0, whole = 0, none_free = 0;
  std::map<size_t, size_t> lengths;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    EngineDriver driver(model, {.threads = 1, .kv_policy = kPolicies[seed % 6], .kv_increment = seed < 12 ? 16 : 7U});
    script.Install(driver, seed);
    Engine::Impl& impl = driver.engine().impl();
    for (size_t i = 0; i < work.size(); ++i) {
      const RequestId id = SubmitWithDraft(driver, work[i], kMax, kMax);
      uint64_t growths = 0;
      while (!driver.engine().idle()) {
        script.last = {};
        const size_t tokens = driver.Step();
        const bool ended = driver.outcome(id).ended();
        const uint64_t grown =
            ended ? driver.outcome(id).stats.growth.growths : impl.requests[0]->state().growth().growths;
        const size_t rows = impl.scheduler->step().empty() ? 0 : impl.scheduler->step()[0].tokens.size();
        const bool grew = std::exchange(growths, grown) != grown;
        if (script.last.nodes == 0) continue;
        ++drafts;
        (grew ? none_free : rows == 1 + script.last.nodes ? whole : cut) += 1;
        if (grew) {
          EXPECT_EQ(rows, 1 + script.last.nodes) << "a state that grows has room for all";
        }
        ASSERT_GE(tokens, 1U);
        const size_t accepted = tokens - 1;
        ++lengths[accepted];
        const size_t with_rows = script.last.RightAmong(rows - 1);  // right nodes that were not cut
        ASSERT_LE(accepted, with_rows);
        if (!ended) {
          ASSERT_EQ(accepted, with_rows);
        }
        const auto right = std::span(script.last.path).first(accepted);
        beside += std::any_of(right.begin(), right.end(), [](const auto& node) { return node.sibling != 0; });
      }
      ExpectSame(driver.outcome(id), alone[i],
                 "request " + std::to_string(i) + ", " + std::string(KvPolicyName(kPolicies[seed % 6])) + ", seed " +
                     std::to_string(seed));
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_GT(drafts, 400U);
  EXPECT_GT(beside * 5, drafts) << "a fifth of the steps takes a sibling that is not the first";
  for (const size_t count : {cut, whole, none_free}) EXPECT_GT(count, 50U);
  for (size_t length = 0; length <= kMax; ++length) EXPECT_GT(lengths[length], 0U) << length;
}

// Draft tokens are verified by what the options say at their place.
TEST(EngineDraft, BannedAndForcedTokens_AreThoseOfPlainDecoding) {
  const auto model = SmallContextModel(DType::kF32);
  auto work = MakeWork(18, 43);
  const auto plain = RunUnbatched(model, work);
  size_t changed = 0, accepted = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    GenerationOptions& g = work[i].generation;
    const std::vector<int32_t>& ids = plain[i].ids;
    g.suppress_tokens = {ids.front()};
    g.begin_suppress_tokens = {ids[ids.size() / 2], 9};
    for (size_t at = 0; at + 2 < ids.size(); at += 2) g.bad_words_ids.push_back({ids[at], ids[at + 1]});
    g.bad_words_ids.push_back({ids.back()});
    g.forced_eos_token_id = {4, 5, 6, 8};  // of which some are left
    if (i % 2 == 0) g.forced_bos_token_id = 7;
  }
  const auto alone = RunUnbatched(model, work);
  Script script(work, alone);
  script.right = 0.9;
  for (const bool trees : {false, true}) {
    script.trees = trees;
    EngineDriver driver(model, {.threads = 1});
    script.Install(driver, 5);
    std::vector<RequestId> ids;
    for (const Work& w : work) ids.push_back(SubmitWithDraft(driver, w, 6, 6));
    driver.RunUntilIdle();
    for (size_t i = 0; i < work.size(); ++i) {
      ExpectSame(driver.outcome(ids[i]), alone[i], "request " + std::to_string(i) + (trees ? ", trees" : ""));
      changed += alone[i].ids != plain[i].ids ? 1 : 0;
      accepted += driver.outcome(ids[i]).stats.accepted_tokens;
    }
  }
  EXPECT_GT(changed, 24U) << "of 36";
  EXPECT_GT(accepted, 100U);
}

// Of a tree whose right path is not the first one, and what is left of it when rows are short.
TEST(EngineDraft, FreeRows_CutTheLastNodes) {
  const auto model = LoadModel("engine_draft", BuildCountingModel({.vocab = 400, .context = 64, .eos_token = 399}));
  struct Fixed : Drafter {
    int32_t last = 0;
    std::vector<int32_t> ids, parents = {-1, -1, 1, 1, 3, 0};
    void Append(int32_t id) override { last = id; }
    DraftTree Propose(size_t num_draft_tokens) override {
      ids = {7, last + 1, 7, last + 2, last + 3, 7};
      const size_t nodes = std::min(num_draft_tokens, ids.size());
      return {.ids = std::span(ids).first(nodes), .parents = std::span(parents).first(nodes)};
    }
  };
  EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kBmc, .kv_increment = 16});
  driver.engine().impl().make_drafter = [](const Request&, size_t, SequenceState&) {
    return std::make_unique<Fixed>();
  };
  const RequestId id = SubmitWithDraft(driver, {{20}, {.max_new_tokens = 24}}, 6, 6);
  std::vector<size_t> rows, made;
  while (!driver.engine().idle()) {
    made.push_back(driver.Step());
    rows.push_back(driver.engine().impl().scheduler->step()[0].tokens.size());
  }
  // Three of six draft tokens are right: the second, the fourth, the fifth. At row 12 four are left for a token and three draft tokens, at 14 two,
  // at 15 one, and at 16 the block grows. The last three steps are short of tokens.
  EXPECT_EQ(rows, (std::vector<size_t>{7, 7, 7, 4, 2, 1, 7, 4, 2, 1}));
  EXPECT_EQ(made, (std::vector<size_t>{4, 4, 4, 2, 1, 1, 4, 2, 1, 1}));
  std::vector<int32_t> expected(24);
  std::iota(expected.begin(), expected.end(), 21);
  EXPECT_EQ(driver.outcome(id).ids, expected);
}

// BMC's rule: free rows bound the draft tokens, and a state grows for them only where it must grow for the token anyway.
TEST(EngineDraft, FreeRows_BoundTheDraftTokens) {
  const auto model = LoadModel("engine_draft", BuildCountingModel({.vocab = 400, .context = 64, .eos_token = 399}));
  EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kBmc, .kv_increment = 16});
  const std::vector<Work> work = {{{20}, {.max_new_tokens = 40}}};
  const Script script(work, RunUnbatched(model, work));
  script.Install(driver, 1);
  const RequestId id = SubmitWithDraft(driver, work[0], 6, 6);
  std::vector<size_t> made;
  while (!driver.engine().idle()) made.push_back(driver.Step());
  // Rows of a step: a token and six draft tokens; at row 14 two are left, and at 16 the block grows.
  EXPECT_EQ(made, (std::vector<size_t>{7, 7, 2, 7, 7, 2, 7, 1}));
  EXPECT_EQ(driver.outcome(id).stats.accepted_tokens, 32U);
  EXPECT_EQ(driver.outcome(id).stats.growth.growths, 3 * driver.engine().impl().language_model().layers.size());
}

TEST(EngineDraft, Ngram_FindsWhatThePromptSaid) {
  const auto model = LoadModel("engine_draft", BuildCountingModel({.vocab = 400, .context = 128, .eos_token = 399}));
  EngineDriver driver(model, {.threads = 1});
  std::vector<int32_t> prompt(30);
  std::iota(prompt.begin(), prompt.end(), 100);
  for (const int32_t id : {5, 101, 102, 103}) prompt.push_back(id);
  const auto id = driver.engine().Submit({.prompt = prompt,
                                          .generation = {.max_new_tokens = 20},
                                          .draft = {.num_draft_tokens = 8, .min_draft_tokens = 8}});
  ASSERT_TRUE(id.ok());
  size_t steps = 0;
  for (; !driver.engine().idle(); ++steps) driver.Step();
  std::vector<int32_t> expected(20);
  std::iota(expected.begin(), expected.end(), 104);
  EXPECT_EQ(driver.outcome(*id).ids, expected);
  EXPECT_EQ(steps, 4U);  // the prompt and its token, 9, 9, 1
  EXPECT_EQ(driver.outcome(*id).stats.accepted_tokens, 16U);
}

// Each allocation of a step with draft tokens fails in turn, once: where it was one of the state's, the step is made without the draft tokens.
TEST(EngineDraft, StateWithoutRoomForDraftTokens_GoesOnWithoutThem) {
  const auto model = LoadModel("engine_draft", BuildCountingModel({.vocab = 400, .context = 128, .eos_token = 399}));
  // 16 ids before the step: the first one behind them makes the lookup's own ids grow.
  const std::vector<int32_t> prompt = {90, 91, 92, 93, 94, 100, 101, 102, 103, 104, 105, 7, 100, 101, 102};
  std::vector<int32_t> expected(8);
  std::iota(expected.begin(), expected.end(), 103);
  size_t without_drafts = 0, without_drafter = 0;
  for (size_t n = 0, reached = 1; reached != 0; ++n) {
    ASSERT_LT(n, 100U);
    EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kIterative});
    const RequestId id = driver.Submit({.prompt = prompt,
                                        .generation = {.max_new_tokens = 8},
                                        .draft = {.num_draft_tokens = 3, .min_draft_tokens = 3, .ngram_min = 1}});
    driver.Step();
    testing::FailAllocations failure(n);
    const auto events = driver.engine().Step();
    reached = failure.Stop() ? 1 : 0;
    const size_t made = events.size();
    driver.Consume(events);
    driver.RunUntilIdle();
    const Outcome& outcome = driver.outcome(id);
    without_drafter += outcome.stats.draft_trouble == "there is no memory for draft tokens";
    ASSERT_FALSE(outcome.error) << "allocation " << n;
    EXPECT_EQ(outcome.ids, expected) << "allocation " << n;
    if (reached != 0 && made == 1) ++without_drafts;
    if (reached == 0) {
      EXPECT_GT(made, 1U) << "draft tokens are right where nothing fails";
    }
  }
  EXPECT_GT(without_drafts, 1U);
  EXPECT_GT(without_drafter, 1U);
}

// A drafter's steps have so many threads, the model's all of them.
TEST(EngineDraft, DraftThreads_AreThoseOfDraftersAlone) {
  const auto model = SmallContextModel(DType::kF32);
  struct Counting : Drafter {
    ThreadPool* threads = nullptr;
    std::vector<size_t>* seen = nullptr;
    std::vector<size_t>* appended = nullptr;
    void Append(int32_t) override { appended->push_back(threads->num_threads()); }
    DraftTree Propose(size_t) override {
      seen->push_back(threads->num_threads());
      return {};
    }
  };
  for (const size_t draft_threads : {0, 1, 2, 3, 4}) {
    EngineDriver driver(model, {.threads = 3, .draft_threads = draft_threads});
    Engine::Impl& impl = driver.engine().impl();
    std::vector<size_t> seen, appended;  // what makes draft tokens may run steps when it is given rows, too
    impl.make_drafter = [&](const Request&, size_t, SequenceState&) {
      auto drafter = std::make_unique<Counting>();
      drafter->threads = impl.threads.get();
      drafter->seen = &seen;
      drafter->appended = &appended;
      return drafter;
    };
    SubmitWithDraft(driver, {{20}, {.max_new_tokens = 8, .ignore_eos = true}}, 2, 2);
    while (!driver.engine().idle()) {
      driver.Step();
      ASSERT_EQ(driver.engine().threads(), 3U);
    }
    const size_t expected = draft_threads == 0 ? 3 : std::min<size_t>(draft_threads, 3);
    EXPECT_EQ(seen, std::vector<size_t>(7, expected));
    ASSERT_GE(appended.size(), 7U);
    EXPECT_EQ(std::vector<size_t>(appended.end() - 7, appended.end()), std::vector<size_t>(7, expected));
    const std::string& notice = driver.engine().notice();
    EXPECT_EQ(notice.find("--draft-threads 4: ") != std::string::npos, draft_threads == 4) << notice;
  }
}

TEST(EngineDraft, WrongOptions_AreRefused) {
  EngineDriver driver(SmallContextModel(DType::kF32), {.threads = 1});
  const std::pair<DraftOptions, const char*> wrong[] = {
      {{.num_draft_tokens = 65}, "at most 64 draft tokens in a step, found 65; lower num_draft_tokens"},
      {{.num_draft_tokens = 1, .min_draft_tokens = 2},
       "min_draft_tokens of at most num_draft_tokens, which is 1, found 2"},
      {{.num_draft_tokens = 1, .ngram_min = 0}, "a shortest n-gram of at least 1 token, found 0; raise ngram_min"},
      {{.num_draft_tokens = 1, .ngram_min = 4, .ngram_max = 3},
       "a longest n-gram of at least the shortest, which has 4 tokens, found 3; raise ngram_max or lower ngram_min"}};
  for (const auto& [draft, expected] : wrong) {
    const auto id = driver.engine().Submit({.prompt = {5}, .generation = {}, .draft = draft});
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(id.error().message(), std::string("submit request: draft: expected ") + expected);
  }
}

// A step is given up where a request is cancelled in it, but never two in a row: the others go on, however many are cancelled.
TEST(EngineDraft, CancellingInEachStep_StopsNobodyElse) {
  const auto model = LoadModel("engine_draft", BuildCountingModel({.vocab = 400, .context = 128, .eos_token = 399}));
  struct Cancelling : Drafter {
    Engine* engine = nullptr;
    std::vector<RequestId>* waiting = nullptr;
    void Append(int32_t) override {}
    DraftTree Propose(size_t) override {
      if (!waiting->empty()) engine->Cancel(waiting->back());
      if (!waiting->empty()) waiting->pop_back();
      return {};
    }
  };
  EngineDriver driver(model, {.threads = 1, .max_batch = 1});
  std::vector<RequestId> waiting;
  driver.engine().impl().make_drafter = [&](const Request&, size_t, SequenceState&) {
    auto drafter = std::make_unique<Cancelling>();
    drafter->engine = &driver.engine();
    drafter->waiting = &waiting;
    return drafter;
  };
  const RequestId first = driver.Submit(
      {.prompt = {100}, .generation = {.max_new_tokens = 10}, .draft = {.num_draft_tokens = 1, .min_draft_tokens = 1}});
  for (int i = 0; i < 40; ++i)
    waiting.push_back(driver.Submit({.prompt = {5}, .generation = {.max_new_tokens = 1}, .draft = {}}));
  size_t steps = 0;
  for (; !driver.outcome(first).finish; ++steps) {
    ASSERT_LE(steps, 22U);
    driver.Step();
  }
  EXPECT_GT(steps, 15U) << "steps are given up";
  driver.RunUntilIdle();
}

// Every other step is given up when its tokens are chosen, of chains and of trees.
TEST(EngineDraft, AbandonedSteps_HaveChosenNothing) {
  const auto model = SmallContextModel(DType::kF32);
  const auto work = MakeWork(18, 51);
  const auto alone = RunUnbatched(model, work);
  Script script(work, alone);
  script.right = 0.8;
  for (const bool trees : {false, true}) {
    script.trees = trees;
    EngineDriver driver(model, {.threads = 1, .max_batch = 5, .prefill_chunk = 64});
    script.Install(driver, 1);
    std::vector<RequestId> ids;
    for (const Work& w : work) ids.push_back(SubmitWithDraft(driver, w, 8, 8));
    Engine::Impl& impl = driver.engine().impl();
    while (!driver.engine().idle()) {
      std::vector<Event> events;
      impl.scheduler->Plan(impl.requests, &events);
      ASSERT_TRUE(events.empty());
      const std::span<const StepSequence> step = impl.scheduler->step();
      impl.executor->Run(
          step,
          [&](size_t sequence, size_t row, std::span<float> logits) {
            impl.scheduler->request(sequence).Sample(row, logits);
          },
          nullptr);
      for (size_t i = 0; i < step.size(); ++i) impl.scheduler->request(i).Abandon();
      driver.Step();
    }
    for (size_t i = 0; i < work.size(); ++i)
      ExpectSame(driver.outcome(ids[i]), alone[i], "request " + std::to_string(i) + ", trees " + std::to_string(trees));
  }
}

// A step that another thread's Cancel interrupts has chosen nothing.
TEST(EngineDraft, InterruptedSteps_AreMadeAgain) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const auto work = MakeWork(18, 31);
  const auto alone = RunUnbatched(model, work);
  const Script script(work, alone);
  size_t cancelled = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    EngineDriver driver(model, {.threads = 2, .max_batch = 18, .prefill_chunk = 64});
    script.Install(driver, seed);
    std::vector<RequestId> ids;
    for (const Work& w : work) ids.push_back(SubmitWithDraft(driver, w, 4, 4));
    std::atomic<bool> stop{false};
    std::latch begun(1);
    std::thread canceller([&] {
      std::mt19937_64 random(seed);
      for (size_t i = 0; i < 9 && !stop.load(); ++i) {
        driver.engine().Cancel(ids[2 * i]);
        if (i == 0) begun.count_down();  // so that one is cancelled for certain
        for (uint64_t wait = random() % 200; wait != 0; --wait) std::this_thread::yield();
      }
    });
    begun.wait();
    driver.RunUntilIdle();
    stop = true;
    canceller.join();
    for (size_t i = 0; i < work.size(); ++i) {
      const Outcome& found = driver.outcome(ids[i]);
      const std::string where = "request " + std::to_string(i) + ", seed " + std::to_string(seed);
      if (found.finish != FinishReason::kCancelled) {
        ExpectSame(found, alone[i], where);
      } else {
        ++cancelled;
        EXPECT_TRUE(i % 2 == 0) << where;
        EXPECT_TRUE(std::equal(found.ids.begin(), found.ids.end(), alone[i].ids.begin())) << where;
      }
    }
  }
  EXPECT_GT(cancelled, 0U);
}

}  // namespace
}  // namespace tidemill::engine_draft_test
