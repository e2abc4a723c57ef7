// Answers that only repeat themselves end, at the same token with drafts, in batches and in two parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decoding/repetition_detector.h"
#include "runtime/engine_impl.h"
#include "tests/support/engine_driver.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/scripted_drafters.h"
#include "tests/support/tiny_model.h"

namespace tidemill::engine_repetition_test {
namespace {

using testing::BuildCountingModel;
using testing::DraftScript;
using testing::EngineDriver;
using testing::ExpectJoined;
using ::testing::HasSubstr;
using testing::LoadModel;
using testing::Outcome;
using testing::ProposedTree;
using testing::ReadSaved;
using testing::ScriptedDrafter;

constexpr size_t kWindow = RepetitionDetector::kWindow;

std::shared_ptr<const Model> AnyModel() {
  static const auto model = LoadModel("engine_repetition", BuildCountingModel({.vocab = 400, .context = 1024}));
  return model;
}

// 40 letters, then six of them again and again.
std::vector<int32_t> Script() {
  std::vector<int32_t> script;
  for (int32_t i = 0; i < 40; ++i) script.push_back(testing::ByteToken('a' + i * i % 23));
  for (int32_t i = 0; i < 600; ++i) script.push_back(testing::ByteToken('a' + i % 6));
  return script;
}
constexpr size_t kEnd = 40 + kWindow;  // tokens up to which it is a repetition for the first time

// An engine whose requests say `script`, whatever the model thinks: each from `first` on.
class ScriptedEngine {
 public:
  ScriptedEngine(std::vector<int32_t> script, size_t first = 0, const EngineOptions& options = {.threads = 1})
      : script_(std::move(script)), driver_(AnyModel(), options) {
    faults_.sampling = [this, first](RequestId id, std::span<float> logits) {
      const size_t at = chosen_.try_emplace(id, first).first->second++;
      std::fill(logits.begin(), logits.end(), 0.0F);
      logits[static_cast<size_t>(script_[at])] = 20;
    };
    driver_.engine().impl().faults = &faults_;
  }

  EngineDriver& driver() { return driver_; }

