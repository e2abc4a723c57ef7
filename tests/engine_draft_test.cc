// Guesses change how many steps an answer takes and nothing else: ids, text and log-probabilities are those of plain decoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/tiny_model.h"

namespace tidemill {
namespace {

using testing::BuildCountingModel;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::kSmallContext;
using testing::LoadModel;
using testing::MakeWork;
using testing::Outcome;
using testing::RunAlone;
using testing::SmallContextModel;
using testing::Work;

// Knows the answer and says each token of it with a probability, else any other.
class ScriptedDrafter : public Drafter {
 public:
  ScriptedDrafter(std::vector<int32_t> truth, double right, uint64_t seed)
      : truth_(std::move(truth)), right_(right), random_(seed) {}

  void Append(int32_t) override { ++length_; }
  std::span<const int32_t> Propose(size_t most) override {
    proposed_.clear();
    for (size_t i = 0; i < most; ++i) {
      const bool known = length_ + i < truth_.size();
      const bool right = known && std::uniform_real_distribution<double>()(random_) < right_;
      proposed_.push_back(right ? truth_[length_ + i] : static_cast<int32_t>(3 + random_() % 290));
    }
    return proposed_;
  }

 private:
  std::vector<int32_t> truth_, proposed_;
  double right_;
  size_t length_ = 0;
  std::mt19937_64 random_;
};

// Requests are known by their prompt and seed.
struct Script {
  std::map<std::pair<std::vector<int32_t>, uint64_t>, std::vector<int32_t>> answers;
  double right = 1;

  Script(const std::vector<Work>& work, const std::vector<Outcome>& alone) {
    for (size_t i = 0; i < work.size(); ++i) {
      std::vector<int32_t> all = work[i].prompt;
      all.insert(all.end(), alone[i].ids.begin(), alone[i].ids.end());
      answers[{work[i].prompt, work[i].generation.seed}] = std::move(all);
    }
  }
  void Install(EngineDriver& driver, uint64_t seed) const {
    driver.engine().impl().make_drafter = [this, seed](const Request& request) {
      return std::make_unique<ScriptedDrafter>(answers.at({request.prompt, request.generation.seed}), right, seed);
    };
  }
};

RequestId SubmitWithDraft(EngineDriver& driver, const Work& work, size_t most) {
  auto id = driver.engine().Submit({.prompt = work.prompt, .generation = work.generation, .draft = {.most = most}});
  EXPECT_TRUE(id.ok());
  return *id;
}

class EngineDraft : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, EngineDraft, ::testing::Values(DType::kF32, DType::kQ8_0),
                         [](const auto& test) { return std::string(InfoOf(test.param).name); });

TEST_P(EngineDraft, EveryRequest_GetsWhatItGetsWithout) {
  const auto model = SmallContextModel(GetParam());
  const auto work = MakeWork(18, 21);
  const auto alone = RunAlone(model, work);
  Script script(work, alone);
  size_t drafted = 0, accepted = 0, preemptions = 0, wholly = 0, partly = 0, wrong = 0;
  constexpr KvPolicy kPolicies[] = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc,
                                    KvPolicy::kGeometric, KvPolicy::kReserve, KvPolicy::kPaged};
  constexpr size_t kMost[] = {1, 3, 8, 64};
  constexpr double kRight[] = {0.0, 0.5, 0.9, 1.0};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const KvPolicy policy = kPolicies[seed % 6];
    const size_t most = kMost[seed / 3 % 4];
    script.right = kRight[seed / 2 % 4];
    std::mt19937_64 random(seed);
    const auto one_of = [&random](std::vector<size_t> values) { return values[random() % values.size()]; };
    EngineOptions options{.threads = one_of({1, 2}),
                          .kv_policy = policy,
                          .kv_period = one_of({1, 5, 16}),
                          .max_batch = one_of({1, 5, 32}),
                          .prefill_chunk = one_of({1, 7, 64, 512})};
    EngineDriver roomy(model, options);
    if (random() % 2 == 0) options.state_memory = 2 * roomy.engine().impl().NewState(0)->GrowthBytes(kSmallContext);
    EngineDriver driver(model, options);
    script.Install(driver, seed);
    std::vector<RequestId> ids;
    for (const Work& w : work) ids.push_back(SubmitWithDraft(driver, w, most));
    driver.RunUntilIdle();
    for (size_t i = 0; i < work.size(); ++i) {
      const Outcome& found = driver.outcome(ids[i]);
      ExpectSame(found, alone[i],
                 "request " + std::to_string(i) + ", " + std::string(KvPolicyName(policy)) + ", most " +
                     std::to_string(most) + ", right " + std::to_string(script.right) + ", seed " +
                     std::to_string(seed));
      EXPECT_LE(found.stats.accepted_tokens, found.stats.drafted_tokens);
      drafted += found.stats.drafted_tokens;
      accepted += found.stats.accepted_tokens;
      preemptions += found.stats.preemptions;
      if (found.stats.drafted_tokens == 0) continue;
      ++(found.stats.accepted_tokens == found.stats.drafted_tokens ? wholly
         : found.stats.accepted_tokens == 0                        ? wrong
                                                                   : partly);
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(accepted, 200U);
  EXPECT_GT(drafted - accepted, 200U);
  EXPECT_GT(preemptions, 4U);
  for (const size_t count : {wholly, partly, wrong}) EXPECT_GT(count, 20U);
}

// BMC's rule: free rows bound the guesses, and a state grows for them only where it must grow for the token anyway.
TEST(EngineDraft, FreeRows_BoundTheGuesses) {
  const auto model = LoadModel("engine_draft", BuildCountingModel({.vocab = 400, .context = 64, .eos_token = 399}));
  EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kBmc, .kv_period = 16});
  const std::vector<Work> work = {{{20}, {.max_new_tokens = 40}}};
  const Script script(work, RunAlone(model, work));
  script.Install(driver, 1);
  const RequestId id = SubmitWithDraft(driver, work[0], 6);
  std::vector<size_t> made;
  while (!driver.engine().idle()) made.push_back(driver.Step());
  // Rows of a step: a token and six guesses; at row 14 two are left, and at 16 the block grows.
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
  const auto id =
      driver.engine().Submit({.prompt = prompt, .generation = {.max_new_tokens = 20}, .draft = {.most = 8}});
  ASSERT_TRUE(id.ok());
  size_t steps = 0;
  for (; !driver.engine().idle(); ++steps) driver.Step();
  std::vector<int32_t> expected(20);
  std::iota(expected.begin(), expected.end(), 104);
  EXPECT_EQ(driver.outcome(*id).ids, expected);
  EXPECT_EQ(steps, 4U);  // the prompt and its token, 9, 9, 1
  EXPECT_EQ(driver.outcome(*id).stats.accepted_tokens, 16U);
}

