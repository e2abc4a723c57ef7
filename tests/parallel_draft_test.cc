// All draft tokens for once by a draft model with a mask token (PARD): its forward and its draft tokens against plain torch
// (tests/fixtures/pard/README.md), whatever the drafter's state went through; in the engine answers stay as they are without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/testing/levels.h"
#include "formats/safetensors.h"
#include "kernels/testing/compare.h"
#include "runtime/engine_impl.h"
#include "runtime/model_drafter.h"
#include "tests/fixtures_path.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/model_folder.h"
#include "tests/support/model_runner.h"
#include "tests/support/random_requests.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::parallel_draft_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::MakeWork;
using testing::ModelFolder;
using testing::ModelRunner;
using testing::Outcome;
using testing::RunnerOptions;
using testing::RunUnbatched;
using testing::SmallContextModel;
using testing::Work;

constexpr double kTolerance = 1e-4;  // of the families' goldens
constexpr int32_t kMask = 299;
constexpr int kVocab = 300;  // of SmallContextModel, too

std::string Fixture(const std::string& name) { return std::string(TIDEMILL_FIXTURES) + "/pard" + name; }

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_FALSE(bytes.empty()) << path << " is missing";
  return bytes;
}

struct Golden {
  struct Case {
    std::vector<int32_t> text, draft_tokens;
    std::vector<float> logits;  // [draft tokens, vocab]
  };
  size_t draft_tokens = 0;
  std::vector<Case> cases;  // each text is the beginning of the next
};

Golden ReadGolden() {
  const auto json = nlohmann::json::parse(ReadFile(Fixture("/golden.json")));
  auto file = MappedFile::Open(Fixture("/golden.safetensors"));
  EXPECT_TRUE(file.ok());
  auto tensors = SafetensorsFile::Parse(file->bytes());
  EXPECT_TRUE(tensors.ok());
  const FileTensor* logits = tensors->FindTensor("logits");
  EXPECT_NE(logits, nullptr);
  Golden golden{.draft_tokens = json.at("draft_tokens"), .cases = {}};
  const std::vector<int32_t> text = json.at("text");
  const size_t floats = golden.draft_tokens * kVocab;
  for (const auto& entry : json.at("cases")) {
    Golden::Case one;
    one.text.assign(text.begin(), text.begin() + entry.at("length").get<ptrdiff_t>());
    one.draft_tokens = entry.at("draft_tokens").get<std::vector<int32_t>>();
    one.logits.resize(floats);
    EXPECT_EQ(one.draft_tokens.size(), golden.draft_tokens);
    std::memcpy(one.logits.data(), logits->bytes.data() + golden.cases.size() * floats * sizeof(float),
                floats * sizeof(float));
    golden.cases.push_back(std::move(one));
  }
  EXPECT_EQ(logits->rows, golden.cases.size() * golden.draft_tokens);
  return golden;
}

std::vector<int32_t> First(const std::vector<int32_t>& ids, size_t count) {
  return {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(std::min(count, ids.size()))};
}

std::vector<int32_t> IdsOf(const DraftTree& draft) { return {draft.ids.begin(), draft.ids.end()}; }

// A drafter of the fixture's model, alone.
struct Drafting {
  ModelRunner runner;
  StateMemory memory{uint64_t{1} << 30};
  std::unique_ptr<ModelDrafter> drafter;
  size_t appended = 0;

  explicit Drafting(RunnerOptions options, const DraftChoice::Options& draft_tokens = {})
      : runner(Fixture(""), F32(options)) {
    ModelDrafter::Options made{.choice = draft_tokens};
    made.model = &runner.model();
    made.executor = &runner.executor();
    made.choice.isa = DetectIsa();
    if (made.choice.num_draft_tokens == 0) made.choice.num_draft_tokens = 6;
    if (made.choice.vocab_size == 0) made.choice.vocab_size = kVocab;
    made.memory = &memory;
    made.mask_token = made.choice.never = runner.model().settings.pard_token;
    drafter = std::make_unique<ModelDrafter>(made, runner.NewState());
  }

  static RunnerOptions F32(RunnerOptions options) {
    options.f32 = true;
    return options;
  }

  // The rest of a text that begins with what was appended before.
  void Follow(const std::vector<int32_t>& text) {
    for (; appended < text.size(); ++appended) drafter->Append(text[appended]);
  }
};

