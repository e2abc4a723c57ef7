// Requests of a small model with linear attention, and what each gets alone in every class.
#ifndef TIDEMILL_TESTS_SUPPORT_LINEAR_REQUESTS_H_
#define TIDEMILL_TESTS_SUPPORT_LINEAR_REQUESTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/linear_class.h"
#include "runtime/model_impl.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/linear_classes.h"
#include "tests/support/random_requests.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::testing {

inline constexpr size_t kHybridContext = 512;

inline std::shared_ptr<const Model> HybridModel(const std::string& family = "qwen3_5_text_ratio3") {
  ChangedCheckpoint checkpoint("families/" + family);
  checkpoint.Replace("\"max_position_embeddings\": 128", "\"max_position_embeddings\": 512");
  return LoadFolder(checkpoint, TinyTokenizerJson(128));
}

inline std::shared_ptr<const Model> Hybrid() {
  static const auto model = HybridModel();
  return model;
}

inline constexpr LinearPolicy kPolicies[] = {{.form = LinearForm::kRecurrent},
                                             {.form = LinearForm::kBuffered, .buffer = 3},
                                             {.form = LinearForm::kBuffered, .buffer = 8},
                                             {.form = LinearForm::kKv, .buffer = 8, .start = 24},
                                             {.form = LinearForm::kKv, .buffer = 16, .start = 64},
                                             {.form = LinearForm::kBuffered, .buffer = 8, .bfloat16 = true},
                                             {.form = LinearForm::kKv, .buffer = 8, .start = 24, .bfloat16 = true}};

inline DeltaClass ClassOf(const LinearPolicy& policy) {
  return ResolveLinearPolicy(policy, *Hybrid()->impl().language_model, kHybridContext).value();
}
inline std::string NameOf(const LinearPolicy& policy) { return NameOf(ClassOf(policy)); }

inline std::vector<int32_t> Prompt(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(size);
  for (int32_t& id : ids) id = static_cast<int32_t>(3 + random() % 120);
  return ids;
}

inline std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline GenerationOptions Greedy(int32_t tokens) {
  GenerationOptions generation{.max_new_tokens = tokens, .temperature = 0, .ignore_eos = true};
  generation.logprobs = 1;
  return generation;
}

// Of three ids only, so that what comes next has often stood before.
inline GenerationOptions FewIds(int32_t tokens) {
  GenerationOptions generation = Greedy(tokens);
  generation.logit_bias = {{20, 40.0F}, {21, 40.0F}, {22, 40.0F}};
  return generation;
}

// What a request gets alone, token by token, in an engine whose class is the policy's.
inline Outcome Alone(const LinearPolicy& policy, const std::vector<int32_t>& prompt,
                     const GenerationOptions& generation) {
  EngineDriver driver(Hybrid(),
                      {.threads = 1, .linear = policy, .max_batch = 1, .prefill_chunk = 1, .prefix_cache = false});
  return driver.Run(prompt, generation);
}

// Prompts that repeat themselves, of many lengths; greedy and drawn.
inline std::vector<Work> MixedWork() {
  std::vector<Work> work;
  for (const size_t length : {1, 3, 17, 40, 66, 70, 131, 200}) {
    std::vector<int32_t> prompt = Prompt(std::max<size_t>(1, length / 2), length);
    prompt = Joined(prompt, prompt);
    prompt.resize(length);
    const auto tokens = static_cast<int32_t>(20 + length % 13);
    GenerationOptions generation = length % 3 == 0 ? Greedy(tokens) : FewIds(tokens);
    generation.temperature = length % 2 == 0 ? 0.0F : 0.8F;
    generation.seed = length;
    work.push_back({.prompt = std::move(prompt), .generation = generation});
  }
  return work;
}

struct Answers {
  LinearPolicy policy;
  std::vector<Outcome> alone;
};

// Of each policy, what MixedWork gets alone.
inline const std::vector<Answers>& AllAnswers() {
  static const std::vector<Answers> answers = [] {
    std::vector<Answers> made;
    for (const LinearPolicy& policy : kPolicies) {
      Answers& one = made.emplace_back(Answers{policy, {}});
      for (const Work& work : MixedWork()) one.alone.push_back(Alone(policy, work.prompt, work.generation));
    }
    return made;
  }();
  return answers;
}

// From n-grams, however few ids agree.
inline DraftOptions NgramDraft(size_t num_draft_tokens) {
  return {.num_draft_tokens = num_draft_tokens, .min_draft_tokens = num_draft_tokens, .ngram_min = 1};
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_LINEAR_REQUESTS_H_
