// How many draft tokens an engine's requests check: what the plan predicts at first, then what they learn.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "planner/machine_profile.h"
#include "runtime/engine_impl.h"
#include "tests/support/engine_driver.h"
#include "tests/support/model_runner.h"
#include "tests/support/sloped_profile.h"
#include "tests/support/tiny_model.h"
#include "tidemill/plan.h"

namespace tidemill::engine_num_draft_tokens_test {
namespace {

using testing::BuildCountingModel;
using testing::EngineDriver;
using testing::LoadModel;
using testing::SlopedProfile;
using testing::WriteTemporary;

// Draft tokens that the ids go on counting, which is right of a counting model, but for those in [begin, end) of the sequence: as a lookup
// does in a text that quotes, goes its own way in words that it had before, and quotes again.
class QuotingDrafter : public Drafter {
 public:
  QuotingDrafter(size_t begin, size_t end) : begin_(begin), end_(end) {}

  void Append(int32_t id) override {
    last_ = id;
    ++length_;
  }
  DraftTree Propose(size_t num_draft_tokens) override {
    ids_.clear();
    for (size_t at = length_; at < length_ + num_draft_tokens; ++at) {
      const bool is_own = at >= begin_ && at < end_;
      ids_.push_back(is_own ? 7 : last_ + 1 + static_cast<int32_t>(at - length_));
    }
    return {.ids = ids_};
  }

 private:
  size_t begin_, end_, length_ = 0;
  int32_t last_ = 0;
  std::vector<int32_t> ids_;
};

// Steps of an answer, by the tokens that there were before them.
struct Steps {
  std::vector<std::pair<size_t, size_t>> draft_tokens;

  // Of those in [begin, end): how many have draft tokens in [least, most].
  size_t Count(size_t begin, size_t end, size_t min_draft_tokens, size_t num_draft_tokens) const {
    return static_cast<size_t>(std::count_if(draft_tokens.begin(), draft_tokens.end(), [&](const auto& step) {
      return step.first >= begin && step.first < end && step.second >= min_draft_tokens &&
             step.second <= num_draft_tokens;
    }));
  }
  std::string Text() const {
    std::string text;
    for (const auto& [at, count] : draft_tokens) text += std::to_string(at) + ":" + std::to_string(count) + " ";
    return text;
  }
};

Steps RunToEnd(EngineDriver& driver, const Request& request) {
  Steps steps;
  const RequestId id = driver.Submit(request);
  Engine::Impl& impl = driver.engine().impl();
  while (!driver.engine().idle()) {
    const size_t before = impl.requests[0]->tokens().size();
    driver.Step();
    const size_t rows = impl.scheduler->step()[0].tokens.size();
    if (before != request.prompt.size()) steps.draft_tokens.emplace_back(before, rows - 1);
  }
  EXPECT_TRUE(driver.outcome(id).finish.has_value());
  return steps;
}

// A step's seconds are the test's: a tenth of a plain step for each row more. Counts are those of one CPU and level or another alike.
TEST(EngineNumDraftTokens, QuoteOwnWordsQuote_FallsToZeroAndReturns) {
  constexpr size_t kBegin = 150, kEnd = 400, kAll = 700;  // of the sequence; what is before and behind is quoted
  const auto model =
      LoadModel("num_draft_tokens", BuildCountingModel({.vocab = 1000, .context = 800, .eos_token = 999}));
  EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kUpfront});
  Engine::Impl& impl = driver.engine().impl();
  impl.make_drafter = [&](const Request&, size_t, SequenceState&) {
    return std::make_unique<QuotingDrafter>(kBegin, kEnd);
  };
  impl.step_seconds = [](size_t rows) { return 1 + 0.1 * static_cast<double>(rows - 1); };
  const Steps steps = RunToEnd(
      driver,
      {.prompt = {20}, .generation = {.max_new_tokens = static_cast<int32_t>(kAll)}, .draft = {.num_draft_tokens = 8}});
  SCOPED_TRACE(steps.Text());
  // The first quote: wide, but for a plain step that is timed.
  EXPECT_GE(steps.Count(60, kBegin, 6, 8), 9U);
  EXPECT_LE(steps.Count(60, kBegin, 0, 5), 2U);
  // Own words: a step for each, from the 40th on without draft tokens but for a try now and then.
  const size_t own = steps.Count(kBegin + 40, kEnd - 10, 0, 8), tries = steps.Count(kBegin + 40, kEnd - 10, 1, 8);
  EXPECT_GE(own, kEnd - kBegin - 60);
  EXPECT_GE(tries, 2U);
  EXPECT_LE(6 * tries, own);
  EXPECT_EQ(steps.Count(kBegin + 40, kEnd - 10, 3, 8), 0U) << "tries are narrow";
  // The second quote: at most 64 plain steps until the next try, and a few until it is as wide again.
  const auto wide = std::find_if(steps.draft_tokens.begin(), steps.draft_tokens.end(),
                                 [&](const auto& step) { return step.first >= kEnd && step.second >= 6; });
  ASSERT_NE(wide, steps.draft_tokens.end());
  EXPECT_LE(wide->first, kEnd + 64 + 40);
  EXPECT_GE(steps.Count(wide->first, kAll, 6, 8), 20U);
  EXPECT_LE(steps.Count(wide->first, kAll, 0, 5), 3U);
}

