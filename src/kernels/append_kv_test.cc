#include "kernels/append_kv.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "kernels/testing/seeded_inputs.h"

namespace tidemill {
namespace {

TEST(AppendKv, EveryLevel_RoundsEachElementOnceAndTouchesNothingElse) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const size_t head_dim : {1, 7, 16, 40, 64, 80}) {
      constexpr size_t kHeads = 3, kLen = 5, kRoom = 9;
      std::vector<float> x = testing::RandomFloats(head_dim, kLen * kHeads * head_dim, 100);
      // Ties, overflow, subnormal halves, infinity, NaN.
      const float special[] = {0x1.002p0F,
                               0x1.006p0F,
                               65519.0F,
                               65520.0F,
                               -1e9F,
                               0x1p-24F,
                               0x1p-25F,
                               0x1.8p-25F,
                               0x1.ffcp-15F,
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN(),
                               -0.0F};
      for (size_t i = 0; i < std::size(special) && i < x.size(); ++i) x[i] = special[i];
      const size_t element = InfoOf(dtype).block_bytes, head_stride = kRoom * head_dim + 3, row = 2;
      std::vector<std::byte> expected(kHeads * head_stride * element, std::byte{0x5A});
      for (size_t t = 0; t < kLen; ++t) {
        for (size_t h = 0; h < kHeads; ++h) {
          for (size_t i = 0; i < head_dim; ++i) {
            const float value = x[(t * kHeads + h) * head_dim + i];
            const uint16_t bits = dtype == DType::kF16 ? FloatToHalf(value) : FloatToBFloat16(value);
            std::byte* at = expected.data() + (h * head_stride + (row + t) * head_dim + i) * element;
            element == 4 ? std::memcpy(at, &value, 4) : std::memcpy(at, &bits, 2);
          }
        }
      }
      for (const Isa isa : testing::LevelsHere()) {
        for (const size_t threads : {1, 3}) {
          testing::TestContext context(isa, threads);
          std::vector<std::byte> cache(expected.size(), std::byte{0x5A});
          AppendKv(*context, {x.data(), kLen, kHeads * head_dim}, head_dim, dtype, head_stride,
                   cache.data() + row * head_dim * element);
          EXPECT_EQ(cache, expected) << IsaName(isa) << " " << InfoOf(dtype).name << " head_dim " << head_dim;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tidemill
