// Draft tokens by another model, or by the model's own first layers, change how many steps an answer takes and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <latch>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill::engine_model_draft_test {
namespace {

using testing::BuildCountingModel;
using testing::BuildTinyLlama;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::kSmallContext;
using testing::kTinyFirstByteToken;
using testing::LoadModel;
using testing::MakeWork;
using testing::Outcome;
using testing::RunUnbatched;
using testing::SmallContextModel;
using testing::Work;

constexpr int kVocab = 300;  // of SmallContextModel

std::shared_ptr<const Model> Draft(int vocab, int context, uint64_t seed) {
  return LoadModel("model_draft", BuildTinyLlama({.vocab = vocab,
                                                  .hidden = 32,
                                                  .layers = 1,
                                                  .heads = 2,
                                                  .kv_heads = 1,
                                                  .ffn = 64,
                                                  .context = context,
                                                  .dtype = DType::kQ8_0,
                                                  .seed = seed}));
}

// A drafter for every request of an engine.
struct Source {
  std::string name;
  std::shared_ptr<const Model> model;  // null: the first layer
};

std::vector<Source> Sources(const std::shared_ptr<const Model>& target) {
  return {{"the model itself", target},
          {"another model", Draft(kVocab, kSmallContext, 9)},
          {"a short context", Draft(kVocab, 40, 9)},
          {"more ids", Draft(kVocab + 40, kSmallContext, 9)},
          {"fewer ids", Draft(kVocab - 30, kSmallContext, 9)},
          {"the first layer", nullptr}};
}

DraftOptions OptionsOf(const Source& source, size_t num_draft_tokens, size_t min_draft_tokens) {
  return {.num_draft_tokens = num_draft_tokens,
          .min_draft_tokens = min_draft_tokens,
          .source = source.model == nullptr ? DraftSource::kLayers : DraftSource::kModel,
          .layers = source.model == nullptr ? size_t{1} : 0};
}

class ModelDraft : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, ModelDraft, ::testing::Values(DType::kF32, DType::kQ8_0),
                         [](const auto& test) { return std::string(InfoOf(test.param).name); });

// The same draft tokens, too, whatever the number of threads.
TEST_P(ModelDraft, Threads_ChangeNoDraftToken) {
  const auto model = SmallContextModel(GetParam());
  const auto work = MakeWork(12, 7);
  const auto alone = RunUnbatched(model, work);
  for (const Source& source : Sources(model)) {
    std::vector<std::pair<size_t, size_t>> counts;
    for (const size_t draft_threads : {3, 1, 2}) {
      EngineDriver driver(model, {.threads = 3, .draft_threads = draft_threads, .draft_model = source.model});
      std::vector<RequestId> ids;
      for (const Work& w : work)
        ids.push_back(
            driver.Submit({.prompt = w.prompt, .generation = w.generation, .draft = OptionsOf(source, 4, 4)}));
      driver.RunUntilIdle();
      counts.emplace_back();
      for (size_t i = 0; i < work.size(); ++i) {
        ExpectSame(driver.outcome(ids[i]), alone[i], source.name + ", request " + std::to_string(i));
        counts.back().first += driver.outcome(ids[i]).stats.drafted_tokens;
        counts.back().second += driver.outcome(ids[i]).stats.accepted_tokens;
      }
    }
    EXPECT_GT(counts[0].first, 0U) << source.name;
    EXPECT_EQ(counts[1], counts[0]) << source.name;
    EXPECT_EQ(counts[2], counts[0]) << source.name;
  }
}

