// Prompts of a recurrent-memory model as waves of an engine, in every order: requests get the bits that they get alone, a token a step.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/testing/round_numbers.h"
#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/recurrent_model.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::segment_wave_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::FailAllocations;
using testing::Outcome;
using testing::RandomPrompt;
using testing::Recurrent;

constexpr size_t kSegment = 7, kLayers = 5;  // of the fixture

const WaveForm kForms[] = {{},
                           {WaveOrder::kDiagonal, kLayers, 0},
                           {WaveOrder::kDiagonal, 2, 0},
                           {WaveOrder::kLayerMajor, 3, 0},
                           {WaveOrder::kTeams, 2, 1},
                           {WaveOrder::kTeams, 3, 2}};

GenerationOptions Greedy(int32_t tokens) {
  GenerationOptions generation{.max_new_tokens = tokens, .temperature = 0, .ignore_eos = true};
  generation.logprobs = 1;
  return generation;
}

Outcome Alone(const std::vector<int32_t>& prompt, int32_t tokens) {
  EngineDriver driver(Recurrent(), {.threads = 1, .max_batch = 1, .prefill_chunk = 1, .prefix_cache = false});
  driver.engine().impl().scheduler->StopWaves();
  return driver.Run(prompt, Greedy(tokens));
}

// An engine with waves of that form, and what they did.
class WaveDriver : public EngineDriver {
 public:
  WaveDriver(const WaveForm& form, EngineOptions options) : EngineDriver(Recurrent(), std::move(options)) {
    waves().given = form;
    waves().seconds = std::numeric_limits<double>::infinity();
    waves().passed = [this](const WavePiece& piece, size_t layer) {
      const std::lock_guard lock(mutex_);
      if (layer == 0) begun_.emplace_back(piece.text, piece.number);
      ++cells_;
      if (on_cell) on_cell(cells_);
    };
  }

  EngineWaves& waves() { return engine().impl().waves; }
  size_t cells() const { return cells_; }
  const std::vector<std::pair<size_t, size_t>>& begun() const { return begun_; }  // pieces: of which text, which

  std::function<void(size_t cells)> on_cell;

 private:
  std::mutex mutex_;
  std::vector<std::pair<size_t, size_t>> begun_;
  size_t cells_ = 0;
};

EngineOptions Options(size_t batch) {
  return {.threads = 2, .max_batch = batch, .prefill_chunk = 5, .prefix_cache = false};
}

struct Texts {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<Outcome> alone;
};

// Of 10, 3, 14 and 2 whole segments before the last one.
const Texts& FourTexts() {
  static const Texts texts = [] {
    Texts all;
    for (const size_t length : {71, 28, 99, 20}) {
      all.prompts.push_back(RandomPrompt(length, length));
      all.alone.push_back(Alone(all.prompts.back(), 9));
    }
    return all;
  }();
  return texts;
}
constexpr size_t kSegmentsOfFour = 10 + 3 + 14 + 2;

std::vector<RequestId> SubmitAll(EngineDriver& driver, const Texts& texts) {
  std::vector<RequestId> ids;
  for (const auto& prompt : texts.prompts) ids.push_back(driver.Submit(prompt, Greedy(9)));
  return ids;
}

TEST(SegmentWave, EveryOrder_GivesOneRequestItsAnswer) {
  const Texts& texts = FourTexts();
  for (const WaveForm& form : kForms) {
    WaveDriver driver(form, Options(1));
    for (size_t i = 0; i < texts.prompts.size(); ++i)
      ExpectSame(driver.Run(texts.prompts[i], Greedy(9)), texts.alone[i],
                 WaveFormName(form) + ", text " + std::to_string(i));
    EXPECT_EQ(driver.cells(), kSegmentsOfFour * kLayers) << WaveFormName(form);
  }
}

