#include "kernels/testing/bit_formulas.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/checked_math.h"
#include "kernels/activations.h"
#include "kernels/delta_inputs.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"
#include "tensor/six_bit_scales.h"

namespace tidemill::testing {

float Arithmetic::Exp(float x) const {
  if (std::isnan(x)) return x;
  const float clamped = std::clamp(x, -104.0F, 89.0F);
  const float n = std::nearbyint(clamped * 0x1.715476p+0F);
  float r = MulAdd(n, -0x1.63p-1F, clamped);
  r = MulAdd(n, 0x1.bd0106p-13F, r);
  float p = 0x1.6a244cp-10F;
  for (const float c : {0x1.1239d4p-7F, 0x1.5558f2p-5F, 0x1.555492p-3F, 0x1.fffffcp-2F, 1.0F, 1.0F})
    p = MulAdd(p, r, c);
  const int whole = static_cast<int>(n);
  const int half = whole >> 1;
  return p * std::ldexp(1.0F, half) * std::ldexp(1.0F, whole - half);
}

float Arithmetic::Tanh(float x) const {
  const float a = std::fabs(x), z = a * a;
  if (!(a < 0.625F)) return std::copysign(1.0F - 2.0F / (Exp(a + a) + 1.0F), x);
  float p = -0x1.750ce2p-8F;
  for (const float c : {0x1.51f8cep-6F, -0x1.b835a4p-5F, 0x1.1106f6p-3F, -0x1.555532p-2F}) p = MulAdd(p, z, c);
  return std::copysign(MulAdd(a, p * z, a), x);
}

float Arithmetic::Erf(float x) const {
  const float a = std::fabs(x);
  if (a < 1) {
    float p = 0x1.4771fcp-14F;
    for (const float c :
         {-0x1.a3515ep-11F, 0x1.53f224p-8F, -0x1.b7f71ap-6F, 0x1.ce2ce6p-4F, -0x1.81273ep-2F, 0x1.06eba8p-3F})
      p = MulAdd(p, a * a, c);
    return std::copysign(MulAdd(a, p, a), x);
  }
  const float t = a > 4 ? 4.0F : a;
  float q = 0x1.b8c71ap-13F;
  for (const float c : {-0x1.a136ecp-9F, 0x1.755376p-6F, -0x1.ae79b8p-4F, -0x1.458dacp-1F, -0x1.20e3c6p+0F})
    q = MulAdd(q, t, c);
  return std::copysign(1.0F - Exp(t * q), x);
}

float Arithmetic::Log1p(float y) const {
  const float s = y / (2.0F + y), z = s * s;
  float p = 0x1.1ecb1ap-2F;
  for (const float c : {0x1.1ec012p-2F, 0x1.99d1cep-2F, 0x1.555502p-1F}) p = MulAdd(p, z, c);
  return MulAdd(-s, MulAdd(-z, p, y), y);
}

float Arithmetic::Silu(float x) const { return x / (1.0F + Exp(-x)); }
float Arithmetic::Sigmoid(float x) const { return 1.0F / (1.0F + Exp(-x)); }

float Arithmetic::Activate(Activation kind, float x) const {
  if (kind == Activation::kSilu) return Silu(x);
  if (kind == Activation::kSigmoid) return Sigmoid(x);
  if (kind == Activation::kGeluTanh) {
    const float s = MulAdd(x * x * 0.044715F, x, x) * 0x1.988454p+0F;
    return x / (1.0F + Exp(-s));
  }
  if (kind == Activation::kGeluErf) return x * 0.5F * (1.0F + Erf(x * 0x1.6a09e6p-1F));
  return x < 0 ? 0.0F : x;
}

float TreeSum16(std::span<const float, 16> sums) {
  std::array<float, 16> t;
  std::copy(sums.begin(), sums.end(), t.begin());
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) t[i] += t[i + width];
  }
  return t[0];
}

QuantizedRow QuantizeRow(std::span<const float> x) {
  QuantizedRow row;
  for (size_t begin = 0; begin < x.size(); begin += kQuantBlock) {
    const std::span<const float> block = x.subspan(begin, kQuantBlock);
    float amax = 0;
    bool finite = true;
    for (const float v : block) {
      finite = finite && std::isfinite(v);
      amax = std::max(amax, std::fabs(v));
    }
    const float inverse = finite && amax > 0 ? 127 / amax : 0.0F;
    const bool tiny = inverse > 3.0e38F;
    int halves[2] = {0, 0};
    for (size_t i = 0; i < kQuantBlock; ++i) {
      const float v = block[i];
      const float scaled = finite && !tiny ? std::nearbyint(v * inverse) : 0.0F;
      row.q.push_back(static_cast<int8_t>(std::clamp(scaled, -127.0F, 127.0F)));
      halves[i / 16] += row.q.back();
    }
    row.d.push_back(finite ? (tiny ? 0.0F : amax / 127) : std::numeric_limits<float>::quiet_NaN());
    for (const int half : halves) row.half_sums.push_back(static_cast<int16_t>(half));
    row.sum.push_back(row.d.back() * static_cast<float>(halves[0] + halves[1]));
  }
  return row;
}

