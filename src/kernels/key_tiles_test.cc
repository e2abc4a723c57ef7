#include "kernels/key_tiles.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/attention.h"

namespace tidemill::key_tiles_test {
namespace {

TEST(KeyTiles, Transposed_AreTransposedAndComeBack) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const size_t head_dim : {size_t{1}, size_t{40}, size_t{64}, kMaxHeadDim}) {
      const size_t element = RowBytes(dtype, 1), bytes = kKeyTileRows * head_dim * element;
      std::vector<std::byte> rows(bytes + 1, std::byte{0xA5});
      for (size_t i = 0; i < bytes; ++i) rows[i] = static_cast<std::byte>(i * 31 + i / 256);
      std::vector<std::byte> tile = rows;
      TransposeKeys(dtype, head_dim, tile.data());
      for (size_t r = 0; r < kKeyTileRows; ++r) {
        for (size_t d = 0; d < head_dim; ++d) {
          ASSERT_EQ(0, std::memcmp(tile.data() + (d * kKeyTileRows + r) * element,
                                   rows.data() + (r * head_dim + d) * element, element));
        }
      }
      EXPECT_EQ(tile.back(), rows.back());
      TransposeKeysBack(dtype, head_dim, tile.data());
      EXPECT_EQ(tile, rows);
    }
  }
}

}  // namespace
}  // namespace tidemill::key_tiles_test