TEST(ParallelDraft, MaskedForward_MatchesTorchOnEveryLevel) {
  const Golden golden = ReadGolden();
  for (const Isa isa : testing::LevelsHere()) {
    for (const size_t chunk : {512, 5}) {
      SCOPED_TRACE(std::string(IsaName(isa)) + ", chunk " + std::to_string(chunk));
      ModelRunner runner(Fixture(""), {.isa = isa, .threads = 2, .f32 = true, .context = 96});
      ASSERT_EQ(runner.model().settings.pard_token, kMask);
      for (const Golden::Case& one : golden.cases) {
        std::vector<int32_t> ids = one.text;
        ids.insert(ids.end(), golden.draft_tokens - 1, kMask);
        const auto state = runner.NewState();
        const std::vector<float> logits = runner.Feed(*state, ids, chunk);
        EXPECT_TRUE(
            testing::Within(one.logits, std::span(logits).last(one.logits.size()), [](size_t) { return kTolerance; }))
            << one.text.size() << " ids";
      }
    }
  }
}

// Rows that are not asked for are no part of the head's work, and change nothing in the others.
TEST(ParallelDraft, LastRows_AreThoseOfAll) {
  const Golden golden = ReadGolden();
  ModelRunner runner(Fixture(""), {.f32 = true, .context = 96});
  std::vector<int32_t> ids = golden.cases.back().text;
  ids.insert(ids.end(), 5, kMask);
  const auto whole = runner.NewState();
  const std::vector<float> all = runner.Feed(*whole, ids, ids.size());
  for (const size_t last : {size_t{1}, size_t{6}, ids.size(), ids.size() + 9}) {
    const auto state = runner.NewState();
    ASSERT_TRUE(state->Reserve(ids.size()).ok());
    const StepSequence step{.state = state.get(), .tokens = ids, .rows = Wanted::kLast, .num_last = last};
    std::vector<float> found;
    runner.executor().Run(
        {&step, 1},
        [&](size_t, size_t token, std::span<float> row) {
          EXPECT_GE(token + last, ids.size());
          found.insert(found.end(), row.begin(), row.end());
        },
        nullptr);
    ASSERT_EQ(found.size(), std::min(last, ids.size()) * kVocab);
    EXPECT_TRUE(std::equal(found.rbegin(), found.rend(), all.rbegin())) << last;
  }
}

// Through texts that took up some of the draft tokens and went on otherwise, with lengths left out, states given back, and steps of few rows.
TEST(ParallelDraft, AnyHistory_GivesTheDraftTokensOfTheTextAlone) {
  const Golden golden = ReadGolden();
  const KvGrowth growths[] = {{.policy = KvPolicy::kIterative},
                              {.policy = KvPolicy::kBmc, .increment = 16},
                              {.policy = KvPolicy::kPaged, .increment = 16}};
  for (const KvGrowth& growth : growths) {
    for (const size_t rows : {512, 8, 4, 1}) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        Drafting drafting({.growth = growth, .context = 96, .max_rows = rows});
        std::mt19937_64 random(seed);
        for (const Golden::Case& one : golden.cases) {
          if (seed != 0 && random() % 3 == 0) continue;
          drafting.Follow(one.text);
          if (seed != 0 && random() % 4 == 0) drafting.drafter->Release();
          const size_t num_draft_tokens = seed == 0 ? golden.draft_tokens : 1 + random() % golden.draft_tokens;
          for (int time = 0; time < (seed == 2 ? 2 : 1); ++time) {
            EXPECT_EQ(IdsOf(drafting.drafter->Propose(num_draft_tokens)),
                      First(one.draft_tokens, std::min(num_draft_tokens, rows)))
                << one.text.size() << " ids, rows " << rows << ", seed " << seed;
          }
          EXPECT_EQ(drafting.drafter->trouble(), "");
          EXPECT_GT(drafting.drafter->state_bytes(), 0U);
        }
        drafting.drafter->Release();
        EXPECT_EQ(drafting.drafter->state_bytes(), 0U);
      }
    }
  }
}

