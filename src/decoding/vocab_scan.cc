#include "decoding/vocab_scan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "decoding/vocab_scan.cc"  // this file, compiled once per SIMD target
#include "hwy/foreach_target.h"                      // IWYU pragma: keep
#include "hwy/highway.h"

#include "decoding/exact_exp-inl.h"
#include "kernels/cpu/highway_levels.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// chunks : [num_chunks * 64] f32. Returns whether each is below +infinity; raises chunk_max.
bool ScanChunks(const float* HWY_RESTRICT chunks, size_t num_chunks, float* HWY_RESTRICT chunk_max) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  auto all_below = hn::Eq(infinity, infinity);
  for (size_t c = 0; c < num_chunks; ++c) {
    const float* chunk = chunks + c * kChunkTokens;
    auto max = hn::LoadU(d, chunk);
    all_below = hn::And(all_below, hn::Lt(max, infinity));  // false for NaN too
    for (size_t i = lanes; i < kChunkTokens; i += lanes) {
      const auto v = hn::LoadU(d, chunk + i);
      all_below = hn::And(all_below, hn::Lt(v, infinity));
      max = hn::Max(max, v);
    }
    chunk_max[c] = hn::GetLane(hn::MaxOfLanes(d, max));
  }
  return hn::AllTrue(d, all_below);
}

void SumChunks(const float* HWY_RESTRICT chunks, size_t num_chunks, float max, double inverse_temperature,
               double* HWY_RESTRICT chunk_sum) {
  const Lane8 d;
  const hn::Rebind<float, decltype(d)> df;
  const size_t lanes = hn::Lanes(d);
  const auto best = hn::Set(d, static_cast<double>(max));
  const auto scale = hn::Set(d, inverse_temperature);
  for (size_t c = 0; c < num_chunks; ++c) {
    const float* chunk = chunks + c * kChunkTokens;
    HWY_ALIGN double sums[16];
    for (size_t part = 0; part < 16; part += lanes) {
      Vec8 weights[4];
      for (size_t n = 0; n < 4; ++n) {
        const auto logit = hn::PromoteTo(d, hn::LoadU(df, chunk + part + n * 16));
        weights[n] = hn::Mul(hn::Sub(logit, best), scale);
      }
      ExpOfEach<4>(d, weights);
      auto sum = hn::Zero(d);
      for (size_t n = 0; n < 4; ++n) sum = hn::Add(sum, weights[n]);
      hn::Store(sum, d, sums + part);
    }
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
    }
    chunk_sum[c] = sums[0];
  }
}

}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

LastChunk::LastChunk(std::span<const float> logits) {
  const auto rest = logits.subspan(logits.size() / kChunkTokens * kChunkTokens);
  num_tokens = rest.size();
  std::fill(padded, padded + kChunkTokens, -std::numeric_limits<float>::infinity());
  std::copy(rest.begin(), rest.end(), padded);
}

LogitScan ScanLogits(Isa isa, std::span<const float> logits, std::span<float> chunk_max) {
  TIDEMILL_DCHECK(!logits.empty() && chunk_max.size() == NumChunks(logits.size()));
  const size_t whole = logits.size() / kChunkTokens;
  const auto scan = TIDEMILL_PICK(isa, ScanChunks);
  bool all_numbers = scan(logits.data(), whole, chunk_max.data());
  const LastChunk last(logits);
  if (last.num_tokens > 0) all_numbers &= scan(last.padded, 1, chunk_max.data() + whole);
  return {*std::max_element(chunk_max.begin(), chunk_max.end()), all_numbers};
}

size_t ArgMax(std::span<const float> logits, std::span<const float> chunk_max, float max) {
  const auto chunk = static_cast<size_t>(std::find(chunk_max.begin(), chunk_max.end(), max) - chunk_max.begin());
  TIDEMILL_DCHECK(chunk < chunk_max.size());
  size_t id = chunk * kChunkTokens;
  while (logits[id] != max) ++id;
  return id;
}

double SumWeights(Isa isa, std::span<const float> logits, float max, double inverse_temperature,
                  std::span<double> chunk_sum, const VocabParts& parts) {
  TIDEMILL_DCHECK(!logits.empty() && chunk_sum.size() == NumChunks(logits.size()));
  const size_t whole = logits.size() / kChunkTokens;
  const auto add = TIDEMILL_PICK(isa, SumChunks);
  parts.ForEach(whole, [&](size_t, size_t first, size_t end) {
    add(logits.data() + first * kChunkTokens, end - first, max, inverse_temperature, chunk_sum.data() + first);
  });
  const LastChunk last(logits);
  if (last.num_tokens > 0) add(last.padded, 1, max, inverse_temperature, chunk_sum.data() + whole);
  double total = 0.0;
  for (const double sum : chunk_sum) total += sum;
  return total;
}

}  // namespace tidemill
#endif  // HWY_ONCE
