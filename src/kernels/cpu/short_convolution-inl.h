// Included by cpu/row_kernels.cc alone.
#include "kernels/short_convolution.h"

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/for_each_span.h"
#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// Channels [c, c + kVectors * lanes) of a row. Four vectors at once: a row of 8192 channels and width 4 took 6.5 instead of 8.2 us on AVX2, 3.3
// instead of 3.6 us on AVX-512, 17.5 instead of 19.9 us on the baseline (Zen 4, one thread). Blocks of 512 channels down many rows gained nothing.
template <size_t kVectors>
HWY_INLINE void ConvolveVectors(const float* const* inputs, ConstMatrix<float> w, size_t c, float* y) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  Vec16 acc[kVectors];
  for (size_t v = 0; v < kVectors; ++v) acc[v] = hn::Zero(d);
  for (size_t i = 0; i < w.rows; ++i) {
    if (inputs[i] == nullptr) continue;
    const float* taps = w.row(i) + c;
    const float* x = inputs[i] + c;
    for (size_t v = 0; v < kVectors; ++v)
      acc[v] = hn::MulAdd(hn::LoadU(d, taps + v * lanes), hn::LoadU(d, x + v * lanes), acc[v]);
  }
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(Silu(d, acc[v]), d, y + c + v * lanes);
}

// Channels [first, last) of a row.
void ConvolveSpan(const float* const* inputs, ConstMatrix<float> w, size_t first, size_t last, float* y) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  size_t c = first;
  for (; c + 4 * lanes <= last; c += 4 * lanes) ConvolveVectors<4>(inputs, w, c, y);
  for (; c + lanes <= last; c += lanes) ConvolveVectors<1>(inputs, w, c, y);
  if (c < last) {
    HWY_ALIGN float taps[16] = {}, x[16] = {};
    auto acc = hn::Zero(d);
    for (size_t i = 0; i < w.rows; ++i) {
      if (inputs[i] == nullptr) continue;
      std::copy(w.row(i) + c, w.row(i) + last, taps);
      std::copy(inputs[i] + c, inputs[i] + last, x);
      acc = hn::MulAdd(hn::Load(d, taps), hn::Load(d, x), acc);
    }
    hn::Store(Silu(d, acc), d, x);
    std::copy(x, x + (last - c), y + c);
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

void ShortConvolution(ExecutionContext& ctx, std::span<const float* const> inputs, ConstMatrix<float> w,
                      Matrix<float> y) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), ConvolveSpan);
  constexpr size_t kSpanElements = kRowBlockElements / 4;  // a few microseconds of work: a sum and an exp for each
  ForEachSpan(ctx, y.rows, y.cols, kSpanElements, [&](size_t r, size_t first, size_t n) {
    kernel(inputs.data() + r * w.rows, w, first, first + n, y.row(r));
  });
}

}  // namespace tidemill
#endif