TEST_P(ModelDraft, EveryRequest_GetsWhatItGetsWithout) {
  const auto model = SmallContextModel(GetParam());
  const auto work = MakeWork(18, 21);
  const auto alone = RunUnbatched(model, work);
  constexpr KvPolicy kPolicies[] = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc,
                                    KvPolicy::kGeometric, KvPolicy::kReserve, KvPolicy::kPaged};
  constexpr size_t kMax[] = {1, 3, 8, 64};
  size_t drafted = 0, accepted = 0, preemptions = 0, unknown = 0, full = 0;
  for (const Source& source : Sources(model)) {
    size_t accepted_here = 0;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      std::mt19937_64 random(seed);
      const auto one_of = [&random](std::vector<size_t> values) { return values[random() % values.size()]; };
      EngineOptions options{.threads = one_of({1, 2}),
                            .kv_policy = kPolicies[seed],
                            .kv_increment = one_of({1, 5, 16}),
                            .max_batch = one_of({5, 32}),
                            .prefill_chunk = one_of({1, 7, 64, 512}),
                            .draft_model = source.model};
      EngineDriver roomy(model, options);
      if (seed % 2 == 0)
        options.state_memory = roomy.engine().impl().NewState(0)->LedgerGrowth(kSmallContext, kSmallContext) * 3 / 2;
      EngineDriver driver(model, options);
      std::vector<RequestId> ids;
      for (const Work& w : work) {
        ids.push_back(
            driver.Submit({.prompt = w.prompt,
                           .generation = w.generation,
                           .draft = OptionsOf(source, kMax[seed % 4], seed < 3 ? kMax[seed % 4] : seed % 2)}));
      }
      driver.RunUntilIdle();
      for (size_t i = 0; i < work.size(); ++i) {
        const Outcome& found = driver.outcome(ids[i]);
        ExpectSame(found, alone[i], source.name + ", request " + std::to_string(i) + ", seed " + std::to_string(seed));
        EXPECT_LE(found.stats.accepted_tokens, found.stats.drafted_tokens);
        drafted += found.stats.drafted_tokens;
        accepted_here += found.stats.accepted_tokens;
        preemptions += found.stats.preemptions;
        unknown += found.stats.draft_trouble.find("does not know") != std::string_view::npos ? 1 : 0;
        full += found.stats.draft_trouble.find("context is full") != std::string_view::npos ? 1 : 0;
      }
      driver.engine().ClearPrefixCache();
      EXPECT_EQ(driver.engine().impl().memory->held(), 0U) << source.name;
      ASSERT_FALSE(HasFailure());
    }
    if (source.model == model) {
      EXPECT_GT(accepted_here, 50U);
    }
    accepted += accepted_here;
  }
  EXPECT_GT(drafted - accepted, 200U);
  for (const size_t count : {preemptions, unknown, full}) EXPECT_GT(count, 4U);
}

// The same model is always right where the answer is greedy, so that each step gives all its draft tokens and one more.
TEST(ModelDraft, SameModel_IsAlwaysRight) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const GenerationOptions generation{.max_new_tokens = 21, .ignore_eos = true};
  EngineDriver plain(model, {.threads = 1});
  const Outcome expected = plain.Run({7, 8, 9}, generation);
  EngineDriver driver(model, {.threads = 1, .draft_model = model});
  const RequestId id =
      driver.Submit({.prompt = {7, 8, 9},
                     .generation = generation,
                     .draft = {.num_draft_tokens = 4, .min_draft_tokens = 4, .source = DraftSource::kModel}});
  size_t steps = 0;
  for (; !driver.engine().idle(); ++steps) driver.Step();
  ExpectSame(driver.outcome(id), expected, "same model");
  EXPECT_EQ(steps, 5U);  // the prompt and its token, then five each
  EXPECT_EQ(driver.outcome(id).stats.drafted_tokens, 16U);
  EXPECT_EQ(driver.outcome(id).stats.accepted_tokens, 16U);
  EXPECT_EQ(driver.outcome(id).stats.draft_trouble, "");
  const DraftStats& drafts = driver.outcome(id).stats.drafts;
  EXPECT_EQ(drafts.steps_by_draft_tokens, (std::array<uint32_t, DraftStats::kStepCounts>{0, 0, 0, 0, 4}));
  EXPECT_EQ(drafts.drafted, (std::array<uint32_t, DraftStats::kPositions>{4, 4, 4, 4}));
  EXPECT_EQ(drafts.accepted, drafts.drafted);
  EXPECT_EQ(drafts.AcceptanceRate(3), 1.0);
  EXPECT_EQ(drafts.AcceptanceRate(4), 0.0);
}

TEST(ModelDraft, UnlikelyDraftTokens_AreNotMade) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const GenerationOptions generation{.max_new_tokens = 30, .ignore_eos = true};
  std::vector<size_t> drafted;
  for (const float probability : {0.0F, 0.5F, 1.0F}) {
    EngineDriver driver(model, {.threads = 1, .draft_model = model});
    const RequestId id = driver.Submit({.prompt = {7, 8, 9},
                                        .generation = generation,
                                        .draft = {.num_draft_tokens = 4,
                                                  .min_draft_tokens = 4,
                                                  .source = DraftSource::kModel,
                                                  .min_probability = probability}});
    driver.RunUntilIdle();
    EXPECT_EQ(driver.outcome(id).stats.accepted_tokens, driver.outcome(id).stats.drafted_tokens);
    drafted.push_back(driver.outcome(id).stats.drafted_tokens);
  }
  EXPECT_GT(drafted[0], drafted[1]);
  EXPECT_EQ(drafted[2], 0U);
}

