#include "kernels/key_tiles.h"

#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "kernels/attention.h"

namespace tidemill {
namespace {

// [rows, cols] of words to [cols, rows].
template <typename Word>
void Transpose(size_t rows, size_t cols, std::byte* at) {
  alignas(64) Word copy[kKeyTileRows * kMaxHeadDim];
  std::memcpy(copy, at, rows * cols * sizeof(Word));
  auto* out = reinterpret_cast<Word*>(at);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) out[c * rows + r] = copy[r * cols + c];
  }
}

void Transpose(DType dtype, size_t rows, size_t cols, std::byte* at) {
  TIDEMILL_DCHECK(HasKeyTiles(dtype) && rows * cols <= kKeyTileRows * kMaxHeadDim);
  if (dtype == DType::kF32) return Transpose<uint32_t>(rows, cols, at);
  Transpose<uint16_t>(rows, cols, at);
}

}  // namespace

void TransposeKeys(DType dtype, size_t head_dim, std::byte* keys) { Transpose(dtype, kKeyTileRows, head_dim, keys); }
void TransposeKeysBack(DType dtype, size_t head_dim, std::byte* keys) {
  Transpose(dtype, head_dim, kKeyTileRows, keys);
}

}  // namespace tidemill
