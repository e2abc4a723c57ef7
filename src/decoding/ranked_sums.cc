#include "decoding/ranked_sums.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/check.h"
#include "decoding/token_key.h"

namespace tidemill {

RankedSums::RankedSums(size_t vocab_size, const VocabParts& parts)
    : parts_(parts), sums_(std::make_unique_for_overwrite<BucketSums[]>(parts.count())), keys_(Members::kRoom) {
  sample_.reserve(NumChunks(vocab_size));
}

void RankedSums::Start(Isa isa, std::span<const float> logits, std::span<const float> chunk_max, const ShareRule& rule,
                       float floor, float least, bool counts) {
  TIDEMILL_DCHECK(!logits.empty() && chunk_max.size() == NumChunks(logits.size()));
  isa_ = isa;
  logits_ = logits;
  chunk_max_ = chunk_max;
  rule_ = rule;
  const size_t whole = logits.size() / kChunkTokens;
  runs_[0] = {logits.data(), chunk_max.data(), whole, 0};
  num_runs_ = 1;
  if (whole < chunk_max.size()) {
    const LastChunk last(logits);
    std::copy(last.padded, last.padded + kChunkTokens, last_chunk_);
    runs_[num_runs_++] = {last_chunk_, chunk_max.data() + whole, 1, whole * kChunkTokens};
  }
  range_ = {floor, rule.max};
  step_parts_ = parts_.ForChunksUpTo(floor, chunk_max);
  map_ = UsefulMap(floor);
  const bool all = floor == kLowestLogit && !counts;
  const BucketPass pass = all ? BucketPass::kAllShares : BucketPass::kSharesAndCounts;
  at_least_ = FillBuckets({.pass = pass, .rule = rule_, .of = range_, .map = map_, .least = least}, &buckets_);
  shares_ = 0;
  num_tokens_ = 0;
  for (const Bucket& bucket : buckets_) {
    shares_ += bucket.shares;
    num_tokens_ += bucket.tokens;
  }
}

// The map decides about time only, so a sample does. A heap of logits lies about from what one chunk in ten reaches to 4
// times as far below as there is from there to what nearly all chunks reach, wherever a few better or worse ones are.
BucketMap RankedSums::UsefulMap(float floor) {
  constexpr size_t kEvery = 8;
  sample_.clear();
  for (size_t c = 0; c < chunk_max_.size(); c += kEvery) sample_.push_back(chunk_max_[c]);
  const auto at = [&](size_t rank) {
    const auto place = sample_.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(sample_.begin(), place, sample_.end());
    return static_cast<double>(std::max(*place, floor));
  };
  const double low = at(sample_.size() / 20);
  double high = at(sample_.size() * 9 / 10);
  const double lowest = static_cast<double>(floor);
  if (high == lowest) high = static_cast<double>(rule_.max);
  const double weighty = 36.0 / rule_.inverse_temperature;  // what is e^-36 of the best has no share
  double range = std::min({4.0 * (high - low), high - lowest, weighty});
  if (range <= 0.0) range = weighty;
  return {static_cast<float>(high), range};
}

uint64_t RankedSums::FillBuckets(const BucketFill& fill, Buckets* buckets) {
  const bool counts = fill.pass == BucketPass::kSharesAndCounts;
  std::array<uint64_t, VocabParts::kMax> at_least = {};
  const auto add = [&](size_t part, const ChunkRun& run) {
    at_least[part] += AddToBuckets(isa_, run, fill, &sums_[part]);
  };
  step_parts_.ForEach(runs_[0].num_chunks, [&](size_t part, size_t first, size_t end) {
    BucketSums& sums = sums_[part];
    std::fill(std::begin(sums.shares), std::end(sums.shares), uint64_t{0});
    if (counts) std::fill(std::begin(sums.counts), std::end(sums.counts), uint32_t{0});
    add(part, runs_[0].Part(first, end));
  });
  if (num_runs_ > 1) add(0, runs_[1]);
  buckets->fill({});
  for (const BucketSums& sums : std::span(sums_.get(), step_parts_.count())) {
    for (size_t way = 0; way < BucketSums::kWays; ++way) {
      for (size_t b = 0; b < buckets->size(); ++b) {
        (*buckets)[b].shares += sums.shares[way * BucketSums::kStride + b];
        if (counts) (*buckets)[b].tokens += sums.counts[way * BucketSums::kStride + b];
      }
    }
  }
  return std::accumulate(at_least.begin(), at_least.end(), uint64_t{0});
}

Members RankedSums::MembersOf(LogitInterval of) {
  Members members{.keys = std::span<uint64_t, Members::kRoom>(keys_)};
  for (const ChunkRun& run : std::span(runs_).first(num_runs_)) AddMembers(isa_, run, of, &members);
  return members;
}

// The id of the token with that logit that `index` tokens of lower id have, too.
size_t RankedSums::IdOfEqual(float logit, uint64_t index) const {
  for (const ChunkRun& run : std::span(runs_).first(num_runs_)) {
    for (size_t c = 0; c < run.num_chunks; ++c) {
      if (run.chunk_max[c] < logit) continue;
      const float* chunk = run.logits + c * kChunkTokens;
      uint32_t equal = 0;  // std::count counts in 64 bits, which is half as many lanes
      for (size_t i = 0; i < kChunkTokens; ++i) equal += static_cast<uint32_t>(chunk[i] == logit);
      if (index >= equal) {
        index -= equal;
        continue;
      }
      size_t i = 0;
      while (chunk[i] != logit || index-- > 0) ++i;
      return run.first_id + c * kChunkTokens + i;
    }
  }
  TIDEMILL_CHECK(false);  // Find counted more tokens than `index` with that logit
  return 0;
}

RankedSums::Found RankedSums::Find(Measure measure, uint64_t target) {
  TIDEMILL_CHECK(target < (measure == Measure::kShares ? shares_ : num_tokens_));
  BucketMap map = map_;
  const Buckets* buckets = &buckets_;
  LogitInterval range = range_;
  Bucket before = {};
  for (;;) {
    size_t b = 0;
    for (; target - before.Of(measure) >= (*buckets)[b].Of(measure); ++b) {
      before.shares += (*buckets)[b].shares;
      before.tokens += (*buckets)[b].tokens;
    }
    const Members members = MembersOf(map.IntervalOf(b, range));
    range = members.range;
    if (range.low == range.high) {
      const uint64_t each = rule_.ShareOf(range.high);
      const uint64_t index = (target - before.Of(measure)) / (measure == Measure::kShares ? each : 1);
      return {range.high, IdOfEqual(range.high, index), before.shares + (index + 1) * each};
    }
    if (members.listed == members.count) {
      std::sort(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(members.count));
      for (size_t i = 0;; ++i) {
        const size_t id = IdOfKey(keys_[i]);
        before.shares += rule_.ShareOf(logits_[id]);
        ++before.tokens;
        if (target < before.Of(measure)) return {logits_[id], id, before.shares};
      }
    }
    // Both ends are f32, so they are in different buckets: each round has fewer tokens.
    map = BucketMap(range.high, static_cast<double>(range.high) - static_cast<double>(range.low));
    FillBuckets({.pass = BucketPass::kSharesAndCounts, .rule = rule_, .of = range, .map = map}, &fine_buckets_);
    buckets = &fine_buckets_;
  }
}

}  // namespace tidemill
