#include "decoding/token_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "decoding/testing/at_every_level.h"
#include "decoding/token_key.h"

namespace tidemill::token_shares_test {
namespace {

using testing::AtEveryLevel;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint64_t kSeed = 20241122;

// Whole chunks of normal logits, some of them masked, with the maximum of each.
struct Chunks {
  explicit Chunks(size_t num_chunks, float sigma, uint64_t seed) : logits(num_chunks * kChunkTokens), max(num_chunks) {
    std::mt19937_64 rng(seed);
    std::normal_distribution<float> normal(1.0f, sigma);
    for (float& logit : logits) logit = rng() % 9 == 0 ? -kInf : normal(rng);
    best = ScanLogits(Isa::kBaseline, logits, max).max;
  }
  // `count` chunks from `first` on; chunk 0 begins with the token `first_id`.
  ChunkRun Run(size_t first, size_t count, size_t first_id) const {
    return {logits.data() + first * kChunkTokens, max.data() + first, count, first_id + first * kChunkTokens};
  }

  std::vector<float> logits;
  std::vector<float> max;
  float best;
};

TEST(TokenShares, SumOfAllShares_Fits) {
  for (const size_t vocab : {size_t{1}, size_t{2}, size_t{4095}, size_t{4096}, size_t{150000}, (size_t{1} << 31) - 1}) {
    const int bits = ShareBits(vocab);
    EXPECT_GE(bits, 32) << vocab;
    EXPECT_LT(static_cast<double>(vocab) * std::ldexp(1.0, bits), 0x1p63) << vocab;
    EXPECT_EQ(ShareRule(3.0f, 1.0, vocab).ShareOf(3.0f), uint64_t{1} << bits) << vocab;
  }
  EXPECT_EQ(ShareBits(150000), 45);
}

TEST(TokenShares, Share_IsTheWeightRounded) {
  std::mt19937_64 rng(kSeed);
  std::uniform_real_distribution<float> below(0.0f, 45.0f);
  const ShareRule rule(2.0f, 1.0 / 0.8, 150000);
  for (int i = 0; i < 10000; ++i) {
    const float logit = 2.0f - below(rng);
    const double exact = TokenWeight(logit, 2.0f, 1.0 / 0.8) * 0x1p45;
    ASSERT_EQ(rule.ShareOf(logit), static_cast<uint64_t>(std::nearbyint(exact))) << logit << ", seed " << kSeed;
  }
  EXPECT_EQ(rule.ShareOf(-kInf), 0U);
}

TEST(TokenShares, LowestOfWeight_IsTheEdge) {
  for (const double temperature : {1e-30, 0.3, 1.0, 100.0}) {
    for (const float max : {-3e38f, -7.25f, 0.0f, 1e-30f, 25.0f}) {
      const ShareRule rule(max, 1.0 / temperature, 1000);
      EXPECT_EQ(rule.LowestOfWeight(0.0), kLowestLogit);
      for (const double weight : {1e-30, 0.05, 0.7, 1.0}) {
        const float edge = rule.LowestOfWeight(weight);
        EXPECT_LE(edge, max);
        EXPECT_GE(TokenWeight(edge, max, 1.0 / temperature), weight) << max << " at " << temperature;
        if (edge == kLowestLogit) continue;
        EXPECT_LT(TokenWeight(std::nextafter(edge, -kInf), max, 1.0 / temperature), weight)
            << max << " at " << temperature;
      }
    }
  }
}

TEST(BucketMap, IntervalOfABucket_IsAllOfItAndNoMore) {
  std::mt19937_64 rng(kSeed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  for (const float scale : {1e-45f, 1e-30f, 1e-3f, 1.0f, 1e30f}) {
    for (int round = 0; round < 200; ++round) {
      const float a = normal(rng) * scale;
      const float b = a + normal(rng) * scale;
      if (a == b) continue;
      const LogitInterval of = {std::min(a, b), std::max(a, b)};
      const BucketMap map(of.high, static_cast<double>(of.high) - static_cast<double>(of.low));
      ASSERT_NE(map.BucketOf(of.low), map.BucketOf(of.high)) << of.low << " " << of.high;
      const float inside = of.low + (of.high - of.low) * 0.37f;
      const size_t bucket = map.BucketOf(inside);
      const LogitInterval found = map.IntervalOf(bucket, of);
      ASSERT_EQ(map.BucketOf(found.low), bucket);
      ASSERT_EQ(map.BucketOf(found.high), bucket);
      ASSERT_TRUE(found.low == of.low || map.BucketOf(std::nextafter(found.low, -kInf)) > bucket);
      ASSERT_TRUE(found.high == of.high || map.BucketOf(std::nextafter(found.high, kInf)) < bucket);
    }
  }
}

TEST(TokenShares, EveryLevel_SumsTheSharesOfChunks) {
  for (const size_t size : {1, 63, 64, 65, 1000, 5000}) {
    const Chunks chunks(NumChunks(size), 4.0f, kSeed + size);
    std::vector<float> logits(chunks.logits.begin(), chunks.logits.begin() + static_cast<std::ptrdiff_t>(size));
    logits[0] = chunks.best;
    std::vector<float> chunk_max(NumChunks(size));
    const ShareRule rule(ScanLogits(Isa::kBaseline, logits, chunk_max).max, 1.0 / 0.7, size);
    for (const float least : {kLowestLogit, rule.LowestOfWeight(0.01)}) {
      std::vector<uint64_t> expected(NumChunks(size));
      uint64_t total = 0;
      for (size_t id = 0; id < size; ++id) {
        const uint64_t share = logits[id] >= least ? rule.ShareOf(logits[id]) : 0;
        expected[id / kChunkTokens] += share;
        total += share;
      }
      AtEveryLevel([&](Isa isa) {
        std::vector<uint64_t> sums(NumChunks(size), 77);
        EXPECT_EQ(SumShares(isa, logits, chunk_max, rule, least, sums), total) << size;
        EXPECT_EQ(sums, expected) << size;
      });
    }
  }
}

TEST(TokenShares, EveryLevel_FillsTheBuckets) {
  const Chunks chunks(50, 3.0f, kSeed);
  const ShareRule rule(chunks.best, 1.0, 3200);
  const BucketMap map(chunks.best - 1.0f, 9.0);
  for (const LogitInterval of : {LogitInterval{kLowestLogit, chunks.best}, LogitInterval{-0.5f, 2.0f}}) {
    for (const BucketPass pass : {BucketPass::kAllShares, BucketPass::kSharesAndCounts}) {
      if (pass == BucketPass::kAllShares && of.low > kLowestLogit) continue;
      for (const float least : {kLowestLogit, 0.5f}) {
        std::vector<uint64_t> shares(BucketMap::kBuckets), counts(BucketMap::kBuckets);
        uint64_t at_least = 0;
        for (size_t i = 0; i < chunks.logits.size(); ++i) {
          const float logit = chunks.logits[i];
          if (logit >= least && chunks.max[i / kChunkTokens] >= of.low) at_least += rule.ShareOf(logit);
          if (logit < of.low || logit > of.high) continue;
          shares[map.BucketOf(logit)] += rule.ShareOf(logit);
          if (pass == BucketPass::kSharesAndCounts) ++counts[map.BucketOf(logit)];
        }
        AtEveryLevel([&](Isa isa) {
          const auto sums = std::make_unique<BucketSums>();
          const uint64_t found =
              AddToBuckets(isa, chunks.Run(0, 50, 0),
                           {.pass = pass, .rule = rule, .of = of, .map = map, .least = least}, sums.get());
          if (of.low == kLowestLogit) {
            EXPECT_EQ(found, at_least);
          }
          for (size_t b = 0; b < BucketMap::kBuckets; ++b) {
            uint64_t share = 0, count = 0;
            for (size_t way = 0; way < BucketSums::kWays; ++way) {
              share += sums->shares[way * BucketSums::kStride + b];
              count += sums->counts[way * BucketSums::kStride + b];
            }
            ASSERT_EQ(share, shares[b]) << b;
            ASSERT_EQ(count, counts[b]) << b;
          }
        });
      }
    }
  }
}

TEST(TokenShares, EveryLevel_ListsTheMembersWhileThereIsRoom) {
  const Chunks chunks(50, 3.0f, kSeed);
  for (const LogitInterval of :
       {LogitInterval{0.5f, 1.5f}, LogitInterval{kLowestLogit, chunks.best}, LogitInterval{1e9f, 2e9f}}) {
    std::vector<uint64_t> expected;
    float low = kInf, high = -kInf;
    for (size_t i = 0; i < chunks.logits.size(); ++i) {
      if (chunks.logits[i] < of.low || chunks.logits[i] > of.high) continue;
      expected.push_back(TokenKey(chunks.logits[i], 1000 + i));
      low = std::min(low, chunks.logits[i]);
      high = std::max(high, chunks.logits[i]);
    }
    AtEveryLevel([&](Isa isa) {
      std::vector<uint64_t> keys(Members::kRoom);
      Members members{.keys = std::span<uint64_t, Members::kRoom>(keys)};
      AddMembers(isa, chunks.Run(0, 20, 1000), of, &members);
      AddMembers(isa, chunks.Run(20, 30, 1000), of, &members);
      EXPECT_EQ(members.count, expected.size());
      if (expected.empty()) return;
      EXPECT_EQ(members.range.low, low);
      EXPECT_EQ(members.range.high, high);
      EXPECT_EQ(members.listed == members.count, expected.size() <= Members::kRoom - 16);
      ASSERT_LE(members.listed, expected.size());
      EXPECT_TRUE(
          std::equal(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(members.listed), expected.begin()));
    });
  }
}

}  // namespace
}  // namespace tidemill::token_shares_test
