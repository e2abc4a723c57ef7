// Included by cpu/row_kernels.cc alone.
#include "kernels/append_kv.h"

#include <cstring>

#include "base/check.h"
#include "hwy/highway.h"
#include "kernels/cpu/for_each_row.h"
#include "kernels/cpu/highway_levels.h"
#include "tensor/half.h"
#include "tensor/q8_block.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr uint16_t kHalfInfinity = 0x7C00, kHalfNaN = 0x7E00;

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

void ToBlocks(const float* x, size_t n, Q8Block* out) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> di8;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += Q8Block::kElements, ++out) {
    auto max = hn::Zero(d);
    auto bad = hn::Zero(d);  // NaN as soon as one element is NaN or infinite: x - x is 0 for every number
    for (size_t j = 0; j < Q8Block::kElements; j += lanes) {
      const auto v = hn::LoadU(d, x + i + j);
      max = hn::Max(max, hn::Abs(v));
      bad = hn::Add(bad, hn::Sub(v, v));
    }
    const bool numbers = hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
    const uint16_t half = numbers ? FloatToHalf(hn::GetLane(hn::MaxOfLanes(d, max)) / 127.0F) : kHalfNaN;
    const bool finite = half < kHalfInfinity;
    out->set_d(finite ? half : kHalfNaN);
    if (!finite || half == 0) {
      std::memset(out->q, 0, sizeof(out->q));
      continue;
    }
    const auto scale = hn::Set(d, HalfToFloat(half)), limit = hn::Set(d, 127.0F);
    for (size_t j = 0; j < Q8Block::kElements; j += lanes) {
      const auto steps = hn::Div(hn::LoadU(d, x + i + j), scale);
      const auto rounded = hn::Round(hn::Min(hn::Max(steps, hn::Neg(limit)), limit));
      hn::StoreU(hn::DemoteTo(di8, hn::ConvertTo(di, rounded)), di8, out->q + j);
    }
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

void AppendKv(ExecutionContext& ctx, ConstMatrix<float> x, size_t head_dim, DType dtype, size_t head_stride,
              std::byte* out) {
  const auto to_half = TIDEMILL_PICK(ctx.isa(), ToHalf);
  const auto to_blocks = TIDEMILL_PICK(ctx.isa(), ToBlocks);
  TIDEMILL_DCHECK(head_dim % InfoOf(dtype).block_elements == 0 && head_stride % InfoOf(dtype).block_elements == 0 &&
                  x.cols % head_dim == 0);
  ForEachRow(ctx, x.rows, x.cols, [&](size_t t) {
    for (size_t h = 0; h < x.cols / head_dim; ++h) {
      const float* in = x.row(t) + h * head_dim;
      std::byte* row = out + RowBytes(dtype, h * head_stride + t * head_dim);
      switch (dtype) {
        case DType::kF32: std::memcpy(row, in, head_dim * sizeof(float)); break;
        case DType::kF16: to_half(in, head_dim, reinterpret_cast<uint16_t*>(row)); break;
        case DType::kQ8_0: to_blocks(in, head_dim, reinterpret_cast<Q8Block*>(row)); break;
        default: {
          auto* values = reinterpret_cast<uint16_t*>(row);
          for (size_t i = 0; i < head_dim; ++i) values[i] = FloatToBFloat16(in[i]);
        }
      }
    }
  });
}

}  // namespace tidemill
#endif
