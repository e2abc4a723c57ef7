#include "planner/wave_order.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "planner/testing/round_numbers.h"

namespace tidemill::wave_order_test {
namespace {

using testing::RoundProfile;

// Four layers of 2.5 MB and 25 loops. 32 rows of products: 2 ms with both threads, 4 ms with one. Loops: 100 us, 200 us with one.
ModelNumbers Model() {
  ModelNumbers model;
  model.weights = {{.dtype = DType::kQ8_0, .bytes = 10e6}};
  model.loops = 100;
  return model;
}

// Eight segments of 28 tokens and 4 memory rows. A piece in flight takes 100 bytes, a team 50 more.
WaveInput Input() {
  WaveInput input;
  input.layers = 4;
  input.segment_tokens = 28;
  input.memory_rows = 4;
  input.pieces = 8;
  input.threads = 2;
  input.bytes = [](const WaveForm& form) { return form.in_flight * (form.order == WaveOrder::kTeams ? 150U : 100U); };
  return input;
}

std::optional<WavePrediction> Of(const WaveChoice& choice, WaveOrder order) {
  for (const WavePrediction& one : choice.predicted) {
    if (one.form.order == order) return one;
  }
  return std::nullopt;
}

double SecondsOf(const WaveChoice& choice, WaveOrder order) {
  const auto one = Of(choice, order);
  return one ? one->seconds : -1;
}

TEST(WaveOrder, Seconds_AreThoseByHand) {
  const WaveChoice choice = ChooseWave(RoundProfile(), Model(), Input());
  ASSERT_EQ(choice.predicted.size(), 3U);  // no cache is known, so no layer stays in it
  EXPECT_NEAR(SecondsOf(choice, WaveOrder::kSequential), 2.1e-3, 1e-12);
  // 11 lists of 25 loops instead of 32.
  EXPECT_NEAR(SecondsOf(choice, WaveOrder::kDiagonal), 2e-3 + 100e-6 * 11 / 32, 1e-12);
  // 17 lists of two teams' cells: 4.2 ms a piece and four layers.
  EXPECT_NEAR(SecondsOf(choice, WaveOrder::kTeams), 17 * 1.05e-3 / 8, 1e-12);
  EXPECT_EQ(choice.chosen.form, (WaveForm{WaveOrder::kDiagonal, 4, 0}));
  EXPECT_EQ(choice.chosen.bytes, 400U);
  EXPECT_EQ(choice.reason,
            "it is predicted to save 3.1 % of the sequential order's time: threads wait for each other in 11 groups of "
            "cells, not in 32 cells");
}

TEST(WaveOrder, MemoryRowsWeights_ServeThemAlone) {
  ModelNumbers model = Model();
  model.memory = {{.dtype = DType::kQ8_0, .bytes = 31e6}};
  // Four rows: 0.1 ns and 3 / 31 of it a byte.
  EXPECT_NEAR(SecondsOf(ChooseWave(RoundProfile(), model, Input()), WaveOrder::kSequential), 2.1e-3 + 3.4e-3, 1e-12);
}

TEST(WaveOrder, Attention_SeesTheRowsBeforeInTheSegment) {
  ModelNumbers model = Model();
  model.attention = {{4, testing::RoundAttention()}};
  // Row i sees i + 1 positions, 1 us each and layer.
  EXPECT_NEAR(SecondsOf(ChooseWave(RoundProfile(), model, Input()), WaveOrder::kSequential), 2.1e-3 + 4 * 528e-6,
              1e-12);
}

// Rows of a segment that make one block run in one thread, but teams and diagonals have several side by side.
TEST(WaveOrder, RowWorkOfOneBlock_LeavesThreadsIdleInSequentialOrder) {
  ModelNumbers model = Model();
  model.row_works = {{.cols = 512, .elements = 100'000}};  // blocks of 32 rows, 3.2 ms each with one thread
  const WaveChoice choice = ChooseWave(RoundProfile(), model, Input());
  EXPECT_NEAR(SecondsOf(choice, WaveOrder::kSequential), 2.1e-3 + 3.2e-3, 1e-12);
  EXPECT_NEAR(SecondsOf(choice, WaveOrder::kTeams), 17 * (1.05e-3 + 0.8e-3) / 8, 1e-12);
  // Three blocks in a list on average, of which a thread has two, and a loop of all layers for three pieces.
  EXPECT_NEAR(SecondsOf(choice, WaveOrder::kDiagonal), 2e-3 + 100e-6 * 11 / 32 + 3.2e-3 * 2 / 3 + 1e-6 / 3, 1e-12);
  EXPECT_EQ(choice.chosen.form, (WaveForm{WaveOrder::kTeams, 2, 1}));
}

TEST(WaveOrder, LayerMajor_NeedsALayerInTwoThirdsOfTheCache) {
  WaveInput input = Input();
  input.segment_tokens = 1;  // weights are what a segment takes
  input.memory_rows = 0;
  input.cache_bytes = 3'749'999;
  EXPECT_FALSE(Of(ChooseWave(RoundProfile(), Model(), input), WaveOrder::kLayerMajor));
  input.cache_bytes = 3'750'000;
  const WaveChoice choice = ChooseWave(RoundProfile(), Model(), input);
  const double arithmetic = 1e-10 * (1 + 127.0 / 31) / 128, saved = (1 - 1 / kCacheSpeed) * (1e-10 - arithmetic);
  EXPECT_NEAR(SecondsOf(choice, WaveOrder::kSequential), 1.1e-3, 1e-12);
  EXPECT_NEAR(SecondsOf(choice, WaveOrder::kLayerMajor), 1.1e-3 - 10e6 * saved * 7 / 8, 1e-12);
  EXPECT_EQ(choice.chosen.form, (WaveForm{WaveOrder::kLayerMajor, 8, 0}));
  EXPECT_NE(choice.reason.find("a layer's weights, 2.5 MB, stay in the cache for 8 segments"), std::string::npos)
      << choice.reason;
}

// With all layers in the cache no order finds more of them there.
TEST(WaveOrder, ModelInTheCache_GainsNothingLayerByLayer) {
  WaveInput input = Input();
  input.segment_tokens = 1;
  input.memory_rows = 0;
  input.cache_bytes = 20'000'000;
  const WaveChoice choice = ChooseWave(RoundProfile(), Model(), input);
  EXPECT_LT(SecondsOf(choice, WaveOrder::kSequential), 0.5e-3);
  EXPECT_EQ(SecondsOf(choice, WaveOrder::kLayerMajor), SecondsOf(choice, WaveOrder::kSequential));
}

TEST(WaveOrder, Teams_ReadNoFasterThanMemoryGives) {
  MachineProfile profile = RoundProfile();
  profile.one = profile.all;  // one thread alone has all of the bandwidth
  WaveInput input = Input();
  input.segment_tokens = 1;
  input.memory_rows = 0;
  const double cell = 2 * (1e-3 + 50e-6) / 4;
  EXPECT_NEAR(SecondsOf(ChooseWave(profile, Model(), input), WaveOrder::kTeams), 17 * cell / 8, 1e-12);
  // Two layers in the cache: every second piece reads from memory.
  input.cache_bytes = 10'000'000;
  const double shared = SecondsOf(ChooseWave(profile, Model(), input), WaveOrder::kTeams);
  EXPECT_NEAR(shared, 17 * 2 * (0.5e-3 + 50e-6) / 4 / 8, 1e-12);
}

TEST(WaveOrder, TeamsOfSomeThreads_LieBetweenOneAndAll) {
  MachineProfile profile = RoundProfile();
  profile.threads = 8;
  WaveInput input = Input();
  input.layers = 16;
  input.pieces = 64;
  input.threads = 8;
  ModelNumbers model = Model();
  for (auto& seconds : profile.one.product[static_cast<size_t>(DType::kQ8_0)]) seconds = 8e-10;
  for (auto& seconds : profile.all.product[static_cast<size_t>(DType::kQ8_0)]) seconds = 1e-10;
  profile.one.loop = 0;
  profile.all.loop = 35e-6;
  // Products take as long however the threads stand, 1 ms; loops cost 500 us for each thread more of a team.
  const WaveChoice best = ChooseWave(profile, model, input);
  EXPECT_EQ(best.chosen.form, (WaveForm{WaveOrder::kTeams, 8, 1}));
  EXPECT_NEAR(SecondsOf(best, WaveOrder::kTeams), (7 * 16 + 7 + 16) * 8 * 1e-3 / 16 / 64, 1e-12);
  // Eight teams do not fit, nor seven; four have idle threads, or two each.
  input.budget = 4 * 150;
  const WaveChoice fitting = ChooseWave(profile, model, input);
  EXPECT_EQ(Of(fitting, WaveOrder::kTeams)->form, (WaveForm{WaveOrder::kTeams, 4, 2}));
  EXPECT_NEAR(SecondsOf(fitting, WaveOrder::kTeams), (15 * 16 + 3 + 16) * 4 * 1.5e-3 / 16 / 64, 1e-12);
}

// A profile of two threads says nothing of sixteen: they are taken to be as fast as those, in every order.
TEST(WaveOrder, MoreThreadsThanMeasured_PromiseNothing) {
  WaveInput input = Input();
  input.threads = 16;
  const WaveChoice choice = ChooseWave(RoundProfile(), Model(), input);
  EXPECT_GE(SecondsOf(choice, WaveOrder::kTeams), 2e-3);
}

TEST(WaveOrder, Budget_CutsWhatIsInFlight) {
  WaveInput input = Input();
  input.cache_bytes = 5'000'000;
  for (const uint64_t budget : {0, 100, 199, 200, 299, 300, 399, 400, 799, 800}) {
    input.budget = budget;
    const WaveChoice choice = ChooseWave(RoundProfile(), Model(), input);
    EXPECT_TRUE(Of(choice, WaveOrder::kSequential)) << budget;  // steps do the same where even that has no room
    const auto diagonal = Of(choice, WaveOrder::kDiagonal), layer_major = Of(choice, WaveOrder::kLayerMajor);
    EXPECT_EQ(diagonal ? diagonal->form.in_flight : 0, budget >= 400 ? 4U : budget >= 200 ? 2U : 0U) << budget;
    EXPECT_EQ(layer_major ? layer_major->form.in_flight : 0, budget >= 800   ? 8U
                                                             : budget >= 400 ? 4U
                                                             : budget >= 200 ? 2U
                                                                             : 0U)
        << budget;
    EXPECT_EQ(Of(choice, WaveOrder::kTeams).has_value(), budget >= 300) << budget;
    EXPECT_EQ(choice.as_steps, budget < 100) << budget;
    for (const WavePrediction& one : choice.predicted)
      EXPECT_TRUE(one.bytes <= budget || one.form.order == WaveOrder::kSequential) << budget;
  }
}

TEST(WaveOrder, NearTie_TakesTheLeastMemory) {
  ModelNumbers model = Model();
  model.loops = 30;  // 1.5 % of a segment: a diagonal saves 1.0 %
  const WaveChoice choice = ChooseWave(RoundProfile(), model, Input());
  EXPECT_LT(SecondsOf(choice, WaveOrder::kDiagonal), SecondsOf(choice, WaveOrder::kSequential));
  EXPECT_EQ(choice.chosen.form, WaveForm());
  EXPECT_EQ(choice.reason,
            "no other order that fits is predicted to save 1 % or more, and this one takes the least memory");
  model.loops = 33;
  EXPECT_EQ(ChooseWave(RoundProfile(), model, Input()).chosen.form.order, WaveOrder::kDiagonal);
}

TEST(WaveOrder, OneSegment_HasNoMates) {
  WaveInput input = Input();
  input.pieces = 1;
  input.cache_bytes = 1 << 30;
  const WaveChoice choice = ChooseWave(RoundProfile(), Model(), input);
  EXPECT_EQ(choice.predicted.size(), 1U);
  EXPECT_EQ(choice.chosen.form, WaveForm());
  EXPECT_EQ(choice.reason, "a segment alone has none to run beside");
}

TEST(WaveOrder, Wave_EndsWithinItsSeconds) {
  WaveInput input = Input();
  input.pieces = 100'000;
  const WaveChoice choice = ChooseWave(RoundProfile(), Model(), input);
  EXPECT_NEAR(static_cast<double>(choice.pieces) * choice.chosen.seconds, kWaveSeconds, choice.chosen.seconds);
  ModelNumbers model = Model();
  model.weights.front().bytes = 5e9;  // a second a segment: two at a time
  const WaveChoice two = ChooseWave(RoundProfile(), model, input);
  EXPECT_LE(two.pieces, 2U);
  EXPECT_EQ(Of(two, WaveOrder::kDiagonal), std::nullopt);
  model.weights.front().bytes = 50e9;
  const WaveChoice slow = ChooseWave(RoundProfile(), model, input);
  EXPECT_EQ(slow.pieces, 1U);
  EXPECT_EQ(slow.chosen.form, WaveForm());
  EXPECT_EQ(slow.reason, "a segment takes 10 s, so no second one ends within the 2 s that other requests wait at most");
  model.weights.front().bytes = 1;
  model.loops = 0;
  EXPECT_EQ(ChooseWave(RoundProfile(), model, input).pieces, kMaxWaveTokens / 28);
}

TEST(WaveForm, Names_SayOrderAndNumbers) {
  EXPECT_EQ(WaveFormName({}), "sequential");
  EXPECT_EQ(WaveFormName({WaveOrder::kDiagonal, 16, 0}), "diagonal 16");
  EXPECT_EQ(WaveFormName({WaveOrder::kLayerMajor, 3, 0}), "layer-major 3");
  EXPECT_EQ(WaveFormName({WaveOrder::kTeams, 8, 2}), "teams 8 x 2");
}

TEST(WaveForm, Smaller_HalvesWhatIsInFlightDownToOnePiece) {
  std::optional<WaveForm> form = WaveForm{WaveOrder::kTeams, 7, 2};
  EXPECT_EQ(*(form = SmallerWave(*form)), (WaveForm{WaveOrder::kTeams, 3, 2}));
  EXPECT_EQ(*(form = SmallerWave(*form)), WaveForm());
  EXPECT_EQ(SmallerWave(*form), std::nullopt);
  EXPECT_EQ(SmallerWave({WaveOrder::kDiagonal, 2, 0}), WaveForm());
}

}  // namespace
}  // namespace tidemill::wave_order_test
