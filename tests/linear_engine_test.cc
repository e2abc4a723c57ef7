// Requests of models with linear attention in an engine: whatever runs beside them, is cached, preempted, drafted, cancelled or saved, and
// whatever class each of them has, their answers are those that they get alone.
//
// By hand: TIDEMILL_MIXES=500 for so many mixes, TIDEMILL_SEED for other ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "runtime/linear_class.h"
#include "tests/fixtures_path.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/linear_classes.h"
#include "tests/support/model_runner.h"
#include "tests/support/random_requests.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/scripted_drafters.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::linear_engine_test {
namespace {

using testing::ChangedCheckpoint;
using testing::EngineDriver;
using testing::ExpectSame;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::Work;

constexpr size_t kContext = 512;

std::shared_ptr<const Model> HybridModel(const std::string& family = "qwen3_5_text_ratio3") {
  ChangedCheckpoint checkpoint("families/" + family);
  checkpoint.Replace("\"max_position_embeddings\": 128", "\"max_position_embeddings\": 512");
  return testing::LoadFolder(checkpoint, testing::TinyTokenizerJson(128));
}

std::shared_ptr<const Model> Hybrid() {
  static const auto model = HybridModel();
  return model;
}

constexpr LinearPolicy kPolicies[] = {{.form = LinearForm::kRecurrent},
                                      {.form = LinearForm::kBuffered, .buffer = 3},
                                      {.form = LinearForm::kBuffered, .buffer = 8},
                                      {.form = LinearForm::kKv, .buffer = 8, .start = 24},
                                      {.form = LinearForm::kKv, .buffer = 16, .start = 64},
                                      {.form = LinearForm::kBuffered, .buffer = 8, .bfloat16 = true},
                                      {.form = LinearForm::kKv, .buffer = 8, .start = 24, .bfloat16 = true}};

DeltaClass ClassOf(const LinearPolicy& policy) {
  return ResolveLinearPolicy(policy, *Hybrid()->impl().language_model, kContext).value();
}
std::string NameOf(const LinearPolicy& policy) { return testing::NameOf(ClassOf(policy)); }

std::vector<int32_t> Prompt(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(size);
  for (int32_t& id : ids) id = static_cast<int32_t>(3 + random() % 120);
  return ids;
}

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

GenerationOptions Greedy(int32_t tokens) {
  GenerationOptions generation{.max_new_tokens = tokens, .temperature = 0, .ignore_eos = true};
  generation.logprobs = 1;
  return generation;
}

// Of three ids only, so that what comes next has often stood before.
GenerationOptions FewIds(int32_t tokens) {
  GenerationOptions generation = Greedy(tokens);
  generation.logit_bias = {{20, 40.0F}, {21, 40.0F}, {22, 40.0F}};
  return generation;
}

// What a request gets alone, token by token, in an engine whose class is the policy's.
Outcome Alone(const LinearPolicy& policy, const std::vector<int32_t>& prompt, const GenerationOptions& generation) {
  EngineDriver driver(Hybrid(),
                      {.threads = 1, .linear = policy, .max_batch = 1, .prefill_chunk = 1, .prefix_cache = false});
  return driver.Run(prompt, generation);
}

// Prompts that repeat themselves, of many lengths; greedy and drawn.
std::vector<Work> MixedWork() {
  std::vector<Work> work;
  for (const size_t length : {1, 3, 17, 40, 66, 70, 131, 200}) {
    std::vector<int32_t> prompt = Prompt(std::max<size_t>(1, length / 2), length);
    prompt = Joined(prompt, prompt);
    prompt.resize(length);
    const auto tokens = static_cast<int32_t>(20 + length % 13);
    GenerationOptions generation = length % 3 == 0 ? Greedy(tokens) : FewIds(tokens);
    generation.temperature = length % 2 == 0 ? 0.0F : 0.8F;
    generation.seed = length;
    work.push_back({.prompt = std::move(prompt), .generation = generation});
  }
  return work;
}

struct Answers {
  LinearPolicy policy;
  std::vector<Outcome> alone;
};

// Of each policy, what MixedWork gets alone.
const std::vector<Answers>& AllAnswers() {
  static const std::vector<Answers> answers = [] {
    std::vector<Answers> made;
    for (const LinearPolicy& policy : kPolicies) {
      Answers& one = made.emplace_back(Answers{policy, {}});
      for (const Work& work : MixedWork()) one.alone.push_back(Alone(policy, work.prompt, work.generation));
    }
    return made;
  }();
  return answers;
}

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

DraftOptions NgramDraft(size_t num_draft_tokens) {
  return {.num_draft_tokens = num_draft_tokens, .min_draft_tokens = num_draft_tokens, .ngram_min = 1};
}

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

// --- Saved states ---

TEST(LinearEngine, SavedRequest_GoesOnWithTheSameBits_AndUnderNoOtherClass) {
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

TEST(LinearEngine, RequestsOfSeveralClasses_ShareStepsAndNoState) {
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

TEST(LinearEngine, NumericClass_IsTheRequests) {
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

TEST(LinearEngine, WrongClasses_AreRefusedByName) {
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

TEST(LinearEngine, States_AreWrittenWhereTokensPassBoundaries) {
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
TEST(LinearEngine, Steps_AllocateNothing) {
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
  EXPECT_GT(preempted, 0U);
  EXPECT_GT(accepted, 0U);
  EXPECT_GT(cancelled, 0U);
}

}  // namespace
}  // namespace tidemill::linear_engine_test
