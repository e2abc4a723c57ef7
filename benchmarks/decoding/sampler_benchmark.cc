// One token chosen from 150000 logits, for each kind of filter and each shape of the logits, by one thread and by as many as there are, four at most:
// real time, since what one of several takes says nothing.
#include "decoding/sampler.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/kernels/measure.h"

namespace tidemill::benchmarks {
namespace {

constexpr size_t kVocab = 150000;

std::vector<float> Normal(float sigma) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

std::vector<float> WithBest(std::vector<float> logits, float best) {
  logits[kVocab / 3] = best;
  return logits;
}

void Choose(benchmark::State& state, const GenerationOptions& options, std::vector<float> logits, size_t threads) {
  const auto pool = ThreadPool::Create(threads).value();
  auto sampler = Sampler::Create(options, {.vocab_size = kVocab, .isa = Level(), .threads = pool.get()}).value();
  uint32_t position = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sampler.Sample(logits, position++).value().id);
}

const bool kRegistered = [] {
  const std::vector<std::pair<std::string, std::vector<float>>> shapes = {
      {"peaked", WithBest(Normal(2.0f), 25.0f)},    // the best token holds nearly all
      {"typical", Normal(3.0f)},                    // a few thousand hold 95 %
      {"flat", Normal(0.1f)},                       // most tokens survive any top_p
      {"equal", std::vector<float>(kVocab, 1.0f)},  // ties only
      {"spike", WithBest(Normal(0.001f), 10.0f)},   // all but one within a thousandth
      {"bfloat16", [] {                             // many ties
         std::vector<float> logits = Normal(3.0f);
         for (float& logit : logits) logit = std::bit_cast<float>(std::bit_cast<uint32_t>(logit) & 0xFFFF0000u);
         return logits;
       }()}};
  const std::vector<std::pair<std::string, GenerationOptions>> filters = {
      {"greedy", {}},
      {"plain", {.temperature = 1.0f}},
      {"top_k:40", {.temperature = 0.8f, .top_k = 40}},
      {"top_k:20000", {.temperature = 0.8f, .top_k = 20000}},
      {"top_p:0.95", {.temperature = 1.0f, .top_p = 0.95f}},
      {"top_p:0.5", {.temperature = 1.0f, .top_p = 0.5f}},
      {"min_p:0.05", {.temperature = 1.0f, .min_p = 0.05f}},
      {"top_k:40/top_p:0.95/min_p:0.05", {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}},
      {"top_k:20000/top_p:0.95", {.temperature = 1.0f, .top_k = 20000, .top_p = 0.95f}},
      {"top_p:0.95/min_p:0.7", {.temperature = 1.0f, .top_p = 0.95f, .min_p = 0.7f}},
      {"plain/logprobs:5", {.temperature = 1.0f, .logprobs = 5}}};
  for (const auto& [shape, logits] : shapes) {
    for (const auto& [filter, options] : filters) {
      const size_t most = std::min(DefaultThreadCount(), VocabParts::kMax);
      for (size_t threads = 1; threads <= most; threads += std::max<size_t>(1, most - 1)) {
        const std::string name = "Sample/" + shape + "/" + filter + "/threads:" + std::to_string(threads);
        Configure(benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
                    Choose(state, options, logits, threads);
                  })->UseRealTime());
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace tidemill::benchmarks
