// 16-bit floating point, bit by bit: the plain conversions that files, tests and reference kernels use.
//   half     (IEEE binary16)  1 sign, 5 exponent (bias 15), 10 mantissa bits
//   bfloat16                  the upper 16 bits of a binary32
// To f32 is exact. From f32 rounds to nearest, ties to even; overflow becomes infinity, and subnormals are kept. A NaN
// stays a NaN: it becomes quiet and keeps its sign and as much of its payload as fits, which is what x86's VCVTPS2PH
// and VCVTPH2PS do.
#ifndef TIDEMILL_TENSOR_HALF_H_
#define TIDEMILL_TENSOR_HALF_H_

#include <bit>
#include <cstdint>

namespace tidemill {

constexpr float HalfToFloat(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0x1F) {
    if (mantissa != 0) mantissa |= 0x200U;
    return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  }
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  const auto width = static_cast<uint32_t>(std::bit_width(mantissa));  // the value is mantissa * 2^-24
  const uint32_t fraction = (mantissa << (24 - width)) & 0x7FFFFFU;
  return std::bit_cast<float>(sign | ((width + 102) << 23) | fraction);
}

constexpr uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  uint32_t half = 0;
  if (magnitude > 0x7F800000U) {  // NaN
    half = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  } else if (magnitude >= 0x47800000U) {  // 2^16 and above, infinity
    half = 0x7C00U;
  } else if (magnitude >= 0x38800000U) {  // 2^-14 and above: normal; a carry may end in infinity, as it should
    half = (magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  } else if (magnitude >= 0x33000000U) {  // 2^-25 and above: subnormal in units of 2^-24
    const uint32_t shift = 126 - (magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
    const uint32_t rest = mantissa & ((1U << shift) - 1);
    const uint32_t tie = 1U << (shift - 1);
    half = mantissa >> shift;
    if (rest > tie || (rest == tie && (half & 1U) != 0)) ++half;
  }
  return static_cast<uint16_t>(sign | half);
}

constexpr float BFloat16ToFloat(uint16_t bfloat16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat16) << 16);
}

constexpr uint16_t FloatToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace tidemill

#endif  // TIDEMILL_TENSOR_HALF_H_
