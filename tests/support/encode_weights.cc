#include "tests/support/encode_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "tensor/half.h"
#include "tests/support/gguf_writer.h"

namespace tidemill::testing {
namespace {

float Inverse(float d) { return d == 0 ? 0.0f : 1.0f / d; }

int Nibble(float value) { return std::min(15, static_cast<int>(value)); }

// Elements i and i + 16 share byte i.
std::string PackNibbles(const int (&q)[32]) {
  std::string bytes;
  for (int i = 0; i < 16; ++i) bytes += static_cast<char>(q[i] | (q[i + 16] << 4));
  return bytes;
}

std::string EncodeQ8_0(std::span<const float> x) {
  float amax = 0;
  for (const float v : x) amax = std::max(amax, std::fabs(v));
  const float d = amax / 127;
  const float inverse = Inverse(d);
  std::string bytes = LittleEndian(FloatToHalf(d));
  for (const float v : x) bytes += static_cast<char>(static_cast<int8_t>(std::round(v * inverse)));
  return bytes;
}

std::string EncodeQ4_0(std::span<const float> x) {
  float largest = 0;
  for (const float v : x) largest = std::fabs(v) > std::fabs(largest) ? v : largest;
  const float d = largest / -8;
  const float inverse = Inverse(d);
  int q[32];
  for (size_t i = 0; i < 32; ++i) q[i] = Nibble(x[i] * inverse + 8.5f);
  return LittleEndian(FloatToHalf(d)) + PackNibbles(q);
}

std::string EncodeQ4_1(std::span<const float> x) {
  const auto [min, max] = std::minmax_element(x.begin(), x.end());
  const float d = (*max - *min) / 15;
  const float inverse = Inverse(d);
  int q[32];
  for (size_t i = 0; i < 32; ++i) q[i] = Nibble((x[i] - *min) * inverse + 0.5f);
  return LittleEndian(FloatToHalf(d)) + LittleEndian(FloatToHalf(*min)) + PackNibbles(q);
}

std::string EncodeBlock(DType dtype, std::span<const float> x) {
  switch (dtype) {
    case DType::kF32: return LittleEndian(x[0]);
    case DType::kF16: return LittleEndian(FloatToHalf(x[0]));
    case DType::kBF16: return LittleEndian(FloatToBFloat16(x[0]));
    case DType::kQ8_0: return EncodeQ8_0(x);
    case DType::kQ4_0: return EncodeQ4_0(x);
    case DType::kQ4_1: return EncodeQ4_1(x);
  }
  return {};
}

}  // namespace

std::string EncodeWeights(DType dtype, std::span<const float> values) {
  const size_t block = InfoOf(dtype).block_elements;
  TIDEMILL_CHECK(values.size() % block == 0);
  std::string bytes;
  bytes.reserve(RowBytes(dtype, values.size()));
  for (size_t i = 0; i < values.size(); i += block) bytes += EncodeBlock(dtype, values.subspan(i, block));
  return bytes;
}

float EncodeTolerance(DType dtype, float amax) {
  constexpr float kHalfUlp = 0x1p-11f;  // relative error of a scale stored as a half
  switch (dtype) {
    case DType::kF32: return 0;
    case DType::kF16: return amax * kHalfUlp + 0x1p-25f;
    case DType::kBF16: return amax * 0x1p-8f;
    // Half a step, and the rounding of the scale carried to the largest quotient.
    case DType::kQ8_0: return amax * (0.5f / 127 + 1.01f * kHalfUlp);
    // The end opposite to the largest value has 7 steps of d = amax / 8: up to a whole step is lost there.
    case DType::kQ4_0: return amax * (1.0f / 8 + 1.01f * kHalfUlp);
    // d <= 2 amax / 15, and both d (15 steps) and m are rounded.
    case DType::kQ4_1: return amax * (1.0f / 15 + 3.1f * kHalfUlp);
  }
  return 0;
}

}  // namespace tidemill::testing
