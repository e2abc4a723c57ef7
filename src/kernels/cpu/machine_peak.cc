#include "kernels/machine_peak.h"

#if defined(__x86_64__)
#include "kernels/cpu/matmul_vnni.h"
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/machine_peak.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Written to after every measurement, so that no round can be left out.
volatile float g_float_sink;
volatile int32_t g_int_sink;

double FloatPeak(size_t iterations) {
  const hn::ScalableTag<float> d;
  constexpr size_t kChains = 10;
  auto a = hn::Set(d, 0.999F), b = hn::Set(d, 0.001F);
  decltype(a) acc[kChains];
  for (size_t c = 0; c < kChains; ++c) acc[c] = hn::Set(d, static_cast<float>(c));
  for (size_t i = 0; i < iterations; ++i) {
    for (size_t c = 0; c < kChains; ++c) acc[c] = hn::MulAdd(acc[c], a, b);
  }
  auto sum = acc[0];
  for (size_t c = 1; c < kChains; ++c) sum = hn::Add(sum, acc[c]);
  g_float_sink = hn::GetLane(sum);
  return 2.0 * static_cast<double>(kChains * iterations * hn::Lanes(d));
}

double Int16Peak(size_t iterations) {
  const hn::ScalableTag<int32_t> d;
  const hn::RepartitionToNarrow<decltype(d)> d16;
  constexpr size_t kChains = 8;
  const auto b = hn::Set(d16, int16_t{3});
  decltype(hn::Zero(d)) sum0[kChains], sum1[kChains];
  for (size_t c = 0; c < kChains; ++c) sum0[c] = sum1[c] = hn::Set(d, static_cast<int32_t>(c));
  for (size_t i = 0; i < iterations; ++i) {
    for (size_t c = 0; c < kChains; ++c) {
      // The factor hangs on the sum, so that the product cannot be moved out of the loop.
      sum0[c] = hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, sum0[c]), b, sum0[c], sum1[c]);
    }
  }
  auto sum = hn::Add(sum0[0], sum1[0]);
  for (size_t c = 1; c < kChains; ++c) sum = hn::Add(sum, hn::Add(sum0[c], sum1[c]));
  g_int_sink = hn::GetLane(sum);
  return 4.0 * static_cast<double>(kChains * iterations * hn::Lanes(d));
}

unsigned long long ReadWords(const unsigned long long* data, size_t words) {
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d), quarter = words / 4 / lanes * lanes;
  const auto* p = reinterpret_cast<const uint64_t*>(data);
  decltype(hn::Zero(d)) acc[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (size_t i = 0; i < quarter; i += lanes) {
    for (size_t s = 0; s < 4; ++s) acc[s] = hn::Add(acc[s], hn::LoadU(d, p + s * quarter + i));
  }
  HWY_ALIGN uint64_t out[HWY_MAX_BYTES / 8];
  hn::Store(hn::Add(hn::Add(acc[0], acc[1]), hn::Add(acc[2], acc[3])), d, out);
  unsigned long long sum = 0;
  for (size_t i = 0; i < lanes; ++i) sum += out[i];
  return sum;
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

double RunFloatPeak(Isa isa, size_t iterations) { return TIDEMILL_PICK(isa, FloatPeak)(iterations); }

double RunInt8Peak(Isa isa, size_t iterations) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Vnni) return vnni::DotPeak(iterations);
#endif
  return TIDEMILL_PICK(isa, Int16Peak)(iterations);
}

unsigned long long ReadMemory(Isa isa, const unsigned long long* data, size_t words) {
  return TIDEMILL_PICK(isa, ReadWords)(data, words);
}

}  // namespace tidemill
#endif