// All whole segments of all requests are one wave, the oldest request's first; what is left are steps.
TEST(SegmentWave, SeveralRequests_AreOneWave) {
  const Texts& texts = FourTexts();
  for (const WaveForm& form : kForms) {
    WaveDriver driver(form, Options(4));
    const std::vector<RequestId> ids = SubmitAll(driver, texts);
    EXPECT_EQ(driver.Step(), 0U);
    EXPECT_EQ(driver.cells(), kSegmentsOfFour * kLayers) << WaveFormName(form);
    if (form.order == WaveOrder::kSequential) {
      size_t at = 0;
      for (size_t text = 0; text < 4; ++text) {
        for (size_t number = 0; number < (texts.prompts[text].size() - 1) / kSegment; ++number)
          EXPECT_EQ(driver.begun()[at++], std::pair(text, number));
      }
    }
    driver.RunUntilIdle();
    EXPECT_EQ(driver.cells(), kSegmentsOfFour * kLayers);
    for (size_t i = 0; i < ids.size(); ++i)
      ExpectSame(driver.outcome(ids[i]), texts.alone[i], WaveFormName(form) + ", text " + std::to_string(i));
  }
}

// A request that decodes gets a token in every step: nobody's segments run as a wave meanwhile.
TEST(SegmentWave, RequestThatDecodes_StopsWaves) {
  const Texts& texts = FourTexts();
  WaveDriver driver({WaveOrder::kDiagonal, kLayers, 0}, Options(3));
  const RequestId first = driver.Submit(RandomPrompt(5, 5), Greedy(4));
  driver.Step();
  const RequestId second = driver.Submit(texts.prompts[0], Greedy(9));
  while (!driver.outcome(first).ended()) EXPECT_EQ(driver.Step(), 1U);
  EXPECT_EQ(driver.cells(), 0U);
  driver.RunUntilIdle();
  ExpectSame(driver.outcome(second), texts.alone[0], "behind one that decodes");
}

// The oldest request's segments come first; none overtakes one that has no room in the wave.
TEST(SegmentWave, BoundedWave_IsTheOldestRequestsFirst) {
  const Texts& texts = FourTexts();
  for (const size_t most : {2, 4, 9, 11, 12, 13, 20}) {
    WaveDriver driver({WaveOrder::kTeams, 2, 1}, Options(4));
    driver.engine().impl().scheduler->LimitWaves(most * kSegment, 2);
    const std::vector<RequestId> ids = SubmitAll(driver, texts);
    driver.Step();
    EXPECT_EQ(driver.cells(), most * kLayers);
    size_t of_first = 0;
    for (const auto& [text, number] : driver.begun()) of_first += text == 0 ? 1 : 0;
    EXPECT_EQ(of_first, std::min<size_t>(most, 10)) << most;
    driver.RunUntilIdle();
    for (size_t i = 0; i < ids.size(); ++i)
      ExpectSame(driver.outcome(ids[i]), texts.alone[i], std::to_string(most) + " segments, text " + std::to_string(i));
  }
}

TEST(SegmentWave, CancelledInAWave_LeavesTheOthersAsTheyAre) {
  const Texts& texts = FourTexts();
  for (const WaveForm& form : kForms) {
    for (const size_t when : {1, 17, 60, 140}) {
      WaveDriver driver(form, Options(4));
      const std::vector<RequestId> ids = SubmitAll(driver, texts);
      const std::string where = WaveFormName(form) + ", behind cell " + std::to_string(when);
      driver.on_cell = [&](size_t cells) {
        if (cells == when) driver.engine().Cancel(ids[1]);
      };
      driver.Step();
      EXPECT_LT(driver.cells(), kSegmentsOfFour * kLayers) << where;
      EXPECT_EQ(driver.outcome(ids[1]).finish, FinishReason::kCancelled) << where;
      // One wave is dropped; the next one ends whoever is cancelled.
      const size_t dropped = driver.cells();
      driver.on_cell = [&](size_t cells) {
        if (cells == dropped + when / 2 + 1) driver.engine().Cancel(ids[2]);
      };
      driver.Step();
      EXPECT_EQ(driver.cells(), dropped + (kSegmentsOfFour - 3) * kLayers) << where;
      driver.on_cell = nullptr;
      driver.RunUntilIdle();
      EXPECT_EQ(driver.outcome(ids[2]).finish, FinishReason::kCancelled) << where;
      for (const size_t i : {0, 3})
        ExpectSame(driver.outcome(ids[i]), texts.alone[i], where + ", text " + std::to_string(i));
      EXPECT_EQ(driver.engine().impl().memory->held(), 0U) << where;
    }
  }
}

