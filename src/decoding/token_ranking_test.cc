#include "decoding/token_ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "decoding/vocab_scan.h"

namespace tidemill::token_ranking_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint64_t kSeed = 20240906;

std::vector<size_t> Ids(const TokenRanking& ranking) {
  std::vector<size_t> ids;
  for (size_t i = 0; i < ranking.size(); ++i) ids.push_back(ranking.id(i));
  return ids;
}

std::vector<float> ChunkMax(const std::vector<float>& logits) {
  std::vector<float> chunk_max(NumChunks(logits.size()));
  EXPECT_TRUE(ScanLogits(DetectIsa(), logits, chunk_max).all_numbers);
  return chunk_max;
}

// All tokens but the masked ones, best first, by a full sort.
std::vector<size_t> Sorted(const std::vector<float>& logits) {
  std::vector<size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), size_t{0});
  std::erase_if(ids, [&](size_t id) { return logits[id] == -kInf; });
  std::stable_sort(ids.begin(), ids.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  return ids;
}

TEST(TokenRanking, RandomLogitsWithTies_MatchTheFullSort) {
  std::mt19937_64 rng(kSeed);
  for (const size_t vocab : {1, 2, 63, 64, 65, 500, 5000}) {
    for (int round = 0; round < 60; ++round) {
      std::vector<float> logits(vocab);
      const int levels = 1 + static_cast<int>(rng() % 400);  // few levels: many ties; both signs of zero
      for (float& logit : logits) {
        logit = static_cast<float>(static_cast<int>(rng() % static_cast<uint64_t>(levels)) - levels / 2) * 0.25f;
        if (logit == 0.0f && rng() % 2 == 0) logit = -0.0f;
        if (rng() % 10 == 0) logit = -kInf;
      }
      const std::vector<size_t> sorted = Sorted(logits);
      const std::vector<float> chunk_max = ChunkMax(logits);
      TokenRanking ranking(vocab);
      const size_t k = 1 + rng() % (rng() % 2 == 0 ? vocab : std::min<size_t>(vocab, 60));
      ranking.KeepBest(logits, chunk_max, k);
      const std::vector<size_t> best(sorted.begin(),
                                     sorted.begin() + static_cast<std::ptrdiff_t>(std::min(k, sorted.size())));
      ASSERT_EQ(Ids(ranking), best) << "vocab " << vocab << ", k " << k << ", round " << round << ", seed " << kSeed;

      const float threshold = logits[rng() % vocab];
      ranking.KeepAtLeast(logits, chunk_max, threshold);
      std::vector<size_t> expected;
      for (size_t id = 0; id < vocab; ++id) {
        if (logits[id] >= threshold && logits[id] > -kInf) expected.push_back(id);
      }
      ASSERT_EQ(Ids(ranking), expected) << "vocab " << vocab << ", threshold " << threshold << ", seed " << kSeed;
    }
  }
}

TEST(TokenRanking, Sort_OfAnySize_IsTheFullSort) {
  std::mt19937_64 rng(kSeed);
  for (const size_t vocab : {1, 2, 100, 2049, 20000}) {
    for (const uint64_t levels : {uint64_t{3}, uint64_t{300}, uint64_t{1} << 40}) {
      std::vector<float> logits(vocab);
      for (float& logit : logits) {
        logit = (static_cast<float>(rng() % levels) - static_cast<float>(levels / 2)) * 0.37f;
        if (logit == 0.0f && rng() % 2 == 0) logit = -0.0f;
      }
      TokenRanking ranking(vocab);
      ranking.KeepAtLeast(logits, ChunkMax(logits), -kInf);
      ranking.Sort();
      ASSERT_EQ(Ids(ranking), Sorted(logits)) << "vocab " << vocab << ", " << levels << " levels, seed " << kSeed;
    }
  }
}

}  // namespace
}  // namespace tidemill::token_ranking_test
