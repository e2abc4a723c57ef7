// Requests of a small model under every attention policy, and what each gets alone.
#ifndef TIDEMILL_TESTS_SUPPORT_SPARSE_REQUESTS_H_
#define TIDEMILL_TESTS_SUPPORT_SPARSE_REQUESTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/tiny_model.h"
#include "tidemill/engine.h"
#include "tidemill/policies.h"

namespace tidemill::testing {

inline constexpr int kSparseVocab = 300;
inline constexpr size_t kSparseContext = 640;

inline std::shared_ptr<const Model> SparseModel() {
  static const auto model = LoadModel("sparse_requests", BuildTinyLlama({.vocab = kSparseVocab,
                                                                         .layers = 3,
                                                                         .heads = 6,
                                                                         .kv_heads = 2,
                                                                         .head_dim = 16,
                                                                         .context = kSparseContext,
                                                                         .dtype = DType::kQ8_0,
                                                                         .seed = 21}));
  return model;
}

struct NamedPolicy {
  std::string name;
  AttentionPolicy policy;

  bool evicts() const { return policy.kind == AttentionKind::kH2o || policy.kind == AttentionKind::kWindow; }
};

inline const std::vector<NamedPolicy>& SparsePolicies() {
  using Kind = AttentionKind;
  static const std::vector<NamedPolicy> policies = {
      {"sparq", {.kind = Kind::kSparq, .r = 4, .k = 24}},
      {"sparq, as evaluated", {.kind = Kind::kSparq, .r = 5, .k = 17, .local = 3, .rule = SparqRule::kEval}},
      {"sparq, from rows", {.kind = Kind::kSparq, .r = 4, .k = 24, .columns = KeyColumns::kNone}},
      {"sparq, no mean", {.kind = Kind::kSparq, .r = 3, .k = 40, .reallocate = false, .dense_layers = {1}}},
      {"sparq, a floor", {.kind = Kind::kSparq, .r = 4, .k = 24, .audit = 3, .floors = {.alphas = {0.12F}}}},
      {"sparq, from 50", {.kind = Kind::kSparq, .r = 4, .k = 24, .from = 50}},
      {"top-k", {.kind = Kind::kTopk, .k = 20}},
      {"h2o", {.kind = Kind::kH2o, .k = 24}},
      {"window", {.kind = Kind::kWindow, .k = 28}},
  };
  return policies;
}

inline std::vector<int32_t> SparsePrompt(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(size);
  for (int32_t& id : ids) id = static_cast<int32_t>(3 + random() % (kSparseVocab - 4));
  return ids;
}

inline GenerationOptions SparseGreedy(int32_t tokens) {
  GenerationOptions generation{.max_new_tokens = tokens, .temperature = 0, .ignore_eos = true};
  generation.logprobs = 1;
  return generation;
}

// Of three ids only, so that what comes next has often stood before.
inline GenerationOptions SparseFewIds(int32_t tokens) {
  GenerationOptions generation = SparseGreedy(tokens);
  generation.logit_bias = {{20, 40.0F}, {21, 40.0F}, {22, 40.0F}};
  return generation;
}

// Prompts below and above what policies read; answers that fill granules of columns.
inline std::vector<Work> SparseWork() {
  std::vector<Work> work;
  for (const size_t length : {1, 20, 61, 70, 127, 200, 330}) {
    std::vector<int32_t> prompt = SparsePrompt(std::max<size_t>(1, length / 2), length);
    prompt.insert(prompt.end(), prompt.begin(), prompt.end());
    prompt.resize(length);
    const auto tokens = static_cast<int32_t>(30 + length % 50);
    GenerationOptions generation = length % 3 == 0 ? SparseGreedy(tokens) : SparseFewIds(tokens);
    generation.temperature = length % 2 == 0 ? 0.0F : 0.8F;
    generation.seed = length;
    work.push_back({.prompt = std::move(prompt), .generation = generation});
  }
  return work;
}

// What a request gets alone: one thread, a token a step.
inline Outcome SparseAlone(const AttentionPolicy& policy, const std::vector<int32_t>& prompt,
                           const GenerationOptions& generation) {
  EngineDriver driver(SparseModel(), {.threads = 1,
                                      .kv_policy = KvPolicy::kUpfront,
                                      .attention = policy,
                                      .max_batch = 1,
                                      .prefill_chunk = 1,
                                      .prefix_cache = false});
  return driver.Run(prompt, generation);
}

// Of each policy, what SparseWork gets alone.
inline const std::vector<std::vector<Outcome>>& SparseAnswers() {
  static const std::vector<std::vector<Outcome>> answers = [] {
    std::vector<std::vector<Outcome>> made;
    for (const NamedPolicy& policy : SparsePolicies()) {
      std::vector<Outcome>& of_one = made.emplace_back();
      for (const Work& work : SparseWork()) of_one.push_back(SparseAlone(policy.policy, work.prompt, work.generation));
    }
    return made;
  }();
  return answers;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SPARSE_REQUESTS_H_
