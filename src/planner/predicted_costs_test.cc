#include "planner/predicted_costs.h"

#include <gtest/gtest.h>

#include "planner/testing/round_numbers.h"

namespace tidemill {
namespace {

using testing::RoundModel;
using testing::RoundProfile;

TEST(AtRows, IsStraightBetweenNeighboursAndGoesOn) {
  const PerRows numbers = {1, 2, 4, 10, 20, 30};
  EXPECT_DOUBLE_EQ(AtRows(numbers, 1, 7), 1);
  EXPECT_DOUBLE_EQ(AtRows(numbers, 0, 7), 1);
  EXPECT_DOUBLE_EQ(AtRows(numbers, 3, 7), 3);
  EXPECT_DOUBLE_EQ(AtRows(numbers, 8, 7), 10);
  EXPECT_DOUBLE_EQ(AtRows(numbers, 6, 7), 7);
  EXPECT_DOUBLE_EQ(AtRows(numbers, 32, 7), 30);
  EXPECT_DOUBLE_EQ(AtRows(numbers, 34, 7), 44);
}

// The numbers below are computed by hand from testing/round_numbers.h.
TEST(PredictedCosts, DecodeStep_IsBytesAndArithmeticAndAttention) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  EXPECT_NEAR(costs.DecodeStep(999, 1), 1.2e-3 + 2 * 1e-3, 1e-12);
  // 32 rows: 1 ms more for the sample, half of it for the layers and a tenth for the head.
  EXPECT_NEAR(costs.DecodeStep(999, 32), 1.2e-3 + 0.6e-3 + 32 * 2e-3, 1e-12);
  EXPECT_NEAR(costs.DecodeStep(0, 63), 1.2e-3 + 1.2e-3 + 63 * 2e-6, 1e-12);  // twice the 31 rows beyond the first
  const PredictedCosts one(profile, model, ThreadUse::kOne);
  EXPECT_NEAR(one.DecodeStep(999, 32), 2 * costs.DecodeStep(999, 32), 1e-12);
}

TEST(PredictedCosts, ReadingIsSlower_Binds) {
  MachineProfile profile = RoundProfile();
  profile.attention.fill(1e-9);
  const ModelNumbers model = RoundModel();
  // 4096 bytes of a position and layer, at 10 GB/s
  EXPECT_NEAR(PredictedCosts(profile, model).DecodeStep(999, 2), 1.2e-3 + 0.6e-3 / 31 + 2 * 2 * 0.4096e-3, 1e-12);
}

TEST(PredictedCosts, ArithmeticLimit_IsTheLeast) {
  MachineProfile profile = RoundProfile();
  profile.product.fill(1e-3);  // as if rows cost nothing
  const ModelNumbers model = RoundModel();
  const double operations = 512 * (model.layer_products.front().int8_ops + model.head.int8_ops);
  EXPECT_NEAR(PredictedCosts(profile, model).DecodeStep(0, 512), operations / 1e13 + 512 * 2e-6, 1e-9);
}

TEST(PredictedCosts, Prefill_ReadsWeightsOnceAChunkAndTheHeadOnce) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  // Two chunks of 32; 64 * 65 / 2 = 2080 positions seen, 65 a chunk's row, 32 us each and layer.
  EXPECT_NEAR(costs.Prefill(64, 32), 1.5e-3 + 1.7e-3 + 2 * 65 * 32e-6, 1e-12);
  EXPECT_NEAR(costs.Prefill(32, 512), 1.7e-3 + 2 * 16.5 * 32e-6, 1e-12);
  EXPECT_NEAR(costs.Prefill(33, 32), 1.5e-3 + 1.2e-3 + 2 * (33 * 17.0 / 32) * 32e-6, 1e-12);
  EXPECT_EQ(costs.Prefill(0, 32), 0);
  EXPECT_LT(costs.Prefill(4096, 512), costs.Prefill(4096, 32));
}

TEST(PredictedCosts, Window_BoundsWhatIsSeen) {
  const MachineProfile profile = RoundProfile();
  ModelNumbers model = RoundModel();
  model.attention.front().shape.window = 100;
  const PredictedCosts costs(profile, model);
  EXPECT_NEAR(costs.DecodeStep(49, 1), 1.2e-3 + 2 * 50e-6, 1e-12);
  EXPECT_NEAR(costs.DecodeStep(999, 1), 1.2e-3 + 2 * 100e-6, 1e-12);
  // 100 * 101 / 2 and 100 for each of the other 156
  EXPECT_NEAR(costs.Prefill(256, 32), 7 * 1.5e-3 + 1.7e-3 + 2 * ((5050 + 15600) / 32.0) * 32e-6, 1e-12);
  EXPECT_EQ(costs.AttendOneRow(1), 0);  // such a layer does not grow by the policy
}

TEST(PredictedCosts, Growing_CopiesAndTouches) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  // 256 + 512 + 768 rows copied, 1024 more touched; 8192 bytes a row and sequence; 1 GB/s for either.
  EXPECT_NEAR(costs.Growing(KvPolicy::kBmc, 256, 1024, 2), 16384 * (1536 + 1536 + 1024) * 1e-9, 1e-12);
  EXPECT_NEAR(costs.Growing(KvPolicy::kReserve, 256, 1024, 1), 8192 * 1024 * 1e-9, 1e-12);
  EXPECT_NEAR(costs.AttendOneRow(2), 2 * 2e-6, 1e-15);
  EXPECT_NEAR(costs.GrowOneRow(2), 16384 * 2e-9, 1e-15);
}

TEST(PredictedCosts, AnyDepthBatchAndChunk_AreMonotone) {
  const MachineProfile profile = NearestBuiltIn(Isa::kAvx512Bf16, 2);
  const ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model), one(profile, model, ThreadUse::kOne);
  for (const size_t batch : {1, 2, 3, 5, 8, 31, 32, 33, 100, 1000}) {
    for (const size_t depth : {0, 1, 100, 5000}) {
      EXPECT_LE(costs.DecodeStep(depth, batch), costs.DecodeStep(depth + 1, batch));
      EXPECT_LE(costs.DecodeStep(depth, batch), costs.DecodeStep(depth, batch + 1));
      EXPECT_LE(costs.DecodeStep(depth, batch), one.DecodeStep(depth, batch));
      EXPECT_LE(costs.Prefill(depth, batch), costs.Prefill(depth + 1, batch));
    }
  }
}

}  // namespace
}  // namespace tidemill
