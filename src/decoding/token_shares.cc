#include "decoding/token_shares.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "decoding/token_key.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "decoding/token_shares.cc"  // this file, compiled once per SIMD target
#include "hwy/foreach_target.h"                        // IWYU pragma: keep
#include "hwy/highway.h"

#include "decoding/exact_exp-inl.h"
#include "kernels/cpu/highway_levels.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

constexpr size_t kAtOnce = 4;  // registers of logits, for ExpOfEach
using Share8 = hn::RebindToUnsigned<Lane8>;

HWY_INLINE void LoadLogits(Lane8 d, const float* HWY_RESTRICT from, Vec8* HWY_RESTRICT logits) {
  const hn::Rebind<float, Lane8> df;
  for (size_t n = 0; n < kAtOnce; ++n) logits[n] = hn::PromoteTo(d, hn::LoadU(df, from + n * hn::Lanes(d)));
}

// ShareRule::ShareOf of each; the logits are used up.
HWY_INLINE void SharesOf(Lane8 d, Vec8* HWY_RESTRICT logits, const ShareRule& rule,
                         hn::Vec<Share8>* HWY_RESTRICT shares) {
  const Share8 du;
  const auto best = hn::Set(d, static_cast<double>(rule.max));
  const auto scale = hn::Set(d, rule.inverse_temperature);
  const auto rounding = hn::Set(d, rule.rounding);
  for (size_t n = 0; n < kAtOnce; ++n) logits[n] = hn::Mul(hn::Sub(logits[n], best), scale);
  ExpOfEach<kAtOnce>(d, logits);
  for (size_t n = 0; n < kAtOnce; ++n) {
    shares[n] = hn::Sub(hn::BitCast(du, hn::Add(logits[n], rounding)), hn::BitCast(du, rounding));
  }
}

}  // namespace

void SumShareChunks(const float* HWY_RESTRICT chunks, const float* HWY_RESTRICT chunk_max, size_t num_chunks,
                    const ShareRule& rule, float least, uint64_t* HWY_RESTRICT chunk_sum) {
  const Lane8 d;
  const Share8 du;
  const size_t step = kAtOnce * hn::Lanes(d);
  const auto lowest = hn::Set(d, static_cast<double>(least));
  for (size_t c = 0; c < num_chunks; ++c) {
    auto sum = hn::Zero(du);
    chunk_sum[c] = 0;
    if (chunk_max[c] < least) continue;
    for (size_t i = 0; i < kChunkTokens; i += step) {
      const float* from = chunks + c * kChunkTokens + i;
      Vec8 logits[kAtOnce];
      hn::Vec<Share8> shares[kAtOnce];
      LoadLogits(d, from, logits);
      SharesOf(d, logits, rule, shares);
      LoadLogits(d, from, logits);
      for (size_t n = 0; n < kAtOnce; ++n) {
        sum = hn::Add(sum, hn::IfThenElseZero(hn::RebindMask(du, hn::Ge(logits[n], lowest)), shares[n]));
      }
    }
    chunk_sum[c] = hn::GetLane(hn::SumOfLanes(du, sum));
  }
}

