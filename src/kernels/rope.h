// Rotary position embedding, the form with two halves (Hugging Face's rotate_half; arXiv:2104.09864 eq. 34 up to the order of rows).
//   for i < rotary_dim / 2, half = rotary_dim / 2, angle = position * inv_freq[i]:
//     y[i]        = x[i] * cos(angle) - x[i + half] * sin(angle)
//     y[i + half] = x[i + half] * cos(angle) + x[i] * sin(angle)          elements from rotary_dim on stay as they are
// Bits: positions are rounded to f32, the angle is one f32 product, as in transformers; sine and cosine are computed in f64 and
//       rounded once (SinCos below); two f32 products and one sum for each output, never fused: the same on every level.
#ifndef TIDEMILL_KERNELS_ROPE_H_
#define TIDEMILL_KERNELS_ROPE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

// theta^(-2 i / rotary_dim): what RopeAngles takes as inv_freq[i], before a model's scaling and the rounding to f32. theta > 0.
// By the C library's pow, whose last bit may be another with another library.
double RopeFrequency(double theta, size_t i, size_t rotary_dim);

// cos[t, i] and sin[t, i] for row t at positions[t]. cos, sin : [tokens, rotary_dim / 2] f32.
// Beyond |angle| = 2^26 the last digits of sines are wrong. Splits rows over ctx. Allocates nothing.
void RopeAngles(ExecutionContext& ctx, std::span<const uint32_t> positions, std::span<const float> inv_freq,
                Matrix<float> cos, Matrix<float> sin);

// In place on x : [tokens, heads * head_dim], each head by its row's angles. 2 * cos.cols <= head_dim.
void ApplyRope(ExecutionContext& ctx, ConstMatrix<float> cos, ConstMatrix<float> sin, size_t head_dim, Matrix<float> x);

// Sine and cosine of |x| <= 2^26 in plain f64 arithmetic, the same bits everywhere; error below 2^-50.
void SinCos(double x, double* sin, double* cos);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_ROPE_H_
