#include "kernels/machine_peak.h"

#include "base/check.h"

#if defined(__x86_64__)
#include "kernels/cpu/matmul_avx2.h"
#include "kernels/cpu/matmul_bf16.h"
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

// Without a fused one a multiply-add is two instructions of different kinds.
constexpr double kInstructionsOfMulAdd = HWY_TARGET == HWY_SSE4 ? 0 : 1;

template <typename V, size_t kChains>
double SumOf(const V (&acc)[kChains]) {
  auto sum = acc[0];
  for (size_t c = 1; c < kChains; ++c) sum = hn::Add(sum, acc[c]);
  return static_cast<double>(hn::GetLane(sum));
}

// Every start value hangs on the number of rounds: compilers work constants out, loop and all.

// acc = acc * a + b. 14 chains are what the baseline's 16 registers leave.
PeakRun FloatPeak(size_t iterations) {
  const hn::ScalableTag<float> d;
  constexpr size_t kChains = 14;
  const auto a = hn::Set(d, 0.999F), b = hn::Set(d, 0.001F);
  hn::Vec<decltype(d)> acc[kChains];
  for (size_t c = 0; c < kChains; ++c) acc[c] = hn::Set(d, static_cast<float>(iterations + c));
  for (size_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (size_t c = 0; c < kChains; ++c) acc[c] = hn::MulAdd(acc[c], a, b);
  }
  const double count = static_cast<double>(kChains * iterations);
  return {2 * count * static_cast<double>(hn::Lanes(d)), count * kInstructionsOfMulAdd, SumOf(acc)};
}

// acc = acc * a + acc, with an a so small that acc stays as it is
PeakRun FloatPeakBothOperands(size_t iterations) {
  const hn::ScalableTag<float> d;
  constexpr size_t kChains = 12;
  const auto a = hn::Set(d, 1e-9F);
  hn::Vec<decltype(d)> acc[kChains];
  for (size_t c = 0; c < kChains; ++c) acc[c] = hn::Set(d, static_cast<float>(iterations + c));
  for (size_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (size_t c = 0; c < kChains; ++c) acc[c] = hn::MulAdd(acc[c], a, acc[c]);
  }
  const double count = static_cast<double>(kChains * iterations);
  return {2 * count * static_cast<double>(hn::Lanes(d)), count * kInstructionsOfMulAdd, SumOf(acc)};
}

#if !HWY_ARCH_X86
// The factor hangs on a sum, so that the product cannot be moved out of the loop: the chain's own, or `kNext`: another's.
template <size_t kChains, size_t kNext>
PeakRun WordPeak(size_t iterations) {
  const hn::ScalableTag<int32_t> d;
  const hn::RepartitionToNarrow<decltype(d)> d16;
  const auto b = hn::Set(d16, int16_t{3});
  hn::Vec<decltype(d)> sum0[kChains], sum1[kChains];
  for (size_t c = 0; c < kChains; ++c) sum0[c] = sum1[c] = hn::Set(d, static_cast<int32_t>(iterations + c));
  for (size_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (size_t c = 0; c < kChains; ++c) {
      const auto factor = hn::BitCast(d16, sum0[(c + kNext) % kChains]);
      sum0[c] = hn::ReorderWidenMulAccumulate(d, factor, b, sum0[c], sum1[c]);
    }
  }
  const double count = static_cast<double>(kChains * iterations);
  return {4 * count * static_cast<double>(hn::Lanes(d)), 0, SumOf(sum0) + SumOf(sum1)};
}
constexpr auto WordPeakOwn = WordPeak<8, 0>, WordPeakNext = WordPeak<12, 1>;
#endif