// A wave ends where a waiting request wants to continue, if that is between segments; else a step goes there.
TEST(SegmentWave, SharedBeginning_IsReadOnce) {
  const std::vector<int32_t> text = RandomPrompt(99, 99);
  for (const size_t common : {35, 38, 42, 98}) {
    std::vector<int32_t> other(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(common));
    for (const int32_t id : RandomPrompt(30, common)) other.push_back(id);
    other[common] = text[common] == 5 ? 6 : 5;
    const Outcome of_text = Alone(text, 5), of_other = Alone(other, 5);
    for (const WaveForm& form : kForms) {
      EngineOptions options = Options(2);
      options.prefix_cache = true;
      WaveDriver driver(form, options);
      const RequestId first = driver.Submit(text, Greedy(5)), second = driver.Submit(other, Greedy(5));
      driver.RunUntilIdle();
      const std::string where = WaveFormName(form) + ", common " + std::to_string(common);
      ExpectSame(driver.outcome(first), of_text, where);
      ExpectSame(driver.outcome(second), of_other, where);
      EXPECT_GE(driver.outcome(second).stats.cached_tokens, common / kSegment * kSegment) << where;
      EXPECT_GT(driver.cells(), 0U) << where;
    }
  }
}

// An allocation of the step that is to be a wave fails, or it and all behind it.
TEST(SegmentWave, WithoutMemory_StepsRunOrTheRequestFails) {
  const Texts& texts = FourTexts();
  for (const WaveForm& form : {kForms[0], kForms[1], kForms[3], kForms[4]}) {
    for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
      size_t failed = 0, smaller = 0, as_steps = 0;
      for (size_t n = 0;; n += 1 + n / 16) {  // every one of the first, then fewer
        ASSERT_LT(n, 2000U);
        WaveDriver driver(form, Options(4));
        const std::vector<RequestId> ids = SubmitAll(driver, texts);
        FailAllocations failure(n, count);
        const auto events = driver.engine().Step();
        const bool reached = failure.Stop();
        driver.Consume(events);
        driver.RunUntilIdle();
        const std::string where = WaveFormName(form) + ", allocation " + std::to_string(n);
        for (size_t i = 0; i < ids.size(); ++i) {
          const Outcome& outcome = driver.outcome(ids[i]);
          ASSERT_TRUE(outcome.ended()) << where;
          if (outcome.error) {
            EXPECT_EQ(outcome.error, ErrorCode::kOutOfMemory) << where;
            ++failed;
          } else {
            ExpectSame(outcome, texts.alone[i], where);
          }
        }
        as_steps += driver.cells() == 0 ? 1 : 0;
        smaller += driver.waves().wave != nullptr && !(driver.waves().form == form) ? 1 : 0;
        EXPECT_EQ(driver.engine().impl().memory->held(), 0U) << where;
        if (HasFailure()) return;
        if (!reached) break;
      }
      std::printf("  %s: %zu requests failed, %zu smaller waves, %zu without a wave\n", WaveFormName(form).c_str(),
                  failed, smaller, as_steps);
      EXPECT_TRUE(as_steps != 0 || count == 1);
      EXPECT_EQ(smaller != 0, form.order != WaveOrder::kSequential && count == 1);
    }
  }
}

// --- The planner's choice ---

// A machine on which waiting for each other is all that takes time, or nothing of it.
MachineProfile Machine(bool waits) {
  MachineProfile profile = testing::RoundProfile();
  for (OperationSeconds* operations : {&profile.one, &profile.all}) operations->loop = waits ? 1e-5 : 0;
  profile.element = waits ? 0 : 1e-9;
  for (OperationSeconds* operations : {&profile.one, &profile.all}) {
    if (!waits) break;
    for (ProductSeconds& product : operations->product) product.fill(1e-15);
  }
  return profile;
}

