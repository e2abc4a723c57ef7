#include "tests/support/encode_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "tensor/half.h"
#include "tests/support/gguf_writer.h"

namespace tidemill::testing {
namespace {

float Inverse(float d) { return d == 0 ? 0.0f : 1.0f / d; }

int Quant(float value, int largest) { return std::clamp(static_cast<int>(value), 0, largest); }

// Elements i and i + 16 share byte i.
std::string PackNibbles(const int (&q)[32]) {
  std::string bytes;
  for (int i = 0; i < 16; ++i) bytes += static_cast<char>((q[i] & 15) | ((q[i + 16] & 15) << 4));
  return bytes;
}

std::string PackFifthBits(const int (&q)[32]) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(q[i] >> 4) << i;
  return LittleEndian(bits);
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

// Q4_0 and Q5_0: `steps` below zero, one less above.
std::string EncodeSymmetric(std::span<const float> x, int steps) {
  float largest = 0;
  for (const float v : x) largest = std::fabs(v) > std::fabs(largest) ? v : largest;
  const float d = largest / static_cast<float>(-steps);
  const float inverse = Inverse(d);
  int q[32];
  for (size_t i = 0; i < 32; ++i) q[i] = Quant(x[i] * inverse + static_cast<float>(steps) + 0.5f, 2 * steps - 1);
  return LittleEndian(FloatToHalf(d)) + (steps == 16 ? PackFifthBits(q) : "") + PackNibbles(q);
}

// Q4_1 and Q5_1: quants up to `largest`.
std::string EncodeFromMinimum(std::span<const float> x, int largest) {
  const auto [min, max] = std::minmax_element(x.begin(), x.end());
  const float d = (*max - *min) / static_cast<float>(largest);
  const float inverse = Inverse(d);
  int q[32];
  for (size_t i = 0; i < 32; ++i) q[i] = Quant((x[i] - *min) * inverse + 0.5f, largest);
  return LittleEndian(FloatToHalf(d)) + LittleEndian(FloatToHalf(*min)) + (largest == 31 ? PackFifthBits(q) : "") +
         PackNibbles(q);
}

// d and q[i] = round(values[i] / d) with the d that a file keeps, so that the largest becomes `largest`.
struct ScaleOfScales {
  float d;
  std::array<int, 16> q{};
  ScaleOfScales(std::span<const float> values, int largest) {
    const float greatest = *std::max_element(values.begin(), values.end());
    d = HalfToFloat(FloatToHalf(greatest / static_cast<float>(largest)));
    for (size_t i = 0; i < values.size(); ++i) {
      q[i] = std::min(largest, static_cast<int>(std::lround(values[i] * Inverse(d))));
    }
  }
};

// Q4_K and Q5_K: quants up to `largest`.
std::string EncodeWithMinima(std::span<const float> x, int largest) {
  std::array<float, 8> steps, minima;
  for (size_t j = 0; j < 8; ++j) {
    const std::span<const float> part = x.subspan(32 * j, 32);
    const auto [min, max] = std::minmax_element(part.begin(), part.end());
    minima[j] = std::max(0.0f, -*min);
    steps[j] = (std::max(0.0f, *max) + minima[j]) / static_cast<float>(largest);
  }
  const ScaleOfScales d(steps, 63), dmin(minima, 63);
  std::string scales(12, '\0'), high(32, '\0'), nibbles(128, '\0');
  const auto add = [](std::string& bytes, size_t i, int bits) { bytes[i] = static_cast<char>(bytes[i] | bits); };
  for (size_t j = 0; j < 8; ++j) {
    const int sc = d.q[j], m = dmin.q[j];
    if (j < 4) {
      add(scales, j, sc);
      add(scales, j + 4, m);
    } else {
      add(scales, j + 4, (sc & 15) | ((m & 15) << 4));
      add(scales, j - 4, sc >> 4 << 6);
      add(scales, j, m >> 4 << 6);
    }
    const float inverse = Inverse(d.d * static_cast<float>(sc)), minimum = dmin.d * static_cast<float>(m);
    for (size_t l = 0; l < 32; ++l) {
      const int q = Quant((x[32 * j + l] + minimum) * inverse + 0.5f, largest);
      add(nibbles, j / 2 * 32 + l, (q & 15) << (j % 2 * 4));
      add(high, l, q >> 4 << j);
    }
  }
  return LittleEndian(FloatToHalf(d.d)) + LittleEndian(FloatToHalf(dmin.d)) + scales + (largest == 31 ? high : "") +
         nibbles;
}

std::string EncodeQ6_K(std::span<const float> x) {
  std::array<float, 16> steps;  // of either sign: the element of largest magnitude becomes -32
  std::array<float, 16> magnitudes;
  for (size_t s = 0; s < 16; ++s) {
    float largest = 0;
    for (const float v : x.subspan(16 * s, 16)) largest = std::fabs(v) > std::fabs(largest) ? v : largest;
    steps[s] = largest / -32;
    magnitudes[s] = std::fabs(steps[s]);
  }
  const ScaleOfScales d(magnitudes, 127);
  std::string nibbles(128, '\0'), high(64, '\0'), scales;
  const auto add = [](std::string& bytes, size_t i, int bits) { bytes[i] = static_cast<char>(bytes[i] | bits); };
  for (size_t i = 0; i < 256; ++i) {
    const int sc = steps[i / 16] < 0 ? -d.q[i / 16] : d.q[i / 16];
    if (i % 16 == 0) scales += static_cast<char>(static_cast<int8_t>(sc));
    const int q = Quant(x[i] * Inverse(d.d * static_cast<float>(sc)) + 32.5f, 63);
    const size_t p = i / 128, c = i % 128 / 32, l = i % 32;
    add(nibbles, 64 * p + 32 * (c % 2) + l, (q & 15) << (c / 2 * 4));
    add(high, 32 * p + l, q >> 4 << (2 * c));
  }
  return nibbles + high + scales + LittleEndian(FloatToHalf(d.d));
}

std::string EncodeBlock(DType dtype, std::span<const float> x) {
  switch (dtype) {
    case DType::kF32: return LittleEndian(x[0]);
    case DType::kF16: return LittleEndian(FloatToHalf(x[0]));
    case DType::kBF16: return LittleEndian(FloatToBFloat16(x[0]));
    case DType::kQ8_0: return EncodeQ8_0(x);
    case DType::kQ4_0: return EncodeSymmetric(x, 8);
    case DType::kQ4_1: return EncodeFromMinimum(x, 15);
    case DType::kQ5_0: return EncodeSymmetric(x, 16);
    case DType::kQ5_1: return EncodeFromMinimum(x, 31);
    case DType::kQ4_K: return EncodeWithMinima(x, 15);
    case DType::kQ5_K: return EncodeWithMinima(x, 31);
    case DType::kQ6_K: return EncodeQ6_K(x);
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
    case DType::kQ5_0: return amax * (1.0f / 16 + 1.01f * kHalfUlp);
    case DType::kQ5_1: return amax * (1.0f / 31 + 3.1f * kHalfUlp);
    // Half a step of at most 2 amax / largest; sc is off by half of d = step / 63 and loses that `largest` times at the far end;
    // so is m of dmin = amax / 63. Where sc came out larger, the half step grows by 1 / 126. d and dmin round as halves.
    case DType::kQ4_K: return amax * (1.01f / 15 + 1.0f / 63 + 0.5f / 63 + 3.1f * kHalfUlp);
    case DType::kQ5_K: return amax * (1.01f / 31 + 1.0f / 63 + 0.5f / 63 + 3.1f * kHalfUlp);
    // As Q4_0 with 32 steps, and sc off by half of d = amax / (32 * 127), 32 times; the same for a half step.
    case DType::kQ6_K: return amax * (1.01f / 32 + 0.5f / 127 + 1.01f * kHalfUlp);
  }
  return 0;
}

}  // namespace tidemill::testing