unsigned long long ReadTwoStreams(const unsigned long long* data, size_t words) {
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d), half = words / 2 / (2 * lanes) * (2 * lanes);
  const auto* p = reinterpret_cast<const uint64_t*>(data);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (size_t i = 0; i < half; i += 2 * lanes) {
    sum0 = hn::Add(sum0, hn::LoadU(d, p + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, p + i + lanes));
    sum2 = hn::Add(sum2, hn::LoadU(d, p + half + i));
    sum3 = hn::Add(sum3, hn::LoadU(d, p + half + i + lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

unsigned long long ReadBothEnds(const unsigned long long* data, size_t words) {
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d), rounds = words / (4 * lanes);
  const auto* up = reinterpret_cast<const uint64_t*>(data);
  const auto* down = up + words;
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (size_t i = 0; i < rounds; ++i) {
    down -= 2 * lanes;
    sum0 = hn::Add(sum0, hn::LoadU(d, up));
    sum1 = hn::Add(sum1, hn::LoadU(d, up + lanes));
    sum2 = hn::Add(sum2, hn::LoadU(d, down + lanes));
    sum3 = hn::Add(sum3, hn::LoadU(d, down));
    up += 2 * lanes;
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

PeakRun RunFloatPeak(Isa isa, PeakShape shape, size_t iterations) {
  return shape == PeakShape::kFirst ? TIDEMILL_PICK(isa, FloatPeak)(iterations)
                                    : TIDEMILL_PICK(isa, FloatPeakBothOperands)(iterations);
}

#if defined(__x86_64__)
namespace {

// The baseline's 16-bit products, with the copy that an instruction needs which overwrites its operand. In assembly, since GCC and clang
// spill or copy once more (45 to 80 instead of 88 Gop/s on a Zen 4). The second shape's factor is the chain's own sum.
PeakRun WordPeak(PeakShape shape, size_t iterations) {
  const __m128i words = {0x0003000300030003, 0x0003000300030003};
  __m128i a = words, b = words, c = words, d = words, e = words, f = words, g = words, h = words;
  __m128i i = words, j = words;
  const auto same = [words](__m128i & sum) __attribute__((always_inline)) {
    __m128i product;
    __asm__ volatile("movdqa %2, %1\n\tpmaddwd %2, %1\n\tpaddd %1, %0" : "+x"(sum), "=&x"(product) : "x"(words));
  };
  const auto own = [words](__m128i & sum) __attribute__((always_inline)) {
    __m128i product;
    __asm__ volatile("movdqa %0, %1\n\tpmaddwd %2, %1\n\tpaddd %1, %0" : "+x"(sum), "=&x"(product) : "x"(words));
  };
  size_t chains = 8;
  if (shape == PeakShape::kFirst) {
    for (size_t round = 0; round < iterations; ++round) {
      same(a), same(b), same(c), same(d), same(e), same(f), same(g), same(h);
    }
  } else {
    chains = 10;
    for (size_t round = 0; round < iterations; ++round) {
      own(a), own(b), own(c), own(d), own(e), own(f), own(g), own(h), own(i), own(j);
    }
  }
  return {16 * static_cast<double>(chains * iterations), 0, 0};
}

}  // namespace

PeakRun RunInt8Peak(Isa isa, PeakShape shape, size_t iterations) {
  if (isa >= Isa::kAvx512Vnni) return vnni::DotPeak(shape, iterations);
  if (isa >= Isa::kAvx2) return avx2::DotPeak(shape, iterations);
  return WordPeak(shape, iterations);
}
#else
PeakRun RunInt8Peak(Isa, PeakShape shape, size_t iterations) {
  return shape == PeakShape::kFirst ? HWY_STATIC_DISPATCH(WordPeakOwn)(iterations)
                                    : HWY_STATIC_DISPATCH(WordPeakNext)(iterations);
}
#endif

PeakRun RunBFloat16Peak([[maybe_unused]] Isa isa, [[maybe_unused]] PeakShape shape,
                        [[maybe_unused]] size_t iterations) {
#if defined(__x86_64__)
  if (HasBFloat16Products(isa)) return bf16::DotPeak(shape, iterations);
#endif
  StopOnFailedCheck("a level with BF16 products", __FILE__, __LINE__);
}

double RunClock(size_t iterations) {
  constexpr size_t kAdditions = 16;
  size_t sum = iterations;
  const size_t one = 1;
  for (size_t i = 0; i < iterations; ++i) {
    for (size_t j = 0; j < kAdditions; ++j) {
      // From a register: a constant is added while instructions are renamed, in no time, by some CPUs.
#if defined(__x86_64__)
      __asm__ volatile("addq %1, %0" : "+r"(sum) : "r"(one));
#else
      __asm__ volatile("add %0, %0, %1" : "+r"(sum) : "r"(one));
#endif
    }
  }
  return static_cast<double>(kAdditions * iterations);
}

unsigned long long ReadMemory(Isa isa, PeakShape shape, const unsigned long long* data, size_t words) {
  return shape == PeakShape::kFirst ? TIDEMILL_PICK(isa, ReadTwoStreams)(data, words)
                                    : TIDEMILL_PICK(isa, ReadBothEnds)(data, words);
}

}  // namespace tidemill
#endif
