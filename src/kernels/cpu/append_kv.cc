#include "kernels/append_kv.h"

#include <cstring>

#include "kernels/cpu/for_each_row.h"
#include "tensor/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/append_kv.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void ToHalf(const float* x, size_t n, uint16_t* out) {
  size_t i = 0;
#if HWY_TARGET != HWY_SSE4  // which has no conversion, and Highway's own does not keep all of IEEE's
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> d16;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, x + i)), d16, reinterpret_cast<hwy::float16_t*>(out) + i);
  }
#endif
  for (; i < n; ++i) out[i] = FloatToHalf(x[i]);
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

void AppendKv(ExecutionContext& ctx, ConstMatrix<float> x, size_t head_dim, DType dtype, size_t head_stride,
              std::byte* out) {
  const auto to_half = TIDEMILL_PICK(ctx.isa(), ToHalf);
  const size_t element = InfoOf(dtype).block_bytes;
  ForEachRow(ctx, x.rows, x.cols, [&](size_t t) {
    for (size_t h = 0; h < x.cols / head_dim; ++h) {
      const float* in = x.row(t) + h * head_dim;
      std::byte* row = out + (h * head_stride + t * head_dim) * element;
      if (dtype == DType::kF32) {
        std::memcpy(row, in, head_dim * sizeof(float));
      } else if (dtype == DType::kF16) {
        to_half(in, head_dim, reinterpret_cast<uint16_t*>(row));
      } else {
        auto* values = reinterpret_cast<uint16_t*>(row);
        for (size_t i = 0; i < head_dim; ++i) values[i] = FloatToBFloat16(in[i]);
      }
    }
  });
}

}  // namespace tidemill
#endif
