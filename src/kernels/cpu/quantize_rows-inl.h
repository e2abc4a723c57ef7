// Included by cpu/row_kernels.cc alone.
#include "kernels/cpu/quantize_rows.h"

#include <limits>

#include "hwy/highway.h"
#include "kernels/activations.h"
#include "kernels/cpu/highway_levels.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void QuantizeRow(const float* HWY_RESTRICT x, size_t cols, const QuantizedRow& to) {
  int8_t* HWY_RESTRICT q = to.q;
  int16_t* HWY_RESTRICT pairs = to.pairs;
  float* HWY_RESTRICT d = to.d;
  float* HWY_RESTRICT sum = to.sum;
  int16_t* HWY_RESTRICT half_sums = to.half_sums;
  BiasedBlock* HWY_RESTRICT biased = to.biased;
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di32;
  const hn::Rebind<int16_t, decltype(df)> di16;
  const hn::Rebind<int8_t, decltype(df)> di8;
  const size_t lanes = hn::Lanes(df);
  for (size_t b = 0; b < cols / 32; ++b) {
    const float* block = x + b * 32;
    auto max = hn::Zero(df);
    auto bad = hn::Zero(df);  // NaN as soon as one element is NaN or infinite: x - x is 0 for every number
    for (size_t i = 0; i < 32; i += lanes) {
      const auto v = hn::LoadU(df, block + i);
      max = hn::Max(max, hn::Abs(v));
      bad = hn::Add(bad, hn::Sub(v, v));
    }
    const float amax = hn::GetLane(hn::MaxOfLanes(df, max));
    const bool finite = hn::AllTrue(df, hn::Eq(bad, hn::Zero(df)));
    const float inverse = finite && amax > 0 ? 127.0F / amax : 0.0F;
    const auto scale = hn::Set(df, inverse <= kMaxInverse ? inverse : 0.0F);
    const auto limit = hn::Set(df, 127.0F);
    int32_t s = 0;
    for (size_t half = 0; half < 2; ++half) {
      auto total = hn::Zero(di32);
      for (size_t i = half * 16; i < half * 16 + 16; i += lanes) {
        auto v = finite ? hn::Mul(hn::LoadU(df, block + i), scale) : hn::Zero(df);
        v = hn::Round(hn::Min(hn::Max(v, hn::Neg(limit)), limit));
        const auto integers = hn::ConvertTo(di32, v);
        total = hn::Add(total, integers);
        hn::StoreU(hn::DemoteTo(di8, integers), di8, q + b * 32 + i);
        if (pairs != nullptr) {  // each 4 as (q0, q2, q1, q3)
          const auto ordered = hn::InterleaveLower(di32, integers, hn::Shuffle1032(integers));
          const auto words = hn::DemoteTo(di16, ordered);
          hn::StoreU(words, di16, pairs + b * 32 + i);
          if (biased != nullptr) hn::StoreU(hn::Add(words, hn::Set(di16, kBias)), di16, biased->q + i);
        }
      }
      const int32_t half_sum = hn::GetLane(hn::SumOfLanes(di32, total));
      half_sums[b * 2 + half] = static_cast<int16_t>(half_sum);
      s += half_sum;
    }
    d[b] = finite ? (inverse <= kMaxInverse ? amax / 127.0F : 0.0F) : std::numeric_limits<float>::quiet_NaN();
    sum[b] = d[b] * static_cast<float>(s);
    if (biased != nullptr) {
      biased->d = d[b];
      biased->rest = kBiasedRest - kBias * s;
      biased += kBiasedTileRows;
    }
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

QuantizeRowKernel PickQuantizeRow(Isa isa) { return TIDEMILL_PICK(isa, QuantizeRow); }

}  // namespace tidemill
#endif