void StoreRow(DType dtype, std::span<const float> x, std::byte* out) {
  if (dtype == DType::kF32) std::memcpy(out, x.data(), x.size_bytes());
  if (dtype == DType::kF16 || dtype == DType::kBF16) {
    for (const float value : x) {
      const uint16_t bits = dtype == DType::kF16 ? FloatToHalf(value) : FloatToBFloat16(value);
      std::memcpy(out, &bits, sizeof(bits));
      out += sizeof(bits);
    }
  }
  for (size_t begin = 0; dtype == DType::kQ8_0 && begin < x.size(); begin += 32, out += 34) {
    float amax = 0;
    bool finite = true;
    for (const float v : x.subspan(begin, 32)) {
      finite = finite && std::isfinite(v);
      amax = std::max(amax, std::fabs(v));
    }
    const uint16_t rounded = FloatToHalf(amax / 127);
    finite = finite && rounded != 0x7C00;
    const uint16_t half = finite ? rounded : 0x7E00;
    std::memcpy(out, &half, sizeof(half));
    for (size_t i = 0; i < 32; ++i) {
      const bool any = finite && half != 0;
      const float q = any ? std::nearbyint(std::clamp(x[begin + i] / HalfToFloat(half), -127.0F, 127.0F)) : 0.0F;
      out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(q));
    }
  }
}

