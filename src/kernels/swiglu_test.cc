#include "kernels/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

constexpr size_t kWidths[] = {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 1536, 4099};

std::vector<float> Gate(TestContext& context, const std::vector<float>& gate, const std::vector<float>& up,
                        size_t rows) {
  std::vector<float> y(gate.size());
  const size_t cols = gate.size() / rows;
  SwiGlu(*context, {gate.data(), rows, cols}, {up.data(), rows, cols}, {y.data(), rows, cols});
  return y;
}

TEST(SwiGlu, EveryLevel_MatchesReference) {
  for (const float amax : {0.5F, 8.0F, 120.0F}) {
    for (const size_t ffn : kWidths) {
      const std::vector<float> gate = RandomFloats(ffn, 2 * ffn, amax), up = RandomFloats(ffn + 1, 2 * ffn, 3);
      std::vector<float> expected(gate.size());
      reference::SwiGlu({gate.data(), 2, ffn}, {up.data(), 2, ffn}, {expected.data(), 2, ffn});
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa);
        EXPECT_TRUE(testing::Within(expected, Gate(context, gate, up, 2),
                                    [&](size_t i) {
                                      return kSwiGluTolerance * std::fabs(static_cast<double>(expected[i])) +
                                             0x1p-121 * std::fabs(static_cast<double>(up[i])) + 0x1p-149;
                                    }))
            << IsaName(isa) << " ffn " << ffn << " amax " << amax;
      }
    }
  }
}

TEST(SwiGlu, EveryLevel_GivesTheBitsOfTheFormula) {
  for (const size_t ffn : kWidths) {
    const std::vector<float> gate = RandomFloats(ffn + 2, 2 * ffn, 95), up = RandomFloats(ffn + 3, 2 * ffn);
    for (const Isa isa : LevelsHere()) {
      std::vector<float> expected(gate.size());
      for (size_t i = 0; i < gate.size(); ++i) expected[i] = Arithmetic::Of(isa).Silu(gate[i]) * up[i];
      TestContext context(isa);
      EXPECT_TRUE(SameBits(expected, Gate(context, gate, up, 2))) << IsaName(isa) << " ffn " << ffn;
    }
  }
}

TEST(SwiGlu, InPlaceOverEitherInputAndThreads_GiveTheSameBits) {
  constexpr size_t kRows = 50, kFfn = 1001;
  const std::vector<float> gate = RandomFloats(1, kRows * kFfn, 9), up = RandomFloats(2, kRows * kFfn);
  for (const Isa isa : LevelsHere()) {
    TestContext one(isa);
    const std::vector<float> expected = Gate(one, gate, up, kRows);
    for (const size_t threads : {1, 2, 3}) {
      TestContext context(isa, threads);
      std::vector<float> g = gate, u = up;
      SwiGlu(*context, {g.data(), kRows, kFfn}, {up.data(), kRows, kFfn}, {g.data(), kRows, kFfn});
      SwiGlu(*context, {gate.data(), kRows, kFfn}, {u.data(), kRows, kFfn}, {u.data(), kRows, kFfn});
      EXPECT_TRUE(SameBits(expected, g)) << IsaName(isa) << " threads " << threads;
      EXPECT_TRUE(SameBits(expected, u)) << IsaName(isa) << " threads " << threads;
    }
  }
}

TEST(SwiGlu, ExtremeGates_GiveTheirLimits) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> gate = {inf, 1e30F, 100, -100, -1e30F, 0, std::numeric_limits<float>::quiet_NaN()};
  const std::vector<float> up(gate.size(), 2.0F);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    const std::vector<float> y = Gate(context, gate, up, 1);
    EXPECT_TRUE(SameBits(std::vector<float>{inf, 2e30F, 200, -0.0F, -0.0F, 0, gate[6]}, y)) << IsaName(isa);
  }
}

TEST(SwiGlu, EveryLevel_GivesTheKeptHash) {
  const std::vector<float> gate = RandomFloats(100, 3 * 1536, 20), up = RandomFloats(101, 3 * 1536);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0x35DDC58AC1E94151 : 0xC8A861D9B9660DA0,
                                  testing::HashOf<float>(Gate(context, gate, up, 3))))
        << IsaName(isa);
  }
}

}  // namespace
}  // namespace tidemill
