// Counts every operator new of this test program (no type that is counted is over-aligned), to show that sampling in the steady state calls none.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "decoding/sampler.h"
#include "decoding/stop_matcher.h"

namespace {

std::atomic<size_t> allocations{0};

void* CountedAllocate(size_t bytes) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* CountedAllocateOrThrow(size_t bytes) {
  if (void* memory = CountedAllocate(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return CountedAllocateOrThrow(bytes); }
void* operator new[](size_t bytes) { return CountedAllocateOrThrow(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return CountedAllocate(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return CountedAllocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace tidemill::sampler_allocation_test {
namespace {

TEST(SamplerAllocation, SteadyState_AllocatesNothing) {
  constexpr size_t kVocab = 5000;
  constexpr uint32_t kTokens = 100;
  const std::vector<GenerationOptions> all = {{},
                                              {.logprobs = 20},
                                              {.temperature = 1.0f, .logprobs = 0},
                                              {.temperature = 1.0f, .top_k = 40},
                                              {.temperature = 1.0f, .top_k = 4000, .top_p = 0.99f},
                                              {.temperature = 50.0f, .top_p = 0.999f},
                                              {.temperature = 1.0f, .min_p = 1e-6f},
                                              {.min_new_tokens = 10,
                                               .temperature = 0.9f,
                                               .top_k = 50,
                                               .top_p = 0.9f,
                                               .min_p = 0.01f,
                                               .repetition_penalty = 1.2f,
                                               .presence_penalty = 0.5f,
                                               .frequency_penalty = 0.5f,
                                               .no_repeat_ngram_size = 3,
                                               .logit_bias = {{7, 1.0f}},
                                               .logprobs = 20},
                                              {.max_new_tokens = 90,
                                               .bad_words_ids = {{9}, {4, 8}, {1, 2, 3, 4, 10}, {7, 7}},
                                               .forced_bos_token_id = 5,
                                               .forced_eos_token_id = {3, 4},
                                               .suppress_tokens = {11, 12, 13},
                                               .begin_suppress_tokens = {14, 15}}};
  std::mt19937_64 rng(20240910);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> base(kVocab);
  for (float& logit : base) logit = normal(rng);
  std::vector<float> logits(kVocab);
  const std::vector<int32_t> eos = {3};
  const std::vector<int32_t> prompt = {1, 2, 3, 4};
  for (size_t i = 0; i < all.size(); ++i) {
    auto sampler = Sampler::Create(all[i], {.vocab_size = kVocab, .eos_ids = eos, .max_positions = kTokens + 4});
    ASSERT_TRUE(sampler.ok());
    sampler->Prime(prompt);
    bool ok = true;
    const size_t before = allocations.load();
    for (uint32_t position = 0; position < kTokens; ++position) {
      std::copy(base.begin(), base.end(), logits.begin());
      const auto token = sampler->Sample(logits, position);
      ok &= token.ok();
      sampler->Accept(token.ok() ? token->id : 0);
    }
    EXPECT_EQ(allocations.load() - before, 0U) << "options " << i;
    EXPECT_TRUE(ok) << "options " << i;
  }
}

TEST(SamplerAllocation, PassesSharedByThreads_AllocateNothing) {
  constexpr size_t kVocab = 3 * VocabParts::kMinTokens;
  const auto pool = ThreadPool::Create(3).value();
  auto sampler = Sampler::Create({.temperature = 1.0f, .top_p = 0.9f, .logprobs = 5},
                                 {.vocab_size = kVocab, .max_positions = 20, .threads = pool.get()});
  ASSERT_TRUE(sampler.ok());
  std::vector<float> logits(kVocab);
  for (size_t i = 0; i < kVocab; ++i) logits[i] = static_cast<float>(i * 7919 % 1000) * 0.01f;
  bool ok = true;
  const size_t before = allocations.load();
  for (uint32_t position = 0; position < 20; ++position) ok &= sampler->Sample(logits, position).ok();
  EXPECT_EQ(allocations.load() - before, 0U);
  EXPECT_TRUE(ok);
}

TEST(SamplerAllocation, Counter_Counts) {
  const size_t before = allocations.load();
  const std::vector<int> some(100);
  EXPECT_EQ(allocations.load() - before, 1U);
  EXPECT_EQ(some.size(), 100U);
}

}  // namespace
}  // namespace tidemill::sampler_allocation_test
