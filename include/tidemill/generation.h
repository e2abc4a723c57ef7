// What a caller may ask of a generation, in the words of transformers' `generate`, and how a generation can end.
// Only logits -> next token and the end of the text; the model, the prompt and the machine are elsewhere.
#ifndef TIDEMILL_GENERATION_H_
#define TIDEMILL_GENERATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidemill/result.h"

namespace tidemill {

// The defaults are greedy decoding until end of sequence or context. In the comments: the closed range Validate accepts,
// and how the logits l[id] of one step change, in the order in which the fields are applied:
//   logit_bias, repetition_penalty, presence_penalty and frequency_penalty, no_repeat_ngram_size, bad_words_ids, min_new_tokens,
//   forced_bos_token_id, forced_eos_token_id, suppress_tokens, begin_suppress_tokens, temperature, top_k, top_p, min_p, then the draw.
// transformers' order, with the two penalties that it lacks where OpenAI's and vLLM's formula puts them.
struct GenerationOptions {
  std::optional<int32_t> max_new_tokens = {};  // >= 1; none: until end of sequence or the context is full
  // >= 1; tokens of prompt and answer. max_new_tokens comes before it; else a prompt as long is refused.
  std::optional<int32_t> max_length = {};
  int32_t min_new_tokens =
      0;  // >= 0, <= max_new_tokens; before that many, end-of-sequence tokens get -inf and no repetition ends it

  float temperature = 0.0f;         // 0..100; l / temperature; 0: the largest logit, of equal ones the lowest id
  int32_t top_k = 0;                // >= 0; keep the k largest logits, of equal ones the lowest ids; 0: off
  float top_p = 1.0f;               // > 0, <= 1; keep a token while those more probable hold less than top_p; 1: off
  float min_p = 0.0f;               // 0..1; keep tokens at least min_p times as probable as the best; 0: off
  float repetition_penalty = 1.0f;  // 0.01..100; of every token in prompt and answer: l < 0 ? l * r : l / r; 1: off
  float presence_penalty = 0.0f;    // -2..2; l - presence for every token in the answer; 0: off
  float frequency_penalty = 0.0f;   // -2..2; l - frequency * times in the answer; 0: off
  // 0..1024; -inf for a token that would repeat an n-gram of prompt and answer; 0: off.
  int32_t no_repeat_ngram_size = 0;
  // At most 1024 (id, -100..100): l + bias; entries of one id add up.
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  // What generation_config.json files say. Ids are below the number of tokens, of bad_words_ids the last of each.
  std::vector<std::vector<int32_t>> bad_words_ids =
      {};  // at most 4096 of 1..256 ids; -inf for the last where the others came before it
  std::optional<int32_t> forced_bos_token_id = {};  // behind a prompt of one token: 0 for it, -inf for all others
  std::vector<int32_t> forced_eos_token_id =
      {};                                     // of the last token of max_new_tokens: 0 for them, -inf for all others
  std::vector<int32_t> suppress_tokens = {};  // at most 65536: -inf
  // At most 65536: -inf for the first token of an answer, or behind a prompt of one token and a forced_bos_token_id for the second.
  std::vector<int32_t> begin_suppress_tokens = {};

  // At most 16 of 1..256 bytes of UTF-8; the text ends before the first that completes.
  std::vector<std::string> stop = {};
  bool ignore_eos = false;  // an end-of-sequence token is generated like any other and does not end the text
  // The answer ends where its last 256 tokens have a period of at most 64. Frontends for people turn it on.
  bool stop_at_repetition = false;
  uint64_t seed = 0;      // any; with it the draws of equal logits are equal, on every machine
  int32_t logprobs = -1;  // -1: off; 0..20: log-probability of each token, and of that many most probable ones,
                          // from log-softmax of the model's own logits, before everything above
};

// kInvalidArgument with the field as its flag, its range and the value found: "generation options: --top-p: ...".
// vocab_size: tokens to choose from, the bound of the ids in logit_bias.
Result<void> Validate(const GenerationOptions& options, size_t vocab_size);

// One alternative for a position, from log-softmax of the model's own logits.
struct TokenLogprob {
  int32_t id = -1;
  float logprob = 0.0f;  // natural logarithm
};

enum class FinishReason {
  kStop,        // a stop string
  kLength,      // max_new_tokens, or the context is full
  kEos,         // an end-of-sequence token
  kCancelled,   // the caller
  kRepetition,  // stop_at_repetition
};

// As reports spell it: "stop", "length", "eos", "cancelled", "repetition".
constexpr std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kEos: return "eos";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kRepetition: return "repetition";
  }
  return "unknown";
}

}  // namespace tidemill

#endif  // TIDEMILL_GENERATION_H_