// A drafter that finds nothing likely enough costs a step of its own each time that it is asked: it is asked now and then.
TEST(ModelDraft, NothingLikely_IsAskedForLessAndLess) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const GenerationOptions generation{.max_new_tokens = 90, .ignore_eos = true};
  for (const DraftTreeKind kind : {DraftTreeKind::kChain, DraftTreeKind::kDynamic}) {
    EngineDriver driver(model, {.threads = 1, .draft_model = Draft(kVocab, kSmallContext, 5)});
    Engine::Impl& impl = driver.engine().impl();
    impl.step_seconds = [](size_t rows) { return 1 + 0.1 * static_cast<double>(rows - 1); };
    const RequestId id = driver.Submit(
        {.prompt = {7, 8, 9},
         .generation = generation,
         .draft = {.num_draft_tokens = 4, .source = DraftSource::kModel, .min_probability = 1.0F, .tree = kind}});
    driver.RunUntilIdle();
    EXPECT_EQ(driver.outcome(id).stats.drafted_tokens, 0U);
    EXPECT_GE(impl.scheduler->draft_steps().num_steps(), 3U);
    EXPECT_LE(impl.scheduler->draft_steps().num_steps(), 25U) << "of 90 steps";
  }
}

// What is left of the draft model's context bounds what reading can bring, and a drafter that has stopped says why itself.
TEST(ModelDraft, DraftPrefillForAFewDraftTokens_IsLeftOut) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const auto trouble = [&model](int vocab, int context, std::vector<int32_t> prompt, int max_new,
                                size_t min_draft_tokens = 0) {
    EngineDriver driver(model, {.threads = 1, .draft_model = Draft(vocab, context, 9)});
    const RequestId id = driver.Submit(
        {.prompt = std::move(prompt),
         .generation = {.max_new_tokens = max_new, .ignore_eos = true},
         .draft = {.num_draft_tokens = 4, .min_draft_tokens = min_draft_tokens, .source = DraftSource::kModel}});
    driver.RunUntilIdle();
    return std::string(driver.outcome(id).stats.draft_trouble);
  };
  const std::vector<int32_t> prompt(38, 7), unknown = {7, kVocab - 1, 7, 7, 7, 7, 7, 7, 7, 7};
  const std::string reading = "the draft prefill takes longer";
  EXPECT_EQ(trouble(kVocab, kSmallContext, prompt, 50), "");
  EXPECT_EQ(trouble(kVocab, 40, prompt, 50).substr(0, reading.size()), reading);
  EXPECT_EQ(trouble(kVocab, 40, prompt, 50, 1), "the draft model's context is full");
  EXPECT_EQ(trouble(kVocab, 37, prompt, 50), "the draft model's context is full");
  EXPECT_EQ(trouble(kVocab, kSmallContext, prompt, 2).substr(0, reading.size()), reading);
  EXPECT_EQ(trouble(kVocab, kSmallContext, prompt, 1), "") << "no step could have a draft token";
  EXPECT_EQ(trouble(kVocab - 30, kSmallContext, unknown, 2), "the text has a token that the draft model does not know");
}

// Its state stays beside the cached prefix: nothing of it is read again, and only the rest is priced.
TEST(ModelDraft, DraftPrefillOfACachedPrefix_CostsNothing) {
  const auto model = SmallContextModel(DType::kQ8_0);
  EngineDriver driver(model, {.threads = 1, .draft_model = Draft(kVocab, kSmallContext, 9)});
  const DraftSteps& steps = driver.engine().impl().scheduler->draft_steps();
  const std::vector<int32_t> prompt(38, 7);
  const auto run = [&](int max_new, size_t min_draft_tokens) {
    const size_t before = steps.num_steps();
    const RequestId id = driver.Submit(
        {.prompt = prompt,
         .generation = {.max_new_tokens = max_new, .ignore_eos = true},
         .draft = {.num_draft_tokens = 2, .min_draft_tokens = min_draft_tokens, .source = DraftSource::kModel}});
    driver.RunUntilIdle();
    return std::pair(std::string(driver.outcome(id).stats.draft_trouble), steps.num_steps() - before);
  };
  EXPECT_NE(run(3, 0).first, "");
  EXPECT_EQ(run(3, 2).first, "");  // reads all of it
  const auto [trouble, taken] = run(3, 0);
  EXPECT_EQ(trouble, "");
  EXPECT_GT(taken, 0U);
  driver.engine().ClearPrefixCache();
  EXPECT_NE(run(3, 0).first, "");
}