// One that finds nothing, as a lookup does in words that were not there before.
struct SilentDrafter : Drafter {
  void Append(int32_t) override {}
  DraftTree Propose(size_t) override { return {}; }
};

// Steps are timed, and so become as wide as pays, whatever a neighbour's drafter finds.
TEST(EngineNumDraftTokens, NeighbourThatFindsNothing_TakesNoTimesAway) {
  const auto model =
      LoadModel("num_draft_tokens", BuildCountingModel({.vocab = 1000, .context = 400, .eos_token = 999}));
  EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kUpfront});
  Engine::Impl& impl = driver.engine().impl();
  impl.make_drafter = [quotes = true](const Request&, size_t, SequenceState&) mutable -> std::unique_ptr<Drafter> {
    if (std::exchange(quotes, false)) return std::make_unique<QuotingDrafter>(0, 0);
    return std::make_unique<SilentDrafter>();
  };
  impl.profile = SlopedProfile(impl.isa, 100);  // no draft token would pay: its own times say that all do
  impl.step_seconds = [](size_t rows) { return 1 + 0.01 * static_cast<double>(rows - 1); };
  for (const int32_t first : {20, 30})
    driver.Submit({.prompt = {first}, .generation = {.max_new_tokens = 300}, .draft = {.num_draft_tokens = 8}});
  size_t wide = 0, steps = 0;
  for (; impl.requests.size() == 2; ++steps) {
    driver.Step();
    wide += impl.scheduler->step()[0].tokens.size() == 9 ? 1U : 0U;
  }
  EXPECT_GT(2 * wide, steps);
}

// Reads text, it says, and takes its time for all draft tokens but the first.
class SlowLaterDrafter : public QuotingDrafter {
 public:
  static constexpr std::chrono::milliseconds kPause{20};

  explicit SlowLaterDrafter(size_t* later) : QuotingDrafter(0, 0), later_(later) {}
  bool reads_text() const override { return true; }
  DraftTree Propose(size_t num_draft_tokens) override {
    if (std::exchange(is_first_, false)) return QuotingDrafter::Propose(num_draft_tokens);
    std::this_thread::sleep_for(kPause);
    ++*later_;
    return QuotingDrafter::Propose(num_draft_tokens);
  }

 private:
  bool is_first_ = true;
  size_t* later_;
};

// What comes behind the first draft tokens that were checked is not reading.
TEST(EngineNumDraftTokens, DraftPrefillMs_EndsWithTheFirstDraftTokens) {
  const auto model = LoadModel("num_draft_tokens", BuildCountingModel({.vocab = 400, .context = 64}));
  EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kUpfront});
  size_t later = 0;
  driver.engine().impl().make_drafter = [&later](const Request&, size_t, SequenceState&) {
    return std::make_unique<SlowLaterDrafter>(&later);
  };
  const RequestId id = driver.Submit({.prompt = {20, 21},
                                      .generation = {.max_new_tokens = 30},
                                      .draft = {.num_draft_tokens = 3, .min_draft_tokens = 3}});
  while (!driver.engine().idle()) driver.Step();
  EXPECT_GE(later, 5U);
  const double reading = driver.outcome(id).stats.drafts.draft_prefill_ms;
  EXPECT_GT(reading, 0);
  EXPECT_LT(reading, static_cast<double>(later * SlowLaterDrafter::kPause.count()));
}

constexpr size_t kContext = 64;

