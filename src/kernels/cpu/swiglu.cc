#include "kernels/swiglu.h"

#include "kernels/cpu/for_each_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

void SwiGluSpan(const float* gate, const float* up, size_t n, float* y) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(Silu(d, hn::LoadU(d, gate + i)), hn::LoadU(d, up + i)), d, y + i);
  }
  if (i < n) {
    HWY_ALIGN float g[16] = {};
    HWY_ALIGN float u[16] = {};
    for (size_t j = 0; i + j < n; ++j) {
      g[j] = gate[i + j];
      u[j] = up[i + j];
    }
    hn::Store(hn::Mul(Silu(d, hn::Load(d, g)), hn::Load(d, u)), d, g);
    for (size_t j = 0; i + j < n; ++j) y[i + j] = g[j];
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

void SwiGlu(ExecutionContext& ctx, ConstMatrix<float> gate, ConstMatrix<float> up, Matrix<float> y) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), SwiGluSpan);
  const auto body = [&](size_t r) { kernel(gate.row(r), up.row(r), y.cols, y.row(r)); };
  ForEachRow(ctx, y.rows, y.cols, body, kRowChunkElements / 2);  // an exp for each element
}

}  // namespace tidemill
#endif
