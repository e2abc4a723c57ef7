// Transposed key tiles: a tile of 16 rows of keys, transposed where it stands, so that attention reads it as it needs it.
//
//   rows : [16, head_dim]     tile : [head_dim, 16]     in the same memory
//
// Lanes of attention are positions: of rows it has to transpose every key for every step, a third of its time in a cache.
#ifndef TIDEMILL_KERNELS_KEY_TILES_H_
#define TIDEMILL_KERNELS_KEY_TILES_H_

#include <cstddef>

#include "tensor/dtype.h"

namespace tidemill {

inline constexpr size_t kKeyTileRows = 16;

// Not of blocks along head_dim, whose elements share a scale.
constexpr bool HasKeyTiles(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Where element d of a key stands, in elements from the first row of its head, of which the first `transposed` rows are transposed.
constexpr size_t KeyElement(size_t transposed, size_t head_dim, size_t row, size_t d) {
  if (row >= transposed) return row * head_dim + d;
  return row / kKeyTileRows * kKeyTileRows * head_dim + d * kKeyTileRows + row % kKeyTileRows;
}

// Rows to tile and tile to rows, head_dim at most kMaxHeadDim. Bits stay as they are. Allocate nothing.
void TransposeKeys(DType dtype, size_t head_dim, std::byte* keys);
void TransposeKeysBack(DType dtype, size_t head_dim, std::byte* keys);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_KEY_TILES_H_
