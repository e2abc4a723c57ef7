// 8-bit floating point, as safetensors files hold it, to f16, which holds every value of both types exactly.
//   F8_E4M3  1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity: S.1111.111 is NaN, the largest is 448 ("E4M3FN")
//   F8_E5M2  the upper byte of an f16
// A NaN becomes a quiet NaN with its sign.
#ifndef TIDEMILL_FORMATS_F8_H_
#define TIDEMILL_FORMATS_F8_H_

#include <bit>
#include <cstdint>

namespace tidemill {

constexpr uint16_t F8E4M3ToHalf(uint8_t f8) {
  const auto sign = static_cast<uint32_t>(f8 & 0x80U) << 8;
  const uint32_t magnitude = f8 & 0x7FU;
  if (magnitude == 0x7F) return static_cast<uint16_t>(sign | 0x7E00U);
  // Exponent and mantissa stand 7 bits higher; the bias is 15 instead of 7.
  if (magnitude >= 8) return static_cast<uint16_t>(sign | ((magnitude << 7) + (8U << 10)));
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  const auto width = static_cast<uint32_t>(std::bit_width(magnitude));  // the value is magnitude * 2^-9: normal in f16
  return static_cast<uint16_t>(sign | ((width + 5) << 10) | ((magnitude << (11 - width)) & 0x3FFU));
}

constexpr uint16_t F8E5M2ToHalf(uint8_t f8) {
  const bool nan = (f8 & 0x7FU) > 0x7CU;
  return static_cast<uint16_t>((static_cast<uint32_t>(f8) << 8) | (nan ? 0x200U : 0U));
}

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_F8_H_