TEST(ParallelDraft, EndOfContext_LeavesRoomForFewerMasks) {
  const Golden golden = ReadGolden();
  const Golden::Case& one = golden.cases.back();
  for (size_t room = 0; room < 8; ++room) {
    Drafting drafting({.context = one.text.size() + room});
    drafting.Follow(one.text);
    EXPECT_EQ(IdsOf(drafting.drafter->Propose(6)), First(one.draft_tokens, room + 1));
    for (size_t i = 0; i < room; ++i) drafting.drafter->Append(5);
    EXPECT_EQ(drafting.drafter->Propose(6).ids.size(), 1U);
    drafting.drafter->Append(5);
    EXPECT_TRUE(drafting.drafter->Propose(6).ids.empty());
    EXPECT_EQ(drafting.drafter->trouble(), "the draft model's context is full");
  }
}

// As of a checkpoint whose mask is one of the ids that its tokenizer has no text for.
TEST(ParallelDraft, MaskBehindTheVocabulary_IsRunAndNoSuchIdIsDrafted) {
  const Golden golden = ReadGolden();
  constexpr size_t kKnown = 200;
  Drafting drafting({.context = 96}, {.vocab_size = kKnown});
  for (const Golden::Case& one : golden.cases) {
    std::vector<int32_t> best;
    for (size_t i = 0; i < golden.draft_tokens; ++i) {
      const auto row = std::span(one.logits).subspan(i * kVocab, kKnown);
      best.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    drafting.Follow(one.text);
    EXPECT_EQ(IdsOf(drafting.drafter->Propose(6)), best) << one.text.size() << " ids";
  }
}

TEST(ParallelDraft, UnlikelyDraftTokens_EndThem) {
  const Golden golden = ReadGolden();
  size_t cut = 0, whole = 0;
  for (const float probability : {0.1F, 0.3F, 0.6F}) {
    Drafting drafting({.context = 96}, {.min_probability = probability});
    for (const Golden::Case& one : golden.cases) {
      size_t likely = 0;
      bool close = false;
      for (; likely < golden.draft_tokens; ++likely) {
        const float* row = one.logits.data() + likely * kVocab;
        double sum = 0;
        for (int id = 0; id < kVocab; ++id)
          sum += id == kMask ? 0 : std::exp(static_cast<double>(row[id]) - row[one.draft_tokens[likely]]);
        close = close || std::abs(1 / sum - probability) < 1e-3;
        if (1 / sum < probability) break;
      }
      drafting.Follow(one.text);
      const std::vector<int32_t> found = IdsOf(drafting.drafter->Propose(6));
      if (!close) {
        EXPECT_EQ(found, First(one.draft_tokens, likely)) << one.text.size() << " ids, least " << probability;
      }
      cut += likely < golden.draft_tokens ? 1 : 0;
      whole += likely;
    }
  }
  EXPECT_GT(cut, 12U);
  EXPECT_GT(whole, 6U);
}

TEST(ParallelDraft, DraftTokens_AllocateOnlyWhereTheStateGrows) {
  const Golden golden = ReadGolden();
  Drafting drafting({.growth = {.policy = KvPolicy::kUpfront, .expected = 96}, .context = 96});
  size_t allocating = 0;
  for (const Golden::Case& one : golden.cases) {
    drafting.Follow(one.text);
    const size_t before = testing::NumAllocations();
    const size_t draft_tokens = drafting.drafter->Propose(6).ids.size();
    if (testing::NumAllocations() != before) ++allocating;
    EXPECT_EQ(draft_tokens, 6U);
  }
  EXPECT_EQ(allocating, 1U);
}

// ---- in the engine ----

// The fixture as a model with the vocabulary of SmallContextModel; without `parallel` as one that nobody trained for it.
std::shared_ptr<const Model> PardModel(bool parallel) {
  auto config = nlohmann::json::parse(ReadFile(Fixture("/config.json")));
  if (!parallel) {
    config.erase("pard_token");
    config.erase("spd_type");
  }
  ModelFolder folder;
  folder.Write("config.json", config.dump())
      .Write("model.safetensors", ReadFile(Fixture("/model.safetensors")))
      .Write("tokenizer.json", testing::TinyTokenizerJson(kVocab));
  LoadOptions options;
  options.threads = 1;
  auto model = Model::Load(folder.path(), options);
  EXPECT_TRUE(model.ok()) << model.error().message();
  return std::move(model).value();
}

TEST(ParallelDraft, EveryRequest_GetsWhatItGetsWithout) {
  const auto draft = PardModel(true);
  const auto work = MakeWork(18, 21);
  constexpr KvPolicy kPolicies[] = {KvPolicy::kBmc, KvPolicy::kIterative, KvPolicy::kReserve, KvPolicy::kPaged};
  constexpr size_t kMax[] = {8, 1, 3, 64};
  // A tree has no masks: the model is asked level by level.
  constexpr DraftTreeKind kTrees[] = {DraftTreeKind::kFixed, DraftTreeKind::kDynamic, DraftTreeKind::kOptimal};
  constexpr uint64_t kChains = 6;
  size_t drafted = 0, accepted = 0, preemptions = 0, siblings = 0;
  for (const auto& model : {SmallContextModel(DType::kF32), draft}) {
    const auto alone = RunUnbatched(model, work);
    for (uint64_t seed = 0; seed < kChains + std::size(kTrees); ++seed) {
      EngineOptions options{.threads = 1 + seed % 2,
                            .kv_policy = kPolicies[seed % 4],
                            .kv_increment = 5 + seed,
                            .max_batch = seed % 2 == 0 ? size_t{5} : size_t{32},
                            .prefill_chunk = seed % 3 == 0 ? size_t{7} : size_t{64},
                            .draft_model = draft};
      EngineDriver roomy(model, options);
      const size_t context = testing::kSmallContext;
      if (seed % 2 == 0)
        options.state_memory = roomy.engine().impl().NewState(0)->LedgerGrowth(context, context) * 3 / 2;
      EngineDriver driver(model, options);
      std::vector<RequestId> ids;
      for (const Work& w : work) {
        const size_t num_draft_tokens = seed < kChains ? kMax[seed % 4] : 25;
        ids.push_back(
            driver.Submit({.prompt = w.prompt,
                           .generation = w.generation,
                           .draft = {.num_draft_tokens = num_draft_tokens,
                                     .min_draft_tokens = seed < 4 || seed >= kChains ? num_draft_tokens : seed % 2,
                                     .source = DraftSource::kModel,
                                     .tree = seed < kChains ? DraftTreeKind::kChain : kTrees[seed - kChains]}}));
      }
      driver.RunUntilIdle();
      for (size_t i = 0; i < work.size(); ++i) {
        const Outcome& found = driver.outcome(ids[i]);
        ExpectSame(found, alone[i], "request " + std::to_string(i) + ", seed " + std::to_string(seed));
        drafted += found.stats.drafted_tokens;
        accepted += found.stats.accepted_tokens;
        preemptions += found.stats.preemptions;
        siblings += found.stats.drafts.later_siblings;
      }
      driver.engine().ClearPrefixCache();
      EXPECT_EQ(driver.engine().impl().memory->held(), 0U);
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_GT(accepted, 20U);
  EXPECT_GT(drafted - accepted, 500U);
  EXPECT_GT(preemptions, 4U);
  EXPECT_GT(siblings, 0U);
}

// The model as its own drafter: its next token is right each time. Behind it come masks, which this model was not trained for, or,
// without the key, its own draft tokens, all of them right.
TEST(ParallelDraft, OnlyTheKey_MakesDraftTokensAtOnce) {
  for (const bool parallel : {true, false}) {
    const auto model = PardModel(parallel);
    EngineDriver driver(model, {.threads = 1, .draft_model = model});
    GenerationOptions generation{.max_new_tokens = 60, .ignore_eos = true};
    if (parallel) generation.logit_bias = {{kMask, -100.0F}};  // nor does the drafter say it then
    const RequestId id =
        driver.Submit({.prompt = {7, 8, 9},
                       .generation = generation,
                       .draft = {.num_draft_tokens = 4, .min_draft_tokens = 4, .source = DraftSource::kModel}});
    driver.RunUntilIdle();
    const DraftStats& drafts = driver.outcome(id).stats.drafts;
    EXPECT_EQ(drafts.accepted[0], drafts.drafted[0]);
    EXPECT_GE(drafts.drafted[0], 11U);
    if (parallel) {
      EXPECT_LT(drafts.accepted[1], drafts.drafted[1] / 2);
    } else {
      EXPECT_EQ(driver.outcome(id).stats.accepted_tokens, driver.outcome(id).stats.drafted_tokens);
    }
  }
}

}  // namespace
}  // namespace tidemill::parallel_draft_test