namespace {

// Subnormal numbers count as zeros.
float Flushed(float x) { return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

std::span<const std::byte> RowOf(const WeightSource& weight, size_t row) {
  const size_t row_bytes = RowBytes(weight.dtype, weight.cols);
  return weight.bytes.subspan(weight.order.FileRow(row) * row_bytes, row_bytes);
}

float HalfAt(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return HalfToFloat(bits);
}

}  // namespace

int FileQuant(DType dtype, const std::byte* block, size_t i) {
  const auto byte = [&](size_t at) { return std::to_integer<int>(block[at]); };
  const auto nibble = [&](size_t at, bool high) { return high ? byte(at) >> 4 : byte(at) & 15; };
  const auto bit = [&](size_t at, size_t n) { return byte(at) >> n & 1; };
  const size_t j = i / 32, l = i % 32;
  switch (dtype) {
    case DType::kQ8_0: return std::bit_cast<int8_t>(block[2 + i]);
    case DType::kQ4_0: return nibble(2 + i % 16, i >= 16) - 8;
    case DType::kQ4_1: return nibble(4 + i % 16, i >= 16);
    case DType::kQ5_0: return nibble(6 + i % 16, i >= 16) + 16 * bit(2 + i / 8, i % 8) - 16;
    case DType::kQ5_1: return nibble(8 + i % 16, i >= 16) + 16 * bit(4 + i / 8, i % 8);
    case DType::kQ4_K: return nibble(16 + 32 * (j / 2) + l, j % 2 == 1);
    case DType::kQ5_K: return nibble(48 + 32 * (j / 2) + l, j % 2 == 1) + 16 * bit(16 + l, j);
    case DType::kQ6_K: {
      const size_t quarter = j % 4, high = 128 + 32 * (i / 128) + l;
      return nibble(64 * (i / 128) + 32 * (quarter % 2) + l, quarter >= 2) +
             16 * (bit(high, 2 * quarter) + 2 * bit(high, 2 * quarter + 1)) - 32;
    }
    default: return 0;
  }
}

float FloatDot(Arithmetic math, const WeightSource& weight, size_t row, std::span<const float> x) {
  std::vector<float> w(weight.cols);
  DequantizeRow(weight.dtype, RowOf(weight, row), w);
  float acc = 0;
  for (size_t k = 0; k < w.size(); ++k) acc = math.MulAdd(w[k], x[k], acc);
  return acc;
}

float BFloat16Dot(const WeightSource& weight, size_t row, std::span<const float> x) {
  std::vector<float> w(weight.cols);
  DequantizeRow(weight.dtype, RowOf(weight, row), w);
  std::vector<float> rounded;
  for (const float value : x) rounded.push_back(BFloat16ToFloat(FloatToBFloat16(Flushed(value))));
  w.resize(RoundUp<size_t>(w.size(), 2));  // with zeros
  rounded.resize(w.size());
  float acc = 0;
  for (size_t k = 0; k < w.size(); k += 2) {
    acc = Flushed(std::fma(Flushed(w[k + 1]), rounded[k + 1], acc));
    acc = Flushed(std::fma(Flushed(w[k]), rounded[k], acc));
  }
  return acc;
}

float QuantizedDot(Arithmetic math, const WeightSource& weight, size_t row, const QuantizedRow& x) {
  const DTypeInfo info = InfoOf(weight.dtype);
  const std::span<const std::byte> bytes = RowOf(weight, row);
  float acc = 0;
  for (size_t b = 0; b < weight.cols / kQuantBlock; ++b) {
    const size_t column = b * kQuantBlock, within = column % info.block_elements, j = within / kQuantBlock;
    const std::byte* block = bytes.data() + column / info.block_elements * info.block_bytes;
    int32_t s[2] = {0, 0};  // of each half
    for (size_t i = 0; i < kQuantBlock; ++i) s[i / 16] += FileQuant(weight.dtype, block, within + i) * x.q[column + i];
    switch (weight.dtype) {
      case DType::kQ4_K:
      case DType::kQ5_K: {
        const SixBitScale scale = ReadSixBitScale(block + 4, j);
        const float d_w = HalfAt(block) * static_cast<float>(scale.sc);
        const float m_w = -(HalfAt(block + 2) * static_cast<float>(scale.m));
        acc = math.MulAdd(static_cast<float>(s[0] + s[1]), d_w * x.d[b], acc);
        acc = math.MulAdd(m_w, x.sum[b], acc);
        break;
      }
      case DType::kQ6_K: {
        const int32_t scaled =
            s[0] * std::bit_cast<int8_t>(block[192 + 2 * j]) + s[1] * std::bit_cast<int8_t>(block[193 + 2 * j]);
        acc = math.MulAdd(static_cast<float>(scaled), HalfAt(block + 208) * x.d[b], acc);
        break;
      }
      default:
        acc = math.MulAdd(static_cast<float>(s[0] + s[1]), HalfAt(block) * x.d[b], acc);
        if (weight.dtype == DType::kQ4_1 || weight.dtype == DType::kQ5_1)
          acc = math.MulAdd(HalfAt(block + 2), x.sum[b], acc);
    }
  }
  return acc;
}

std::vector<float> MatMul(Arithmetic math, const WeightSource& weight, ConstMatrix<float> x, bool as_f32) {
  std::vector<float> y(x.rows * weight.rows);
  const bool bfloat16 = math.bfloat16_products && weight.dtype == DType::kBF16 && !as_f32;
  for (size_t r = 0; r < x.rows; ++r) {
    const std::span<const float> row(x.row(r), x.cols);
    const bool quantized = InfoOf(weight.dtype).quantized && !as_f32;
    const QuantizedRow q = quantized ? QuantizeRow(row) : QuantizedRow();
    for (size_t n = 0; n < weight.rows; ++n) {
      y[r * weight.rows + n] = quantized  ? QuantizedDot(math, weight, n, q)
                               : bfloat16 ? BFloat16Dot(weight, n, row)
                                          : FloatDot(math, weight, n, row);
    }
  }
  return y;
}

std::vector<float> RmsNorm(Arithmetic math, std::span<const float> x, std::span<const float> w, float eps) {
  std::array<float, 16> sums{};
  for (size_t i = 0; i < x.size(); ++i) sums[i % 16] = math.MulAdd(x[i], x[i], sums[i % 16]);
  const float r = 1 / std::sqrt(TreeSum16(sums) / static_cast<float>(x.size()) + eps);
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * r * w[i];
  return y;
}

std::vector<float> L2Norm(Arithmetic math, std::span<const float> x, float scale) {
  std::array<float, 16> sums{};
  for (size_t i = 0; i < x.size(); ++i) sums[i % 16] = math.MulAdd(x[i], x[i], sums[i % 16]);
  const float r = scale / std::sqrt(TreeSum16(sums) + 1e-6F);
  std::vector<float> y;
  for (const float v : x) y.push_back(v * r);
  return y;
}

float DecayGate(Arithmetic math, float a, float dt_bias, float decay) {
  const float x = a + dt_bias;
  const float softplus = (x < 0 ? 0.0F : x) + math.Log1p(math.Exp(-std::fabs(x)));
  const float g = decay * softplus;
  return g < kMinDecay ? kMinDecay : g;
}

std::vector<float> ShortConvolution(Arithmetic math, std::span<const float* const> inputs, ConstMatrix<float> w) {
  std::vector<float> y(w.cols);
  for (size_t c = 0; c < w.cols; ++c) {
    float acc = 0;
    for (size_t i = 0; i < w.rows; ++i) {
      if (inputs[i] != nullptr) acc = math.MulAdd(w.row(i)[c], inputs[i][c], acc);
    }
    y[c] = math.Silu(acc);
  }
  return y;
}

std::vector<float> LayerNorm(Arithmetic math, std::span<const float> x, std::span<const float> w,
                             std::span<const float> b, float eps) {
  const auto n = static_cast<float>(x.size());
  std::array<float, 16> sums{}, squares{};
  for (size_t i = 0; i < x.size(); ++i) sums[i % 16] += x[i];
  const float mean = TreeSum16(sums) / n;
  for (size_t i = 0; i < x.size(); ++i) squares[i % 16] = math.MulAdd(x[i] - mean, x[i] - mean, squares[i % 16]);
  const float r = 1 / std::sqrt(TreeSum16(squares) / n + eps);
  std::vector<float> y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(math.MulAdd((x[i] - mean) * r, w[i], b[i]));
  return y;
}

void Attention(Arithmetic math, const AttentionShape& shape, const PlainContext& context, const AttentionTask& task,
               Matrix<float> out) {
  const size_t dim = shape.head_dim, group = shape.heads / shape.kv_heads;
  const size_t distances = shape.bias.size() / shape.heads;
  for (size_t row = 0; row < task.q.rows; ++row) {
    std::vector<size_t> stored(context.kv_len);  // where the keys of the logical positions are
    std::iota(stored.begin(), stored.end(), size_t{0});
    size_t position = task.first_position + row;
    if (!task.parents.empty()) {
      std::vector<size_t> path;
      for (auto node = static_cast<int32_t>(row); node >= 0; node = task.parents[static_cast<size_t>(node)])
        path.insert(path.begin(), task.first_position + static_cast<size_t>(node));
      std::copy(path.begin(), path.end(), stored.begin() + static_cast<std::ptrdiff_t>(task.first_position));
      position = task.first_position + path.size() - 1;
    }
    const auto seen = [&](size_t j) {
      if (j < context.context_begin || (task.visibility == Visibility::kCausal && j > position)) return false;
      return shape.window == 0 || j + shape.window > position || j < shape.sink;
    };
    for (size_t h = 0; h < shape.heads; ++h) {
      const float* q = task.q.row(row) + h * dim;
      const float* k = context.k.data() + h / group * context.kv_len * dim;
      const float* v = context.v.data() + h / group * context.kv_len * dim;
      bool any = false;
      float total_m = 0, total_l = 0;
      std::vector<float> total_o(dim);
      for (size_t chunk = 0; chunk < context.kv_len; chunk += kAttentionChunk) {
        std::vector<size_t> positions;
        std::vector<float> scores;
        for (size_t j = chunk; j < std::min(chunk + kAttentionChunk, context.kv_len); ++j) {
          if (!seen(j)) continue;
          float score = 0;
          for (size_t d = 0; d < dim; ++d) score = math.MulAdd(q[d], k[stored[j] * dim + d], score);
          score *= shape.scale;
          if (shape.soft_cap != 0) score = shape.soft_cap * math.Tanh(score / shape.soft_cap);
          if (distances != 0 && j <= position)
            score += shape.bias[h * distances + std::min(position - j, distances - 1)];
          positions.push_back(j);
          scores.push_back(score);
        }
        if (positions.empty()) continue;
        const float m = *std::max_element(scores.begin(), scores.end());
        std::array<float, 16> sums{};
        std::vector<float> o(dim);
        for (size_t i = 0; i < positions.size(); ++i) {
          const float p = math.Exp(scores[i] - m);
          sums[positions[i] % 16] += p;
          for (size_t d = 0; d < dim; ++d) o[d] = math.MulAdd(p, v[stored[positions[i]] * dim + d], o[d]);
        }
        const float l = TreeSum16(sums);
        if (!any) {
          total_m = m, total_l = l, total_o = o;
        } else {
          const float both = std::max(total_m, m);
          const float a = math.Exp(total_m - both), b = math.Exp(m - both);
          total_m = both;
          total_l = math.MulAdd(total_l, a, l * b);
          for (size_t d = 0; d < dim; ++d) total_o[d] = math.MulAdd(total_o[d], a, o[d] * b);
        }
        any = true;
      }
      for (size_t d = 0; d < dim; ++d) out.row(row)[h * dim + d] = any ? total_o[d] / total_l : 0.0F;
    }
  }
}

}  // namespace tidemill::testing