TEST(ModelDraft, WithoutRoom_PlainDecodingGoesOn) {
  const auto model = SmallContextModel(DType::kF32);
  const GenerationOptions generation{.max_new_tokens = 40, .ignore_eos = true};
  EngineDriver plain(model, {.threads = 1});
  const Outcome expected = plain.Run({7, 8, 9}, generation);
  EngineDriver measured(model, {.threads = 1, .kv_increment = 16});
  const uint64_t little = measured.engine().impl().NewState(0)->LedgerGrowth(64, 64);
  EngineDriver driver(model, {.threads = 1, .kv_increment = 16, .state_memory = little, .draft_model = model});
  const RequestId id =
      driver.Submit({.prompt = {7, 8, 9},
                     .generation = generation,
                     .draft = {.num_draft_tokens = 4, .min_draft_tokens = 4, .source = DraftSource::kModel}});
  driver.RunUntilIdle();
  ExpectSame(driver.outcome(id), expected, "without room");
  EXPECT_EQ(driver.outcome(id).stats.draft_trouble, "there is no room for the draft model's state");
  EXPECT_GT(driver.outcome(id).stats.drafted_tokens, 0U);  // until both had taken all of it
  EXPECT_LT(driver.outcome(id).stats.drafted_tokens, 28U);
}

TEST(ModelDraft, WrongOptions_AreRefused) {
  const auto model = SmallContextModel(DType::kF32);  // two layers
  EngineDriver driver(model, {.threads = 1});
  for (const DraftOptions& draft : {DraftOptions{.num_draft_tokens = 1, .source = DraftSource::kModel},
                                    DraftOptions{.num_draft_tokens = 1, .source = DraftSource::kLayers},
                                    DraftOptions{.num_draft_tokens = 1, .source = DraftSource::kLayers, .layers = 2},
                                    DraftOptions{.num_draft_tokens = 1, .min_probability = 1.5F}}) {
    const auto id = driver.engine().Submit({.prompt = {5}, .generation = {}, .draft = draft});
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(id.error().message().starts_with("submit request: draft: expected ")) << id.error().message();
  }
}

// Swaps the spellings of two one-letter tokens, in a file's list of tokens.
void Swap(std::string& gguf, char a, char b) {
  const auto at = [&gguf](char letter) { return gguf.find(std::string("\1\0\0\0\0\0\0\0", 8) + letter) + 8; };
  std::swap(gguf[at(a)], gguf[at(b)]);
}

std::string CreateError(const std::shared_ptr<const Model>& model, const std::string& gguf) {
  EngineOptions options{.threads = 1, .draft_model = LoadModel("other_words", gguf)};
  const auto engine = Engine::Create(model, options);
  EXPECT_FALSE(engine.ok());
  if (engine.ok()) return "";
  EXPECT_EQ(engine.error().code(), ErrorCode::kInvalidArgument);
  return engine.error().message();
}

TEST(ModelDraft, AnotherVocabulary_IsRefusedWithWhatDiffers) {
  const auto model = SmallContextModel(DType::kF32);
  const std::string same = BuildTinyLlama({.vocab = kVocab, .layers = 1, .context = 32, .chat_template = ""});
  std::string two = same;
  Swap(two, 'a', 'c');
  const std::string a = std::to_string(kTinyFirstByteToken + 'a'), c = std::to_string(kTinyFirstByteToken + 'c');
  EXPECT_NE(CreateError(model, two)
                .find("other_words.gguf: expected the model's vocabulary, found 2 of 300 ids that "
                      "differ: " +
                      a + " is \"a\", here \"c\", " + c + " is \"c\", here \"a\"; choose"),
            std::string::npos)
      << CreateError(model, two);
  std::string many = same;
  for (const char* pair : {"ab", "cd", "ef"}) Swap(many, pair[0], pair[1]);
  const std::string error = CreateError(model, many);
  EXPECT_NE(error.find("found 6 of 300 ids"), std::string::npos) << error;
  EXPECT_NE(error.find("\"e\", here \"f\", ...; choose"), std::string::npos) << error;

  // A token that is special in one only: the type of id 3 + 'z' becomes 3, control.
  std::string special = same;
  const std::string key = "tokenizer.ggml.token_type";
  const size_t types = special.find(key) + key.size() + 4 + 4 + 8;
  special[types + 4 * static_cast<size_t>(kTinyFirstByteToken + 'z')] = 3;
  EXPECT_NE(CreateError(model, special).find(" is \"z\", here special \"z\""), std::string::npos)
      << CreateError(model, special);
}

