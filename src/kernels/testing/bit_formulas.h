// The bit formulas of the kernel headers, transcribed to scalar loops: one f32 operation at a time, in the stated order. A kernel of
// a level whose MulAdd is fused gives the bits of Arithmetic{true}, the x86 baseline those of Arithmetic{false}; levels with their own
// products of BF16 multiply BF16 weights with those.
#ifndef TIDEMILL_KERNELS_TESTING_BIT_FORMULAS_H_
#define TIDEMILL_KERNELS_TESTING_BIT_FORMULAS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/isa.h"
#include "kernels/activation.h"
#include "kernels/activations.h"
#include "kernels/attention.h"
#include "kernels/weight_matrix.h"
#include "tensor/matrix.h"

namespace tidemill::testing {

struct Arithmetic {
  bool fused;
  bool bfloat16_products = false;

  static Arithmetic Of(Isa isa) { return {HasFma(isa), HasBFloat16Products(isa)}; }
  const char* name() const { return fused ? "fma" : "baseline"; }

  float MulAdd(float a, float b, float c) const { return fused ? std::fma(a, b, c) : a * b + c; }
  float Exp(float x) const;
  float Tanh(float x) const;
  float Erf(float x) const;
  float Log1p(float y) const;
  float Silu(float x) const;
  float Sigmoid(float x) const;
  float Activate(Activation kind, float x) const;
};

// Halves added to each other until one sum is left.
float TreeSum16(std::span<const float, 16> sums);

// kernels/activations.h, one row.
struct QuantizedRow {
  std::vector<int8_t> q;
  std::vector<float> d, sum;
  std::vector<int16_t> half_sums;
};
QuantizedRow QuantizeRow(std::span<const float> x);

// kernels/append_kv.h, one row of one head: out has RowBytes(dtype, x.size()) bytes.
void StoreRow(DType dtype, std::span<const float> x, std::byte* out);

// Element i of a block of the file, offset taken off: what tensor/dtype.h calls q, nibble, q - 16 and so on.
int FileQuant(DType dtype, const std::byte* block, size_t i);

// kernels/matmul.h: one output before accumulation. `row` counts as the matrix does, not as the file.
float FloatDot(Arithmetic math, const WeightSource& weight, size_t row, std::span<const float> x);
float BFloat16Dot(const WeightSource& weight, size_t row, std::span<const float> x);
float QuantizedDot(Arithmetic math, const WeightSource& weight, size_t row, const QuantizedRow& x);
// A whole product: x quantised (or rounded to BF16) first where the weight asks for it and `as_f32` is not set.
std::vector<float> MatMul(Arithmetic math, const WeightSource& weight, ConstMatrix<float> x, bool as_f32 = false);

// kernels/rms_norm.h, one row.
std::vector<float> RmsNorm(Arithmetic math, std::span<const float> x, std::span<const float> w, float eps);

// kernels/delta_inputs.h: one head, one g.
std::vector<float> L2Norm(Arithmetic math, std::span<const float> x, float scale);
float DecayGate(Arithmetic math, float a, float dt_bias, float decay);

// kernels/short_convolution.h, one row: of the inputs those of the row.
std::vector<float> ShortConvolution(Arithmetic math, std::span<const float* const> inputs, ConstMatrix<float> w);

// kernels/layer_norm.h, one row.
std::vector<float> LayerNorm(Arithmetic math, std::span<const float> x, std::span<const float> w,
                             std::span<const float> b, float eps);

// kernels/attention.h over keys and values that already are f32: k, v [kv_heads, positions, head_dim], position j of KV head h at
// (h * kv_len + j) * head_dim. Positions before `context_begin` do not exist.
struct PlainContext {
  std::span<const float> k, v;
  size_t context_begin = 0;
  size_t kv_len = 0;
};
void Attention(Arithmetic math, const AttentionShape& shape, const PlainContext& context, const AttentionTask& task,
               Matrix<float> out);

}  // namespace tidemill::testing

#endif  // TIDEMILL_KERNELS_TESTING_BIT_FORMULAS_H_