class ChosenWave : public ::testing::Test {
 protected:
  WaveDriver& Driver(bool waits, EngineOptions options = Options(1)) {
    driver_.emplace(WaveForm(), options);
    driver_->waves().given.reset();
    driver_->engine().impl().profile = Machine(waits);
    return *driver_;
  }
  void ExpectRuns(size_t text) {
    ExpectSame(driver_->Run(FourTexts().prompts[text], Greedy(9)), FourTexts().alone[text],
               "text " + std::to_string(text));
  }

  std::optional<WaveDriver> driver_;
};

TEST_F(ChosenWave, FewerWaits_AreDiagonals) {
  WaveDriver& driver = Driver(true);
  ExpectRuns(3);  // two segments
  EXPECT_EQ(driver.waves().form, (WaveForm{WaveOrder::kDiagonal, 2, 0}));
  ExpectRuns(1);  // three: the planner is not asked
  EXPECT_EQ(driver.waves().form, (WaveForm{WaveOrder::kDiagonal, 2, 0}));
  ExpectRuns(0);  // ten
  EXPECT_EQ(driver.waves().form, (WaveForm{WaveOrder::kDiagonal, kLayers, 0}));
  EXPECT_EQ(driver.cells(), (2 + 3 + 10) * kLayers);
}

TEST_F(ChosenWave, Memory_CutsIt) {
  WaveDriver& driver = Driver(true);
  driver.waves().memory =
      WaveBytes(Recurrent()->impl().language_model.operator*(), DefaultIsa(), 10, {WaveOrder::kDiagonal, 3, 0});
  ExpectRuns(0);
  EXPECT_EQ(driver.waves().form, (WaveForm{WaveOrder::kDiagonal, 2, 0}));
  WaveDriver& none = Driver(true);
  none.waves().memory = 0;
  ExpectRuns(0);
  EXPECT_EQ(none.waves().wave, nullptr);
  EXPECT_EQ(none.cells(), 0U);
}

// Where no order gains and a segment fits in a step, steps need no memory of their own; in smaller chunks they would read weights more often.
TEST_F(ChosenWave, NothingToGain_IsStepsOrPieceAfterPiece) {
  EngineOptions options = Options(1);
  options.threads = 1;
  options.prefill_chunk = kSegment;
  WaveDriver& steps = Driver(false, options);
  ExpectRuns(0);
  EXPECT_EQ(steps.cells(), 0U);
  EXPECT_EQ(steps.waves().wave, nullptr);
  options.prefill_chunk = kSegment - 1;
  WaveDriver& pieces = Driver(false, options);
  ExpectRuns(0);
  EXPECT_EQ(pieces.waves().form, WaveForm());
  EXPECT_EQ(pieces.cells(), 10 * kLayers);
}

// A wave is as long as its seconds allow, and is planned again where it was longer.
TEST_F(ChosenWave, LongSegments_AreShortWaves) {
  WaveDriver& driver = Driver(true);
  for (OperationSeconds* operations : {&driver.engine().impl().profile->one, &driver.engine().impl().profile->all})
    operations->loop = 1.0 / static_cast<double>(kLayers * 10);
  driver.Submit(FourTexts().prompts[0], Greedy(9));
  driver.Step();
  driver.Step();
  const size_t cells = driver.cells();
  EXPECT_GT(cells, 0U);
  EXPECT_LT(cells, 10 * kLayers);
  driver.RunUntilIdle();
  for (OperationSeconds* operations : {&driver.engine().impl().profile->one, &driver.engine().impl().profile->all})
    operations->loop = 100;
  driver.waves().wave.reset();
  ExpectRuns(0);
  EXPECT_EQ(driver.waves().wave, nullptr);
}

}  // namespace
}  // namespace tidemill::segment_wave_test