template <BucketPass kPass>
uint64_t AddChunksToBuckets(const ChunkRun& run, const BucketFill& fill, BucketSums* HWY_RESTRICT sums) {
  const float* HWY_RESTRICT chunks = run.logits;
  const float* HWY_RESTRICT chunk_max = run.chunk_max;
  const size_t num_chunks = run.num_chunks;
  const LogitInterval of = fill.of;
  const float least = fill.least;
  const Lane8 d;
  const Share8 du;
  const size_t lanes = hn::Lanes(d);
  const size_t step_tokens = kAtOnce * lanes;
  // Adding in memory lags one step behind, so that it waits for no result and goes on beside the next exps.
  struct Step {
    HWY_ALIGN uint64_t share[kAtOnce * 8];
    HWY_ALIGN uint64_t place[kAtOnce * 8];
  };
  Step steps[2];
  size_t now = 0;
  bool first = true;
  const bool selects = least > kLowestLogit;
  static_assert(kAtOnce * hn::MaxLanes(Lane8()) % BucketSums::kWays == 0);
  const auto add_in_memory = [&](const Step& step) HWY_ATTR {
    for (size_t j = 0; j < step_tokens; j += BucketSums::kWays) {
      for (size_t way = 0; way < BucketSums::kWays; ++way) {
        const size_t at = way * BucketSums::kStride + static_cast<uint32_t>(step.place[j + way]);
        sums->shares[at] += step.share[j + way];
        if constexpr (kPass == BucketPass::kSharesAndCounts) ++sums->counts[at];
      }
    }
  };
  auto sum = hn::Zero(du);
  Vec8 logits[kAtOnce];
  const auto inside = [&](size_t n) HWY_ATTR {
    return hn::And(hn::Ge(logits[n], hn::Set(d, static_cast<double>(of.low))),
                   hn::Le(logits[n], hn::Set(d, static_cast<double>(of.high))));
  };
  for (size_t c = 0; c < num_chunks; ++c) {
    if (chunk_max[c] < of.low) continue;
    for (size_t i = 0; i < kChunkTokens; i += step_tokens) {
      const float* from = chunks + c * kChunkTokens + i;
      LoadLogits(d, from, logits);
      if constexpr (kPass != BucketPass::kAllShares) {
        auto any = inside(0);
        for (size_t n = 1; n < kAtOnce; ++n) any = hn::Or(any, inside(n));
        if (hn::AllFalse(d, any)) continue;
      }
      for (size_t n = 0; n < kAtOnce; ++n) {
        auto place = hn::Sub(hn::Set(d, fill.map.offset), hn::Mul(logits[n], hn::Set(d, fill.map.slope)));
        place = hn::Max(place, hn::Set(d, BucketMap::kFirst));
        place = hn::Min(place, hn::Set(d, BucketMap::kLast));
        if constexpr (kPass != BucketPass::kAllShares) {
          place = hn::IfThenElse(inside(n), place, hn::Set(d, BucketMap::kNone));
        }
        hn::Store(hn::BitCast(du, place), du, steps[now].place + n * lanes);
      }
      hn::Vec<Share8> shares[kAtOnce];
      SharesOf(d, logits, fill.rule, shares);
      for (size_t n = 0; n < kAtOnce; ++n) hn::Store(shares[n], du, steps[now].share + n * lanes);
      if (selects) {
        LoadLogits(d, from, logits);
        for (size_t n = 0; n < kAtOnce; ++n) {
          const auto counts = hn::Ge(logits[n], hn::Set(d, static_cast<double>(least)));
          shares[n] = hn::IfThenElseZero(hn::RebindMask(du, counts), shares[n]);
        }
      }
      for (size_t n = 0; n < kAtOnce; ++n) sum = hn::Add(sum, shares[n]);
      now = 1 - now;
      if (!first) add_in_memory(steps[now]);
      first = false;
    }
  }
  if (!first) add_in_memory(steps[1 - now]);
  return hn::GetLane(hn::SumOfLanes(du, sum));
}

void AddMembersOfChunks(const float* HWY_RESTRICT chunks, const float* HWY_RESTRICT chunk_max, size_t num_chunks,
                        size_t first_id, LogitInterval of, Members* members) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  const auto low = hn::Set(d, of.low);
  const auto high = hn::Set(d, of.high);
  auto least = high;
  auto most = low;
  size_t count = members->count;
  size_t listed = members->listed;
  uint64_t* HWY_RESTRICT keys = members->keys.data();
  for (size_t c = 0; c < num_chunks; ++c) {
    if (chunk_max[c] < of.low) continue;
    for (size_t i = c * kChunkTokens; i < (c + 1) * kChunkTokens; i += lanes) {
      const auto v = hn::LoadU(d, chunks + i);
      const auto inside = hn::And(hn::Ge(v, low), hn::Le(v, high));
      if (hn::AllFalse(d, inside)) continue;
      count += hn::CountTrue(d, inside);
      least = hn::IfThenElse(inside, hn::Min(least, v), least);
      most = hn::IfThenElse(inside, hn::Max(most, v), most);
      if (listed + lanes > Members::kRoom) continue;
      uint8_t bytes[8] = {};
      hn::StoreMaskBits(d, inside, bytes);
      for (uint32_t bits = bytes[0] | uint32_t{bytes[1]} << 8; bits != 0; bits &= bits - 1) {
        const size_t at = i + static_cast<size_t>(std::countr_zero(bits));
        keys[listed++] = TokenKey(chunks[at], first_id + at);
      }
    }
  }
  const float lane_low = hn::GetLane(hn::MinOfLanes(d, least));
  const float lane_high = hn::GetLane(hn::MaxOfLanes(d, most));
  if (count > members->count) {
    members->range.low = members->count == 0 ? lane_low : std::min(members->range.low, lane_low);
    members->range.high = members->count == 0 ? lane_high : std::max(members->range.high, lane_high);
  }
  members->count = count;
  members->listed = listed;
}

}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

