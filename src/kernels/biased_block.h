// A block of 32 activations as the AVX2 kernel of Q8_0 wants it for many rows (cpu/biased_block_avx2-inl.h). Plain data without a
// standard-library class, so that files compiled for one instruction-set level can include it.
#ifndef TIDEMILL_KERNELS_BIASED_BLOCK_H_
#define TIDEMILL_KERNELS_BIASED_BLOCK_H_

#include <stddef.h>
#include <stdint.h>

namespace tidemill {

struct BiasedBlock {
  int16_t q[32];  // the quants + 128, in the order of QuantizedRows::pairs
  float d;
  int32_t rest;  // kBiasedRest - 128 * (sum of the quants)
};
static_assert(sizeof(BiasedBlock) == 72);

inline constexpr int kBias = 128;
inline constexpr int32_t kBiasedRest =
    0x4B400000;  // the bits of 1.5 * 2^23: small integers added to them are added to the number

// Rows stand in tiles, a tile's rows side by side in each block: one stream of memory for a kernel that takes a tile at a time.
inline constexpr size_t kBiasedTileRows = 4;
// Of row r, of so many blocks: where block 0 stands; block b is b * kBiasedTileRows further on.
[[gnu::always_inline]] constexpr size_t BiasedIndex(size_t r, size_t blocks) {
  return r / kBiasedTileRows * blocks * kBiasedTileRows + r % kBiasedTileRows;
}

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_BIASED_BLOCK_H_
