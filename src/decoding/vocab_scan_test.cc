#include "decoding/vocab_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/isa.h"
#include "decoding/testing/at_every_level.h"

namespace tidemill::vocab_scan_test {
namespace {

using testing::AtEveryLevel;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint64_t kSeed = 20240903;
constexpr size_t kSizes[] = {1, 2, 7, 16, 63, 64, 65, 127, 128, 129, 1000, 49152, 151936};

std::vector<float> RandomLogits(size_t size, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(rng);
  return logits;
}

// The header's bit formula in plain loops.
double PlainSum(const std::vector<float>& logits, float max, double inverse_temperature,
                std::vector<double>* chunk_sum) {
  double total = 0.0;
  for (size_t c = 0; c < NumChunks(logits.size()); ++c) {
    double s[16] = {};
    const size_t end = std::min(logits.size(), (c + 1) * kChunkTokens);
    for (size_t i = c * kChunkTokens; i < end; ++i) s[i % 16] += TokenWeight(logits[i], max, inverse_temperature);
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t j = 0; j < half; ++j) s[j] += s[j + half];
    }
    chunk_sum->push_back(s[0]);
    total += s[0];
  }
  return total;
}

TEST(VocabScan, EveryLevel_FindsMaximaAndTheLowestBestId) {
  for (const size_t size : kSizes) {
    std::vector<float> logits = RandomLogits(size, kSeed + size);
    const auto best = std::max_element(logits.begin(), logits.end());
    const size_t best_id = static_cast<size_t>(best - logits.begin());
    for (size_t id = best_id; id < size; id += 37) logits[id] = *best;  // ties go to the first
    AtEveryLevel([&](Isa isa) {
      std::vector<float> chunk_max(NumChunks(size));
      const LogitScan scan = ScanLogits(isa, logits, chunk_max);
      EXPECT_TRUE(scan.all_numbers) << size;
      EXPECT_EQ(scan.max, logits[best_id]) << size;
      EXPECT_EQ(ArgMax(logits, chunk_max, scan.max), best_id) << size;
      for (size_t c = 0; c < chunk_max.size(); ++c) {
        const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(c * kChunkTokens);
        const auto end = logits.begin() + static_cast<std::ptrdiff_t>(std::min(size, (c + 1) * kChunkTokens));
        EXPECT_EQ(chunk_max[c], *std::max_element(begin, end)) << size << " chunk " << c;
      }
    });
  }
}

TEST(VocabScan, EveryLevel_SeesNanAndInfinityAtEveryPlace) {
  for (const size_t size : {1, 63, 64, 130, 333}) {
    std::vector<float> logits = RandomLogits(size, kSeed);
    std::vector<float> chunk_max(NumChunks(size));
    AtEveryLevel([&](Isa isa) {
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(), kInf}) {
        for (size_t i = 0; i < size; ++i) {
          const float good = logits[i];
          logits[i] = bad;
          EXPECT_FALSE(ScanLogits(isa, logits, chunk_max).all_numbers) << bad << " at " << i << " of " << size;
          logits[i] = good;
        }
      }
      for (size_t i = 0; i < size; ++i) {
        const float good = logits[i];
        logits[i] = -kInf;
        EXPECT_TRUE(ScanLogits(isa, logits, chunk_max).all_numbers) << "-infinity at " << i << " of " << size;
        logits[i] = good;
      }
    });
  }
}

TEST(VocabScan, EveryLevel_SumsWeightsToTheBitsOfTheFormula) {
  for (const size_t size : kSizes) {
    std::vector<float> logits = RandomLogits(size, kSeed + 1 + size);
    for (size_t i = 5; i < size; i += 11) logits[i] = -kInf;
    std::vector<float> chunk_max(NumChunks(size));
    const float max = ScanLogits(Isa::kBaseline, logits, chunk_max).max;
    for (const double temperature : {1e-30, 0.01, 0.7, 1.0, 100.0}) {
      std::vector<double> expected;
      const double total = PlainSum(logits, max, 1.0 / temperature, &expected);
      AtEveryLevel([&](Isa isa) {
        std::vector<double> chunk_sum(NumChunks(size));
        const double actual = SumWeights(isa, logits, max, 1.0 / temperature, chunk_sum);
        EXPECT_EQ(std::bit_cast<uint64_t>(actual), std::bit_cast<uint64_t>(total)) << size << " at " << temperature;
        EXPECT_EQ(chunk_sum, expected) << size << " at " << temperature;
      });
    }
  }
}

}  // namespace
}  // namespace tidemill::vocab_scan_test