std::string ProfileFile(const Engine::Impl& impl, const std::string& cpu, double slope) {
  MachineProfile profile = SlopedProfile(impl.isa, slope);
  profile.cpu = cpu;
  profile.isa = impl.isa;
  profile.threads = 1;
  return WriteTemporary("num_draft_tokens_" + std::to_string(slope) + cpu + ".json", ProfileText(profile));
}

struct Start {
  std::string planned;         // the plan's choice
  std::vector<size_t> widths;  // of the first steps
};

Start StartOf(const std::string& profile) {
  const auto model = LoadModel("num_draft_tokens", BuildCountingModel({.vocab = 400, .context = kContext}));
  EngineDriver driver(
      model, {.threads = 1, .kv_policy = KvPolicy::kUpfront, .max_batch = 1, .profile_path = profile, .cpu = "a CPU"});
  driver.engine().impl().make_drafter = [](const Request&, size_t, SequenceState&) {
    return std::make_unique<QuotingDrafter>(0, 0);
  };
  PlanOptions options;
  options.draft = DraftOptions{.num_draft_tokens = 8};
  options.cpu = "a CPU";
  options.profile_path = profile;
  auto plan = MakePlan(driver.engine(), options);
  EXPECT_TRUE(plan.ok()) << plan.error().message();
  EXPECT_EQ(plan->choices.back().name, "draft tokens");
  std::vector<int32_t> prompt(kContext / 2);  // as deep as the plan looks
  std::iota(prompt.begin(), prompt.end(), 10);
  const Steps steps = RunToEnd(
      driver,
      {.prompt = prompt, .generation = {.max_new_tokens = 24, .ignore_eos = true}, .draft = {.num_draft_tokens = 8}});
  Start start{.planned = plan->choices.back().chosen.value, .widths = {}};
  for (size_t i = 0; i < std::min<size_t>(2, steps.draft_tokens.size()); ++i)
    start.widths.push_back(steps.draft_tokens[i].second);
  return start;
}

TEST(EngineNumDraftTokens, FirstSteps_AreAsThePlanSays) {
  EngineDriver any(LoadModel("num_draft_tokens", BuildCountingModel({.vocab = 400, .context = kContext})),
                   {.threads = 1});
  const Engine::Impl& impl = any.engine().impl();
  // Rows that cost nothing, and rows that cost as much as a step each.
  const Start free = StartOf(ProfileFile(impl, "a CPU", 0)), dear = StartOf(ProfileFile(impl, "a CPU", 100));
  EXPECT_EQ(free.planned, "8");
  ASSERT_FALSE(free.widths.empty());
  EXPECT_EQ(free.widths[0], 8U);
  EXPECT_EQ(dear.planned, "0");
  EXPECT_EQ(dear.widths, (std::vector<size_t>{0, 0}));
  // Without numbers of this machine the built-in ones serve both.
  const Start none = StartOf(WriteTemporary("num_draft_tokens.json", "no profile"));
  ASSERT_FALSE(none.widths.empty());
  EXPECT_EQ(none.planned, std::to_string(none.widths[0]));
  const Start other = StartOf(ProfileFile(impl, "another CPU", 100));
  EXPECT_EQ(other.planned, none.planned);
  ASSERT_FALSE(other.widths.empty());
  EXPECT_EQ(other.widths[0], none.widths[0]);
}

TEST(EngineNumDraftTokens, Plans_OfWhatCannotBe_AreRefused) {
  const auto model = LoadModel("num_draft_tokens", BuildCountingModel({.vocab = 400, .context = kContext}));
  EngineDriver driver(model, {.threads = 1}), other(model, {.threads = 1, .draft_model = model});
  const auto code = [](Engine& engine, const DraftOptions& draft) {
    PlanOptions options;
    options.draft = draft;
    options.profile_path = WriteTemporary("num_draft_tokens.json", "no profile");
    const auto plan = MakePlan(engine, options);
    return plan.ok() ? ErrorCode::kInternal : plan.error().code();
  };
  EXPECT_EQ(code(driver.engine(), {.num_draft_tokens = 8, .source = DraftSource::kModel}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(driver.engine(), {.num_draft_tokens = 8, .source = DraftSource::kLayers, .layers = 1}),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(driver.engine(), {.num_draft_tokens = 2, .min_draft_tokens = 3}), ErrorCode::kInvalidArgument);
  const DraftOptions tree{.num_draft_tokens = 8, .source = DraftSource::kNgram, .tree = DraftTreeKind::kFixed};
  EXPECT_EQ(code(other.engine(), tree), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tidemill::engine_num_draft_tokens_test
