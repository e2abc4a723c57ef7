// Passes over a large vocabulary that several threads share give the bits of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "decoding/sampler.h"

namespace tidemill::sampler_threads_test {
namespace {

constexpr size_t kVocab = 4 * VocabParts::kMinTokens + 4465;  // and a chunk that is not whole

std::vector<float> Normal(float sigma) {
  std::mt19937_64 random(20261127);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TEST(SamplerThreads, AnyNumber_GivesTheSameTokens) {
  std::vector<float> spike = Normal(1e-3f);  // more in a bucket than are listed: it is cut again
  spike[kVocab - 1] = 10.0f;
  const std::vector<std::pair<std::string, std::vector<float>>> shapes = {
      {"typical", Normal(3.0f)}, {"spike", spike}, {"equal", std::vector<float>(kVocab, -2.5f)}};
  const std::vector<GenerationOptions> all = {{.temperature = 1.0f},
                                              {.temperature = 1.0f, .logprobs = 5},
                                              {.temperature = 0.8f, .top_k = 40},
                                              {.temperature = 0.8f, .top_k = 20000},
                                              {.temperature = 1.0f, .top_p = 0.95f, .min_p = 0.01f},
                                              {.temperature = 9.0f, .top_k = 60000, .top_p = 0.7f}};
  for (const size_t threads : {2, 5}) {
    const auto pool = ThreadPool::Create(threads).value();
    EXPECT_EQ(VocabParts(pool.get(), kVocab).count(), std::min(threads, VocabParts::kMax));
    for (const auto& [shape, logits] : shapes) {
      for (size_t i = 0; i < all.size(); ++i) {
        auto alone = Sampler::Create(all[i], {.vocab_size = kVocab, .max_positions = 8}).value();
        auto shared =
            Sampler::Create(all[i], {.vocab_size = kVocab, .max_positions = 8, .threads = pool.get()}).value();
        for (uint32_t position = 0; position < 6; ++position) {
          // Steps alternate between two sets of logits: none must find what the previous one left.
          std::vector<float> a = position % 2 == 0 ? logits : shapes.front().second, b = a;
          const SampledToken expected = alone.Sample(a, position).value(), token = shared.Sample(b, position).value();
          const std::string label = shape + ", options " + std::to_string(i) + ", threads " + std::to_string(threads);
          EXPECT_EQ(token.id, expected.id) << label;
          EXPECT_EQ(token.logprob, expected.logprob) << label;
          ASSERT_EQ(token.num_top, expected.num_top) << label;
          for (size_t n = 0; n < token.num_top; ++n)
            EXPECT_EQ(token.top()[n].logprob, expected.top()[n].logprob) << label;
        }
      }
    }
  }
}

TEST(SamplerThreads, SmallVocabularies_HaveOnePart) {
  const auto pool = ThreadPool::Create(4).value();
  for (const size_t vocab : {size_t{1}, VocabParts::kMinTokens, 2 * VocabParts::kMinTokens - 1})
    EXPECT_EQ(VocabParts(pool.get(), vocab).count(), 1U) << vocab;
  EXPECT_EQ(VocabParts(pool.get(), 2 * VocabParts::kMinTokens).count(), 2U);
  EXPECT_EQ(VocabParts(nullptr, 100 * VocabParts::kMinTokens).count(), 1U);
}

}  // namespace
}  // namespace tidemill::sampler_threads_test
