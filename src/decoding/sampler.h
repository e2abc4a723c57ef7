// From the logits of one step to the next token of one sequence.
//
// The logits change in transformers' order, all in f32 but where said (GenerationOptions has the formula of each):
//   1 logit_bias   2 repetition_penalty (prompt and answer)   3 presence_penalty, frequency_penalty (answer)
//   4 no_repeat_ngram_size, bad_words_ids   5 min_new_tokens masks end-of-sequence tokens; forced_bos_token_id,
//   forced_eos_token_id, suppress_tokens, begin_suppress_tokens
// Temperature 0 then takes the largest logit, of equal ones the lowest id. Otherwise:
//   6 weight[id] = exp((l[id] - max) / temperature) in f64, and share[id], the weight as an integer (token_shares.h)
//   7 top_k keeps the k best
//   8 top_p keeps those whose better ones hold less than top_p * (sum of the shares of what 7 left)
//   9 min_p keeps the logits from the lowest one that weighs min_p (the best weighs 1); found by bisection
//  10 the draw: u = UniformAt(...) * (sum of the survivors' shares); the first survivor with u < running sum of shares
// "Better" is larger logit, then lower id. transformers keeps every token that ties with the k-th best; here the lowest
// ids are kept, at most k in all. A draw runs from the best down if top_k or top_p is on, else by ascending id. Sums of
// shares are exact; the products with top_p and u are f64.
//
// Bits: the same logits, options, history, sequence and position give the same token on every machine and level. Only
// comparisons, integers, and f32 and f64 operations in a fixed order are used, with exp and log of our own (exact_math.h).
#ifndef TIDEMILL_DECODING_SAMPLER_H_
#define TIDEMILL_DECODING_SAMPLER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/isa.h"
#include "base/thread_pool.h"
#include "decoding/random.h"
#include "decoding/ranked_sums.h"
#include "decoding/token_history.h"
#include "decoding/token_probability.h"
#include "decoding/token_ranking.h"
#include "decoding/token_shares.h"
#include "decoding/vocab_parts.h"
#include "decoding/vocab_scan.h"
#include "tidemill/generation.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr size_t kMaxTopLogprobs = 20;

struct SampledToken {
  int32_t id = -1;
  std::optional<float> logprob;  // with options.logprobs >= 0: log-softmax of the logits as they came, before 1-10
  size_t num_top = 0;            // min(options.logprobs, tokens that are not masked)
  std::array<TokenLogprob, kMaxTopLogprobs> top_storage = {};

  std::span<const TokenLogprob> top() const { return {top_storage.data(), num_top}; }  // best first
};

// What one sequence's sampler is given besides the options.
struct SamplerSetting {
  size_t vocab_size = 0;                  // length of the logits, 1..2^31 - 1
  std::span<const int32_t> eos_ids = {};  // end-of-sequence tokens; read by Create only
  uint64_t sequence = 0;                  // which of its request's sequences; part of the random numbers
  Isa isa = DetectIsa();                  // every level gives the same token
  size_t max_positions = 0;               // of prompt and answer: what is reserved; more is allowed and may allocate
  ThreadPool* threads = nullptr;          // borrowed; for passes over a large vocabulary; null: none
};

// One sequence. Its whole state is history().ids() and history().num_prompt_tokens(). One thread at a time, and not while
// another loop of SamplerSetting::threads runs. Sample and Accept allocate nothing up to max_positions.
class Sampler {
 public:
  // kInvalidArgument from Validate, or for vocab_size; kOutOfMemory.
  static Result<Sampler> Create(const GenerationOptions& options, const SamplerSetting& setting);

  // Starts over with this prompt. Accept: the next token is `id`, whether it was sampled or came from elsewhere.
  void Prime(std::span<const int32_t> prompt) { history_.Prime(prompt); }
  // Retract: the last `count` accepted ones never were.
  void Accept(int32_t id) { history_.Accept(id); }
  void Retract(size_t count) { history_.Retract(count); }
  const TokenHistory& history() const { return history_; }

  // Chooses the token at `position` of the sequence and leaves the state alone: Accept follows. Changes the logits
  // [vocab] f32. kNumericalError, and no token, if one is NaN or +infinity, or none is left to choose.
  // Cost: one pass over the logits; a draw without top_k adds an exp for each token, and so do logprobs. 150000 logits, one thread of a
  // Zen 4 at AVX-512, in microseconds: greedy 11, top_k 40 22, plain 172, top_p 250, top_k beyond vocab / 64 320. A second thread takes
  // 0.57 (plain) to 0.66 (top_p) of the time of one (Zen 3).
  Result<SampledToken> Sample(std::span<float> logits, uint32_t position);

  // The distribution that Sample would draw from: the survivors of 9 in the order of 10, but those of weight 0, with
  // probabilities by weight. Changes the logits; allocates.
  Result<std::vector<TokenProbability>> Distribution(std::span<float> logits);

 private:
  // What 7 to 9 leave: the tokens up to the one with `last_key` (token_key.h) whose logits are >= least.
  struct Survivors {
    uint64_t last_key;
    float least;
    uint64_t shares;  // sum of theirs
  };

  Sampler(const GenerationOptions& options, const SamplerSetting& setting);  // throws std::bad_alloc

  Result<void> Transform(std::span<float> logits);
  bool Mask(std::span<float> logits, int32_t id);
  void MaskAll(std::span<float> logits, std::span<const int32_t> ids);
  void Force(std::span<float> logits, std::span<const int32_t> ids);
  void MaskBadWords(std::span<float> logits);
  void ForceAndSuppress(std::span<float> logits);
  Error NotANumber(std::span<const float> logits, size_t id) const;
  Survivors SelectRanked(std::span<const float> logits);
  size_t DrawById(std::span<const float> logits, double uniform);
  void FillLogprobs(std::span<const float> raw_logits, SampledToken* out);

  GenerationOptions options_;
  Isa isa_;
  size_t vocab_size_;
  bool penalizes_;   // any of 2 and 3
  bool transforms_;  // any of 1 to 5
  bool ranks_;       // 7 or 8
  double inverse_temperature_;
  RandomStream stream_;
  std::vector<int32_t> eos_ids_;  // those that the logits can hold
  TokenHistory history_;

  VocabParts parts_;  // of SamplerSetting::threads

  // Scratch, sized by Create.
  float max_ = 0.0f;                    // of the transformed logits
  std::vector<float> chunk_max_;        // [NumChunks(vocab)] of them
  std::vector<double> chunk_sum_;       // [NumChunks(vocab)] of weights, for logprobs
  std::vector<uint64_t> chunk_shares_;  // [NumChunks(vocab)] sums of shares, for a draw by id
  RankedSums sums_;                     // for a draw from the best down
  TokenRanking ranking_;                // for the floor of top_k, top logprobs and Distribution
  std::vector<float> raw_logits_;       // [vocab] as they came, if logprobs and transforms_
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_SAMPLER_H_
