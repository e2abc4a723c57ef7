#include "kernels/short_convolution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/activation.h"
#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::short_convolution_test {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kChannels[] = {1, 3, 4, 8, 15, 16, 17, 40, 63, 64, 65, 100, 8192};
constexpr size_t kWidths[] = {1, 2, 3, 4};

// Rows of one sequence or several, in a matrix with NaN between its rows; the first rows of a sequence have fewer predecessors than others.
struct Inputs {
  size_t rows, channels, width, stride;
  std::vector<float> x, w;
  std::vector<const float*> pointers;  // [rows * width]

  Inputs(size_t r, size_t c, size_t width_, uint64_t seed, float amax = 3, size_t sequence = 7)
      : rows(r), channels(c), width(width_), stride(c + 3), x(r * stride, kNan), w(width_ * stride, kNan) {
    testing::Random random(seed);
    for (size_t t = 0; t < rows; ++t) {
      for (size_t i = 0; i < channels; ++i) x[t * stride + i] = random.Uniform(amax);
    }
    for (size_t i = 0; i < width; ++i) {
      for (size_t j = 0; j < channels; ++j) w[i * stride + j] = random.Uniform(2);
    }
    for (size_t t = 0; t < rows; ++t) {
      for (size_t back = width; back-- > 0;)
        pointers.push_back(t % sequence >= back ? x.data() + (t - back) * stride : nullptr);
    }
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  ConstMatrix<float> weights() const { return {w.data(), width, channels, stride}; }
  std::span<const float* const> Row(size_t t) const { return std::span(pointers).subspan(t * width, width); }

  std::vector<float> Apply(TestContext& context) const {
    std::vector<float> y(rows * stride, -77.0F);
    ShortConvolution(*context, pointers, weights(), {y.data(), rows, channels, stride});
    return y;
  }
  std::vector<float> Formula(Arithmetic math) const {
    std::vector<float> y;
    for (size_t t = 0; t < rows; ++t) {
      const std::vector<float> row = testing::ShortConvolution(math, Row(t), weights());
      y.insert(y.end(), row.begin(), row.end());
      y.insert(y.end(), stride - channels, -77.0F);  // what lies between rows stays
    }
    return y;
  }
};

TEST(ShortConvolution, EveryLevel_MatchesReference) {
  for (const size_t width : kWidths) {
    for (const size_t channels : kChannels) {
      for (const float amax : {0.1F, 3.0F, 60.0F}) {
        const Inputs in(9, channels, width, channels, amax);
        std::vector<float> expected(in.rows * in.stride, -77.0F);
        reference::ShortConvolution(in.pointers, in.weights(), {expected.data(), in.rows, channels, in.stride});
        std::vector<double> sums(expected.size());
        for (size_t t = 0; t < in.rows; ++t) {
          for (size_t i = 0; i < width; ++i) {
            for (size_t c = 0; c < channels && in.Row(t)[i] != nullptr; ++c)
              sums[t * in.stride + c] += std::fabs(static_cast<double>(in.Row(t)[i][c] * in.weights().row(i)[c]));
          }
        }
        for (const Isa isa : LevelsHere()) {
          TestContext context(isa);
          EXPECT_TRUE(testing::Within(expected, in.Apply(context),
                                      [&](size_t i) {  // the reference's own rounding besides
                                        return ShortConvolutionTolerance(width, sums[i]) +
                                               0x1p-24 * std::fabs(static_cast<double>(expected[i]));
                                      }))
              << IsaName(isa) << " width " << width << " channels " << channels;
        }
      }
    }
  }
}

TEST(ShortConvolution, EveryLevelAndAnyNumberOfThreads_GivesTheBitsOfTheFormula) {
  for (const size_t width : kWidths) {
    for (const size_t channels : kChannels) {
      for (const size_t rows : {1, 2, 23}) {
        const Inputs in(rows, channels, width, channels + rows);
        for (const Isa isa : LevelsHere()) {
          const std::vector<float> expected = in.Formula(Arithmetic::Of(isa));
          for (const size_t threads : {1, 2, 3}) {
            TestContext context(isa, threads);
            EXPECT_TRUE(SameBits(expected, in.Apply(context)))
                << IsaName(isa) << " width " << width << " channels " << channels << " rows " << rows << " threads "
                << threads;
          }
        }
      }
    }
  }
}

// 301 rows of 40 channels and 3 of 8200: several blocks of rows, several spans of channels that differ in length.
TEST(ShortConvolution, RowsAlone_GiveTheBitsOfRowsTogether) {
  for (const auto& [rows, channels] : {std::pair<size_t, size_t>(301, 40), {3, 8200}, {40, 1030}}) {
    const Inputs in(rows, channels, 4, rows);
    for (const Isa isa : LevelsHere()) {
      TestContext together(isa, 3), alone(isa);
      const std::vector<float> y = in.Apply(together);
      for (size_t t = 0; t < rows; ++t) {
        std::vector<float> row(channels);
        ShortConvolution(*alone, in.Row(t), in.weights(), {row.data(), 1, channels});
        ASSERT_TRUE(SameBits(row, std::span(y).subspan(t * in.stride, channels))) << IsaName(isa) << " row " << t;
      }
    }
  }
}

TEST(ShortConvolution, OneWeightOf1_GivesTheBitsOfSilu) {
  constexpr size_t kColumns = 1003;
  const std::vector<float> x = RandomFloats(4, kColumns, 95), w(kColumns, 1.0F);
  const float* input = x.data();
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> silu(kColumns), y(kColumns);
    Activate(*context, Activation::kSilu, {x.data(), 1, kColumns}, {silu.data(), 1, kColumns});
    ShortConvolution(*context, {&input, 1}, {w.data(), 1, kColumns}, {y.data(), 1, kColumns});
    EXPECT_TRUE(SameBits(silu, y)) << IsaName(isa);
  }
}

