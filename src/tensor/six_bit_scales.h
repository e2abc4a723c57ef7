// The scales of Q4_K and Q5_K: eight sub-blocks' factor and minimum, 6 bits each, in 12 bytes.
//   byte j     (0..3)   bits 0-5: sc[j]          bits 6-7: bits 4-5 of sc[j + 4]
//   byte j + 4          bits 0-5: m[j]           bits 6-7: bits 4-5 of m[j + 4]
//   byte j + 8          bits 0-3: bits 0-3 of sc[j + 4]    bits 4-7: bits 0-3 of m[j + 4]
#ifndef TIDEMILL_TENSOR_SIX_BIT_SCALES_H_
#define TIDEMILL_TENSOR_SIX_BIT_SCALES_H_

#include <cstddef>
#include <cstdint>

namespace tidemill {

struct SixBitScale {
  uint8_t sc, m;  // 0..63
};

// Sub-block j of 8; s: 12 bytes.
inline SixBitScale ReadSixBitScale(const std::byte* s, size_t j) {
  const auto byte = [s](size_t i) { return std::to_integer<unsigned>(s[i]); };
  if (j < 4) return {static_cast<uint8_t>(byte(j) & 63U), static_cast<uint8_t>(byte(j + 4) & 63U)};
  return {static_cast<uint8_t>((byte(j + 4) & 15U) | (byte(j - 4) >> 6 << 4)),
          static_cast<uint8_t>((byte(j + 4) >> 4) | (byte(j) >> 6 << 4))};
}

}  // namespace tidemill

#endif  // TIDEMILL_TENSOR_SIX_BIT_SCALES_H_
