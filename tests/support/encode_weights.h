// f32 weights -> the bytes a file holds, plainly and deterministically. The inverse is DequantizeRow, up to rounding.
#ifndef TIDEMILL_TESTS_SUPPORT_ENCODE_WEIGHTS_H_
#define TIDEMILL_TESTS_SUPPORT_ENCODE_WEIGHTS_H_

#include <span>
#include <string>

#include "tensor/dtype.h"

namespace tidemill::testing {

// values.size() is a multiple of the type's block; rows may follow each other, since a block never crosses a row's end.
// Per block of 32, as ggml's reference quantisers do it (d and m stored as halves, quotients taken with the f32
// values):
//   Q8_0: d = max|x| / 127,               q = round(x / d), halves away from zero
//   Q4_0: d = (x of largest |x|) / -8,    q = min(15, floor(x / d + 8.5));       Q5_0: / -16, 31, 16.5
//   Q4_1: m = min, d = (max - min) / 15,  q = min(15, floor((x - m) / d + 0.5)); Q5_1: 31
// Per block of 256, more plainly than ggml, which searches for better scales (quotients taken with the stored values):
//   Q4_K: per 32: low = max(0, -min), step = (max(0, max) + low) / 15; d = (largest step) / 63, sc = round(step / d);
//         dmin = (largest low) / 63, m = round(low / dmin); q = clamp(floor((x + dmin * m) / (d * sc) + 0.5), 0, 15)
//   Q5_K: the same with 31
//   Q6_K: per 16: step = (x of largest |x|) / -32; d = (largest |step|) / 127, sc = round(step / d);
//         q = clamp(floor(x / (d * sc) + 32.5), 0, 63)
std::string EncodeWeights(DType dtype, std::span<const float> values);

// The largest |value - DequantizeRow(EncodeWeights(value))| for a block whose values lie in [-amax, amax].
float EncodeTolerance(DType dtype, float amax);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_ENCODE_WEIGHTS_H_