BucketMap::BucketMap(float high, double range) {
  range = std::max(range, std::fabs(static_cast<double>(high)) * 0x1p-30);
  slope = static_cast<double>(kBuckets - 1) / range;
  offset = 0x1p52 + static_cast<double>(high) * slope;
}

namespace {

// Integers in the order of the floats, which are dense; both zeros at 0.
int64_t PlaceOf(float logit) {
  const auto bits = std::bit_cast<int32_t>(logit);
  return bits >= 0 ? bits : int64_t{std::numeric_limits<int32_t>::min()} - bits;
}

float AtPlace(int64_t place) {
  return std::bit_cast<float>(
      static_cast<int32_t>(place >= 0 ? place : int64_t{std::numeric_limits<int32_t>::min()} - place));
}

// The first place of [low, high) whose float holds, if all above it hold too; else high.
template <typename Holds>
int64_t FirstPlace(int64_t low, int64_t high, Holds holds) {
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (holds(AtPlace(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace

LogitInterval BucketMap::IntervalOf(size_t bucket, LogitInterval of) const {
  // Buckets descend with the logit.
  const auto from = [&](size_t b) {
    return FirstPlace(PlaceOf(of.low), PlaceOf(of.high) + 1, [&](float logit) { return BucketOf(logit) <= b; });
  };
  return {AtPlace(from(bucket)), bucket == 0 ? of.high : AtPlace(from(bucket - 1) - 1)};
}

float ShareRule::LowestOfWeight(double weight) const {
  return AtPlace(FirstPlace(PlaceOf(kLowestLogit), PlaceOf(max),
                            [&](float logit) { return TokenWeight(logit, max, inverse_temperature) >= weight; }));
}

uint64_t SumShares(Isa isa, std::span<const float> logits, std::span<const float> chunk_max, const ShareRule& rule,
                   float least, std::span<uint64_t> chunk_sum, const VocabParts& parts) {
  TIDEMILL_DCHECK(!logits.empty() && chunk_sum.size() == NumChunks(logits.size()));
  const size_t whole = logits.size() / kChunkTokens;
  const auto add = TIDEMILL_PICK(isa, SumShareChunks);
  parts.ForChunksUpTo(least, chunk_max).ForEach(whole, [&](size_t, size_t first, size_t end) {
    add(logits.data() + first * kChunkTokens, chunk_max.data() + first, end - first, rule, least,
        chunk_sum.data() + first);
  });
  const LastChunk last(logits);
  if (last.num_tokens > 0) add(last.padded, chunk_max.data() + whole, 1, rule, least, chunk_sum.data() + whole);
  uint64_t total = 0;
  for (const uint64_t sum : chunk_sum) total += sum;
  return total;
}

uint64_t AddToBuckets(Isa isa, const ChunkRun& run, const BucketFill& fill, BucketSums* sums) {
  using Add = uint64_t (*)(const ChunkRun&, const BucketFill&, BucketSums*);
  const Add add = fill.pass == BucketPass::kAllShares
                      ? Add{TIDEMILL_PICK(isa, AddChunksToBuckets<BucketPass::kAllShares>)}
                      : Add{TIDEMILL_PICK(isa, AddChunksToBuckets<BucketPass::kSharesAndCounts>)};
  return add(run, fill, sums);
}

void AddMembers(Isa isa, const ChunkRun& run, LogitInterval of, Members* members) {
  TIDEMILL_PICK(isa, AddMembersOfChunks)(run.logits, run.chunk_max, run.num_chunks, run.first_id, of, members);
}

}  // namespace tidemill
#endif  // HWY_ONCE
