// Tables against transformers 5.23.0 (torch in f32). Every row of numbers below was printed by
//   from transformers import LlamaConfig
//   from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS as R
//   def show(kind, n=None, **p):
//       c = LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16,
//                       max_position_embeddings=64 if kind == 'dynamic' else 256, rope_parameters=dict(rope_type=kind, **p))
//       f, a = R[kind](c, 'cpu', seq_len=n)
//       print(', '.join('%.9g' % x for x in f.tolist()), a)
// with the arguments beside it.
#include "models/rope_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/thread_pool.h"

namespace tidemill::rope_table_test {
namespace {

constexpr size_t kRotaryDim = 16, kHalf = kRotaryDim / 2;
using Frequencies = std::array<double, kHalf>;

// A power and a few products and quotients in f32: some units of 2^-24.
constexpr double kTolerance = 16 * 0x1p-24;

void ExpectFrequencies(const RopeSettings& settings, const Frequencies& expected) {
  const RopeTable table = MakeRopeTable(settings, kRotaryDim);
  ASSERT_EQ(table.rotary_dim(), kRotaryDim);
  for (size_t i = 0; i < kHalf; ++i)
    EXPECT_NEAR(static_cast<double>(table.inv_freq[i]), expected[i], kTolerance * expected[i]) << "dimension " << i;
}

class Rows {
 public:
  Rows(const RopeSettings& settings, const std::vector<uint32_t>& positions)
      : threads_(std::move(ThreadPool::Create(1)).value()),
        cos_(positions.size() * kHalf),
        sin_(positions.size() * kHalf) {
    ExecutionContext ctx = std::move(ExecutionContext::Create(DetectIsa(), threads_.get(), 0)).value();
    FillRopeRows(ctx, MakeRopeTable(settings, kRotaryDim), positions, {cos_.data(), positions.size(), kHalf},
                 {sin_.data(), positions.size(), kHalf});
  }

  double Cos(size_t row, size_t i) const { return static_cast<double>(cos_[row * kHalf + i]); }
  double Sin(size_t row, size_t i) const { return static_cast<double>(sin_[row * kHalf + i]); }

  void ExpectAngles(size_t row, uint32_t position, const Frequencies& expected, double factor = 1) const {
    for (size_t i = 0; i < kHalf; ++i) {
      const double angle = position * expected[i], tolerance = factor * kTolerance * (1 + angle);
      EXPECT_NEAR(Cos(row, i), factor * std::cos(angle), tolerance) << "position " << position << " dimension " << i;
      EXPECT_NEAR(Sin(row, i), factor * std::sin(angle), tolerance) << "position " << position << " dimension " << i;
    }
  }

 private:
  std::unique_ptr<ThreadPool> threads_;
  std::vector<float> cos_, sin_;
};

TEST(RopeTable, Linear_MatchesTransformers) {
  // show('linear', rope_theta=10000.0, factor=4.0)
  ExpectFrequencies(
      {.scaling = RopeScaling::kLinear, .factor = 4},
      {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05});
}

TEST(RopeTable, Llama3_MatchesTransformers) {
  // show('llama3', rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
  //      original_max_position_embeddings=64): one dimension kept, one between, six divided
  ExpectFrequencies(
      {.theta = 500000,
       .scaling = RopeScaling::kLlama3,
       .factor = 8,
       .original_max_position_embeddings = 64,
       .low_freq_factor = 1,
       .high_freq_factor = 4},
      {1, 0.079403013, 0.00470075384, 0.000911583134, 0.000176776681, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06});
}

TEST(RopeTable, Yarn_MatchesTransformers) {
  // show('yarn', rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)
  RopeSettings settings{.scaling = RopeScaling::kYarn, .factor = 4, .original_max_position_embeddings = 64};
  ExpectFrequencies(settings, {1, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466,
                               0.000250000012, 7.90569466e-05});
  // The same with truncate=False: the ramp's ends are no whole numbers.
  settings.truncate = false;
  ExpectFrequencies(settings, {1, 0.198583528, 0.0255952496, 0.00790569466, 0.00249999994, 0.000790569466,
                               0.000250000012, 7.90569466e-05});
}

TEST(RopeTable, YarnAttentionFactor_MultipliesCosinesAndSines) {
  // show('yarn', rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64) ends with 1.138629436111989.
  const double factor = 1.138629436111989;
  const Rows rows(
      {.scaling = RopeScaling::kYarn, .factor = 4, .original_max_position_embeddings = 64, .attention_factor = factor},
      {0, 100});
  const Frequencies expected = {
      1, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05};
  rows.ExpectAngles(0, 0, expected, factor);
  rows.ExpectAngles(1, 100, expected, factor);
}

TEST(RopeTable, Dynamic_GivesEachPositionTheBaseOfItsOwnLength) {
  // show('dynamic', n, rope_theta=10000.0, factor=2.0) with n = 64 (as below it), 65, 100, 256; the position is n - 1.
  const std::pair<uint32_t, Frequencies> expected[] = {
      {63, {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786}},
      {64, {1, 0.314840704, 0.0991246626, 0.0312084779, 0.00982569903, 0.00309352996, 0.000973969174, 0.000306645117}},
      {99, {1, 0.283945143, 0.0806248412, 0.0228930302, 0.00650036521, 0.001845747, 0.000524090894, 0.000148813066}},
      {255, {1, 0.239481375, 0.057351321, 0.0137345716, 0.00328917382, 0.00078769587, 0.000188638471, 4.51753949e-05}}};
  std::vector<uint32_t> positions;
  for (const auto& [position, frequencies] : expected) positions.push_back(position);
  const Rows rows({.scaling = RopeScaling::kDynamic, .factor = 2, .original_max_position_embeddings = 64}, positions);
  for (size_t row = 0; row < positions.size(); ++row) rows.ExpectAngles(row, positions[row], expected[row].second);
}

TEST(RopeTable, Dynamic_HasTheSameBitsWithAnyBatchMates) {
  const RopeSettings settings{.scaling = RopeScaling::kDynamic, .factor = 2, .original_max_position_embeddings = 64};
  const Rows together(settings, {10, 80, 200}), alone(settings, {80});
  for (size_t i = 0; i < kHalf; ++i) {
    EXPECT_EQ(together.Cos(1, i), alone.Cos(0, i)) << i;
    EXPECT_EQ(together.Sin(1, i), alone.Sin(0, i)) << i;
  }
}

TEST(RopeTable, DivisorsOfTheFile_DivideEachFrequency) {
  const std::vector<float> divisors = {1, 1, 2, 4, 8, 8, 8, 8};
  const RopeTable plain = MakeRopeTable({}, kRotaryDim), divided = MakeRopeTable({}, kRotaryDim, divisors);
  for (size_t i = 0; i < kHalf; ++i) EXPECT_EQ(divided.inv_freq[i], plain.inv_freq[i] / divisors[i]) << i;
}

TEST(RopeTable, TwoDimensions_HaveOneFrequencyWhateverTheScaling) {
  for (const RopeScaling scaling : {RopeScaling::kNone, RopeScaling::kDynamic, RopeScaling::kYarn}) {
    const RopeTable table =
        MakeRopeTable({.scaling = scaling, .factor = 2, .original_max_position_embeddings = 1e6}, 2);
    ASSERT_EQ(table.inv_freq.size(), 1U);
    EXPECT_EQ(table.inv_freq[0], 1.0f);
  }
}

}  // namespace
}  // namespace tidemill::rope_table_test