TEST(ModelDraft, Cancelled_EndsLikeAnyOther) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const auto work = MakeWork(18, 31);
  const auto alone = RunUnbatched(model, work);
  for (const Source& source : Sources(model)) {
    size_t cancelled = 0;
    EngineDriver driver(model, {.threads = 2, .max_batch = 18, .prefill_chunk = 64, .draft_model = source.model});
    std::vector<RequestId> ids;
    for (const Work& w : work) {
      ids.push_back(driver.Submit({.prompt = w.prompt, .generation = w.generation, .draft = OptionsOf(source, 4, 2)}));
    }
    std::atomic<bool> stop{false};
    std::latch begun(1);
    std::thread canceller([&] {
      std::mt19937_64 random(3);
      for (size_t i = 0; i < 9 && !stop.load(); ++i) {
        driver.engine().Cancel(ids[2 * i]);
        if (i == 0) begun.count_down();  // so that one is cancelled for certain
        for (uint64_t wait = random() % 400; wait != 0; --wait) std::this_thread::yield();
      }
    });
    begun.wait();
    driver.RunUntilIdle();
    stop = true;
    canceller.join();
    for (size_t i = 0; i < work.size(); ++i) {
      const Outcome& found = driver.outcome(ids[i]);
      const std::string where = source.name + ", request " + std::to_string(i);
      if (found.finish != FinishReason::kCancelled) {
        ExpectSame(found, alone[i], where);
      } else {
        ++cancelled;
        EXPECT_TRUE(std::equal(found.ids.begin(), found.ids.end(), alone[i].ids.begin())) << where;
      }
    }
    EXPECT_GT(cancelled, 0U) << source.name;
  }
}

TEST(ModelDraft, SavedRequests_GoOnWithAndWithout) {
  const auto model = testing::ResumedModel();
  const GenerationOptions generation{.max_new_tokens = 40, .temperature = 0.8F, .ignore_eos = true, .logprobs = 2};
  EngineDriver plain(model, {.threads = 1});
  const Outcome whole = plain.Run(testing::ResumedPrompt(), generation);
  const DraftOptions draft{.num_draft_tokens = 5, .min_draft_tokens = 1, .source = DraftSource::kModel};
  GenerationOptions part = generation;
  part.max_new_tokens = 17;
  EngineDriver driver(model, {.threads = 1, .draft_model = model});
  const RequestId id =
      driver.Submit({.prompt = testing::ResumedPrompt(), .generation = part, .draft = draft, .keep_state = true});
  driver.RunUntilIdle();
  const DraftOptions by_layers{
      .num_draft_tokens = 5, .min_draft_tokens = 5, .source = DraftSource::kLayers, .layers = 1};
  for (const DraftOptions& then : {draft, by_layers, DraftOptions{}}) {
    EngineDriver other(model, {.threads = 1, .draft_model = model});
    const Outcome rest = testing::ResumeSaved(other, driver.outcome(id), {.generation = generation, .draft = then});
    testing::ExpectJoined(driver.outcome(id), rest, whole, "most " + std::to_string(then.num_draft_tokens));
    EXPECT_EQ(rest.stats.drafted_tokens != 0, then.num_draft_tokens != 0) << static_cast<int>(then.source);
  }
}

TEST(ModelDraft, Steps_AllocateOnlyWhereAStateGrows) {
  const auto model =
      LoadModel("draft_allocation", BuildCountingModel({.vocab = 1000, .context = 700, .eos_token = 999}));
  EngineDriver driver(model, {.threads = 1, .kv_increment = 256, .draft_model = model});
  driver.Submit({.prompt = {5},
                 .generation = {},
                 .draft = {.num_draft_tokens = 4, .min_draft_tokens = 4, .source = DraftSource::kModel}});
  size_t steps = 0, growths = 0;
  for (; !driver.engine().idle(); ++steps) {
    const size_t before = testing::NumAllocations();
    const size_t events = driver.engine().Step().size();
    ASSERT_GE(events, 1U);
    if (testing::NumAllocations() != before) ++growths;
  }
  EXPECT_GE(steps, 100U);
  EXPECT_LE(growths, 7U);  // both states grow at the beginning, at 256 and at 512; the last step ends the request
}

}  // namespace
}  // namespace tidemill::engine_model_draft_test
