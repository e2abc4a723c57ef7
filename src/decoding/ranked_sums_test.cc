#include "decoding/ranked_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "decoding/testing/at_every_level.h"
#include "decoding/token_key.h"

namespace tidemill::ranked_sums_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint64_t kSeed = 20241123;

std::vector<float> Normal(size_t vocab, float sigma, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(rng);
  return logits;
}

// Logits of every shape that takes a path of its own; more than 2048 in one bucket among them.
std::vector<std::pair<std::string, std::vector<float>>> Shapes(size_t vocab) {
  std::mt19937_64 rng(kSeed + vocab);
  const std::vector<float> typical = Normal(vocab, 3.0f, kSeed);
  auto rounded = typical, masked = typical, apart = typical, spike = Normal(vocab, 1e-3f, kSeed), two = typical;
  for (float& logit : rounded) logit = std::round(logit);
  for (float& logit : masked) logit = rng() % 3 > 0 ? -kInf : logit;
  masked[vocab / 2] = 1.0f;
  for (float& logit : apart) logit = std::ldexp(logit, -static_cast<int>(rng() % 120));  // each digit finds another few
  spike[vocab / 3] = 10.0f;
  for (float& logit : two) logit = rng() % 2 == 0 ? 1.0f : std::nextafter(1.0f, 2.0f);
  auto far = spike;
  far[0] = -3e38f;
  return {{"typical", typical},
          {"flat", Normal(vocab, 0.1f, kSeed)},
          {"rounded", rounded},
          {"masked", masked},
          {"apart", apart},
          {"spike", spike},
          {"two", two},
          {"far", far},
          {"equal", std::vector<float>(vocab, -2.5f)}};
}

TEST(RankedSums, EveryShape_FindsWhatASortFinds) {
  std::mt19937_64 rng(kSeed);
  for (const size_t vocab : {1, 63, 64, 65, 700, 20001}) {
    for (const auto& named : Shapes(vocab)) {
      const std::string& shape = named.first;
      const std::vector<float>& logits = named.second;
      SCOPED_TRACE(shape + " of " + std::to_string(vocab) + ", seed " + std::to_string(kSeed));
      std::vector<float> chunk_max(NumChunks(vocab));
      const float max = ScanLogits(DetectIsa(), logits, chunk_max).max;
      std::vector<uint64_t> keys;
      for (size_t id = 0; id < vocab; ++id) {
        if (logits[id] > -kInf) keys.push_back(TokenKey(logits[id], id));
      }
      std::sort(keys.begin(), keys.end());
      RankedSums sums(vocab);
      for (const double temperature : {1e-40, 0.5, 1.0, 60.0}) {
        const ShareRule rule(max, 1.0 / temperature, vocab);
        for (const float floor : {kLowestLogit, logits[IdOfKey(keys[keys.size() / 5])]}) {
          std::vector<uint64_t> prefix;  // shares of the best 1, 2, ...
          uint64_t at_least = 0;
          const float least = logits[IdOfKey(keys[keys.size() / 7])];
          for (const uint64_t key : keys) {
            const float logit = logits[IdOfKey(key)];
            if (logit < floor) break;
            prefix.push_back(rule.ShareOf(logit) + (prefix.empty() ? 0 : prefix.back()));
            if (logit >= least) at_least = prefix.back();
          }
          testing::AtEveryLevel([&](Isa isa) {
            for (const bool counts : {false, true}) {
              sums.Start(isa, logits, chunk_max, rule, floor, least, counts);
              ASSERT_EQ(sums.shares(), prefix.back());
              ASSERT_EQ(sums.shares_at_least(), at_least);
              const auto check = [&](const RankedSums::Found& found, size_t rank) {
                ASSERT_EQ(found.id, IdOfKey(keys[rank])) << "rank " << rank << ", temperature " << temperature;
                ASSERT_EQ(found.logit, logits[found.id]);
                ASSERT_EQ(found.shares, prefix[rank]) << "rank " << rank << ", temperature " << temperature;
              };
              for (int i = 0; i < 6; ++i) {
                const uint64_t target = i == 0 ? 0 : i == 1 ? prefix.back() - 1 : rng() % prefix.back();
                const auto place = std::upper_bound(prefix.begin(), prefix.end(), target) - prefix.begin();
                check(sums.FindShare(target), static_cast<size_t>(place));
                if (!counts) continue;
                ASSERT_EQ(sums.num_tokens(), prefix.size());
                const size_t rank = i == 0 ? 0 : i == 1 ? prefix.size() - 1 : rng() % prefix.size();
                check(sums.FindRank(rank), rank);
              }
            }
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace tidemill::ranked_sums_test