TEST(EngineDraft, WrongOptions_AreRefused) {
  EngineDriver driver(SmallContextModel(DType::kF32), {.threads = 1});
  for (const DraftOptions draft : {DraftOptions{.most = 65}, DraftOptions{.most = 1, .ngram_min = 0}}) {
    const auto id = driver.engine().Submit({.prompt = {5}, .generation = {}, .draft = draft});
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().code(), ErrorCode::kInvalidArgument);
  }
}

// A step that another thread's Cancel interrupts has chosen nothing.
TEST(EngineDraft, InterruptedSteps_AreMadeAgain) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const auto work = MakeWork(18, 31);
  const auto alone = RunAlone(model, work);
  const Script script(work, alone);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    EngineDriver driver(model, {.threads = 2, .max_batch = 18, .prefill_chunk = 64});
    script.Install(driver, seed);
    std::vector<RequestId> ids;
    for (const Work& w : work) ids.push_back(SubmitWithDraft(driver, w, 4));
    std::atomic<bool> stop{false};
    std::thread canceller([&] {
      std::mt19937_64 random(seed);
      for (size_t i = 0; i < 9 && !stop.load(); ++i) {
        driver.engine().Cancel(ids[2 * i]);
        for (uint64_t wait = random() % 200; wait != 0; --wait) std::this_thread::yield();
      }
    });
    driver.RunUntilIdle();
    stop = true;
    canceller.join();
    for (size_t i = 0; i < work.size(); ++i) {
      const Outcome& found = driver.outcome(ids[i]);
      const std::string where = "request " + std::to_string(i) + ", seed " + std::to_string(seed);
      if (found.finish != FinishReason::kCancelled) {
        ExpectSame(found, alone[i], where);
      } else {
        EXPECT_TRUE(i % 2 == 0) << where;
        EXPECT_TRUE(std::equal(found.ids.begin(), found.ids.end(), alone[i].ids.begin())) << where;
      }
    }
  }
}

}  // namespace
}  // namespace tidemill