TEST(ShortConvolution, NullInputs_AreSkippedWithTheirWeights) {
  constexpr size_t kColumns = 37;
  const std::vector<float> x = RandomFloats(5, kColumns);
  std::vector<float> w = RandomFloats(6, 4 * kColumns);
  std::fill_n(w.begin(), kColumns, kInf);
  std::fill_n(w.begin() + 2 * kColumns, kColumns, kNan);
  const std::vector<const float*> inputs = {nullptr, x.data(), nullptr, x.data(), nullptr, nullptr, nullptr, nullptr};
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    const Arithmetic math = Arithmetic::Of(isa);
    std::vector<float> expected, y(2 * kColumns);
    for (size_t c = 0; c < kColumns; ++c)
      expected.push_back(math.Silu(math.MulAdd(w[3 * kColumns + c], x[c], w[kColumns + c] * x[c])));
    expected.resize(2 * kColumns);  // the second row has none: silu(0)
    ShortConvolution(*context, inputs, {w.data(), 4, kColumns}, {y.data(), 2, kColumns});
    EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa);
  }
}

TEST(ShortConvolution, NaN_StaysInItsChannel) {
  for (const size_t channel : {0, 5, 63, 64, 80, 99}) {
    Inputs in(3, 100, 4, 8);
    in.x[in.stride + channel] = kNan;
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const std::vector<float> y = in.Apply(context);
      EXPECT_TRUE(SameBits(in.Formula(Arithmetic::Of(isa)), y)) << IsaName(isa);
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(std::isnan(y[i]), i == in.stride + channel || i == 2 * in.stride + channel)
            << IsaName(isa) << " at " << i;
      }
    }
  }
}

TEST(ShortConvolution, ExtremeSums_GiveTheLimitsOfSilu) {
  const std::vector<float> x = {kInf, 1e30F, 100, -100, -1e30F}, w(x.size(), 1.0F);
  const float* input = x.data();
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y(x.size());
    ShortConvolution(*context, {&input, 1}, {w.data(), 1, x.size()}, {y.data(), 1, x.size()});
    EXPECT_TRUE(SameBits(std::vector<float>{kInf, 1e30F, 100, -0.0F, -0.0F}, y)) << IsaName(isa);
  }
}

TEST(ShortConvolution, NoRowsOrNoChannels_DoNothing) {
  TestContext context(Isa::kBaseline);
  const std::vector<float> w(20);
  const std::vector<const float*> none(12);
  ShortConvolution(*context, {}, {w.data(), 4, 5}, {nullptr, 0, 5});
  ShortConvolution(*context, none, {nullptr, 4, 0}, {nullptr, 3, 0});
}

TEST(ShortConvolution, Cost_CountsEachInputOnce) {
  const Cost cost = ShortConvolutionCost(3, 4, 5);
  EXPECT_EQ(cost.bytes, 4 * (2 * 3 * 5 + 4 * 5));
  EXPECT_EQ(cost.flops, 3 * 5 * (2 * 4 + 20));
}

TEST(ShortConvolution, EveryLevel_GivesTheKeptHash) {
  const Inputs in(20, 100, 4, 11);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0x0001E4BE08AA3E80 : 0x3CE04C0D309C52A5,
                                  testing::HashOf<float>(in.Apply(context))))
        << IsaName(isa);
  }
}

}  // namespace
}  // namespace tidemill::short_convolution_test