 private:
  std::vector<int32_t> script_;
  std::map<RequestId, size_t> chosen_;  // so far
  RequestFaults faults_;
  EngineDriver driver_;
};

const std::vector<int32_t> kPrompt = {5, 6, 7};

GenerationOptions Ending() { return {.max_new_tokens = 500, .stop_at_repetition = true}; }

Outcome RunScript(const GenerationOptions& generation) {
  return ScriptedEngine(Script()).driver().Run(kPrompt, generation);
}

Outcome RunAndSave(const GenerationOptions& generation) {
  ScriptedEngine engine(Script());
  return testing::RunAndSave(engine.driver(), kPrompt, generation);
}

Outcome GoOn(const Outcome& from, const GenerationOptions& generation) {
  ScriptedEngine engine(Script(), from.ids.size());
  return testing::ResumeSaved(engine.driver(), from, {.generation = generation});
}

TEST(Repetition, EndsTheAnswer_WhereItIsAskedFor) {
  const Outcome ended = RunScript(Ending()), free = RunScript({.max_new_tokens = 500});
  EXPECT_EQ(ended.finish, FinishReason::kRepetition);
  EXPECT_EQ(ended.ids.size(), kEnd);
  EXPECT_EQ(ended.text.size(), kEnd);
  EXPECT_EQ(ended.stats.generated_tokens, kEnd);
  EXPECT_EQ(free.finish, FinishReason::kLength);
  EXPECT_EQ(free.ids.size(), 500U);
  EXPECT_TRUE(std::equal(ended.ids.begin(), ended.ids.end(), free.ids.begin()));
}

TEST(Repetition, ThePrompt_IsNoPartOfIt) {
  std::vector<int32_t> loop(400, testing::ByteToken('x'));
  ScriptedEngine engine(loop);
  const Outcome outcome = engine.driver().Run(loop, Ending());
  EXPECT_EQ(outcome.finish, FinishReason::kRepetition);
  EXPECT_EQ(outcome.ids.size(), kWindow);
}

TEST(Repetition, OtherEndsAtTheSameToken_ComeFirst) {
  GenerationOptions generation = Ending();
  generation.max_new_tokens = static_cast<int32_t>(kEnd);
  EXPECT_EQ(RunScript(generation).finish, FinishReason::kLength);
  generation = Ending();
  generation.stop = {RunScript(generation).text.substr(kEnd - kWindow)};
  EXPECT_EQ(RunScript(generation).finish, FinishReason::kStop);
}

TEST(Repetition, BelowMinNewTokens_EndsNothing) {
  GenerationOptions generation = Ending();
  generation.min_new_tokens = static_cast<int32_t>(kEnd) + 30;
  const Outcome outcome = RunScript(generation);
  EXPECT_EQ(outcome.finish, FinishReason::kRepetition);
  EXPECT_EQ(outcome.ids.size(), kEnd + 30);
  GenerationOptions part = generation;
  part.stop_at_repetition = false;
  part.max_new_tokens = static_cast<int32_t>(kEnd) + 10;
  part.min_new_tokens = 0;
  EXPECT_EQ(GoOn(RunAndSave(part), generation).finish, FinishReason::kRepetition);
}

TEST(Repetition, WithDrafts_EndsAtTheSameToken) {
  const Outcome plain = RunScript(Ending());
  std::vector<int32_t> truth = kPrompt;
  for (const int32_t token : Script()) truth.push_back(token);
  ProposedTree last;
  size_t drafted = 0;
  for (const bool trees : {false, true}) {
    for (size_t width = 1; width <= 12; ++width) {
      ScriptedEngine engine(Script());
      engine.driver().engine().impl().make_drafter = [&](const Request&, size_t,
                                                         SequenceState&) -> std::unique_ptr<Drafter> {
        const DraftScript script{.truth = truth, .right = 0.9, .seed = width, .trees = trees};
        return std::make_unique<ScriptedDrafter>(script, &last);
      };
      const RequestId id = engine.driver().Submit(
          {.prompt = kPrompt, .generation = Ending(), .draft = {.num_draft_tokens = width, .min_draft_tokens = width}});
      engine.driver().RunUntilIdle();
      const Outcome& found = engine.driver().outcome(id);
      EXPECT_EQ(found.ids, plain.ids) << width;
      EXPECT_EQ(found.text, plain.text) << width;
      EXPECT_EQ(found.finish, FinishReason::kRepetition) << width;
      EXPECT_EQ(found.stats.state_bytes, plain.stats.state_bytes) << width;
      drafted += found.stats.accepted_tokens;
    }
  }
  EXPECT_GT(drafted, 1000U);
}

TEST(Repetition, BatchMates_EndByThemselves) {
  ScriptedEngine engine(Script());
  std::vector<RequestId> ids;
  for (size_t i = 0; i < 5; ++i) {
    GenerationOptions generation = Ending();
    generation.stop_at_repetition = i % 2 == 0;
    ids.push_back(engine.driver().Submit(kPrompt, generation));
    engine.driver().Step();
  }
  engine.driver().RunUntilIdle();
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(engine.driver().outcome(ids[i]).ids.size(), i % 2 == 0 ? kEnd : 500U) << i;
}

TEST(Repetition, AnswersInTwoParts_EndAsInOne) {
  const Outcome whole = RunScript(Ending());
  for (const size_t tokens : {size_t{1}, size_t{39}, size_t{41}, kWindow, kEnd - 2, kEnd - 1}) {
    GenerationOptions part = Ending();
    part.max_new_tokens = static_cast<int32_t>(tokens);
    const Outcome first = RunAndSave(part);
    ASSERT_EQ(first.finish, FinishReason::kLength);
    ExpectJoined(first, GoOn(first, Ending()), whole, std::to_string(tokens) + " tokens");
  }
}

// And are whole, also where a stop text might have begun at their end.
TEST(Repetition, SavedAnswers_GoOnWhereRepetitionsAreAllowed) {
  const std::string loop = RunScript(Ending()).text.substr(kEnd - 8);
  for (const std::string& stop : {std::string("never"), loop.substr(6) + "?"}) {
    GenerationOptions generation = Ending(), allowing = Ending();
    generation.stop = allowing.stop = {stop};
    allowing.stop_at_repetition = false;
    const Outcome ended = RunAndSave(generation);
    ASSERT_EQ(ended.finish, FinishReason::kRepetition);
    EXPECT_EQ(ended.text.size(), kEnd) << stop;
    const SavedRequest saved = ReadSaved(ended);
    EXPECT_TRUE(saved.generation().stop_at_repetition);
    EngineDriver driver(AnyModel(), {.threads = 1});
    const auto refused = driver.engine().Resume(saved, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message(),
                HasSubstr("the answer has ended: by a repetition; give --allow-repetition or a prompt"));
    ExpectJoined(ended, GoOn(ended, allowing), RunScript(allowing), stop);
    EXPECT_TRUE(driver.engine().Resume(saved, {.more_prompt = {9}}).ok());
  }
}

// It was cut by its number of tokens, where it was a repetition, too.
TEST(Repetition, SavedAnswerThatIsOne_DoesNotGoOn) {
  GenerationOptions part = Ending();
  part.max_new_tokens = static_cast<int32_t>(kEnd);
  const Outcome cut = RunAndSave(part);
  ASSERT_EQ(cut.finish, FinishReason::kLength);
  EngineDriver driver(AnyModel(), {.threads = 1});
  const SavedRequest saved = ReadSaved(cut);
  const auto refused = driver.engine().Resume(saved, {.generation = Ending()});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("by a repetition"));
}

}  // namespace
}  // namespace tidemill::engine_repetition_test
