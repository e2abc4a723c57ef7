// From what a draft model says behind a row to guesses: the likeliest token, one that is drawn, or the best few.
#ifndef TIDEMILL_DECODING_DRAFT_CHOICE_H_
#define TIDEMILL_DECODING_DRAFT_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/isa.h"
#include "decoding/draft_rules.h"
#include "decoding/random.h"
#include "decoding/sampler.h"
#include "decoding/token_ranking.h"
#include "tidemill/generation.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

class DraftChoice {
 public:
  // All that is borrowed outlives it.
  struct Options {
    Isa isa = Isa::kBaseline;
    size_t most = 0;        // guesses at once
    size_t vocab_size = 0;  // only ids below it are guessed
    float least_probability = 0;
    // Guesses are drawn, as temperature, top_k, top_p, min_p and seed of these say: what the residual rule wants. Null: the most likely.
    // Read when it is made.
    const GenerationOptions* drawn_as = nullptr;
    std::optional<int32_t> never = std::nullopt;  // a row of the logits
    std::span<const int32_t> target_ids =
        {};  // of the rows of the logits; empty: their own numbers, at least vocab_size rows
    const Tokenizer* tokenizer = nullptr;  // of the best few: whose special ids are none of them; else null
  };

  // Throws std::bad_alloc.
  explicit DraftChoice(const Options& options);

  // The guess at `place` of those that are made at once, which would stand at `position` of the sequence; none: nothing is likely enough.
  // Changes the logits.
  std::optional<int32_t> Next(std::span<float> logits, size_t place, size_t position);
  // What the first `count` were drawn from, by ascending id; nothing where none are drawn. Valid until the next.
  std::span<const std::vector<TokenProbability>> drawn_from(size_t count) const {
    return std::span(drawn_from_).first(sampler_ ? count : 0);
  }

  // The best tokens, TreeDraft::kRanks at most, with their probabilities. Needs `tokenizer`. Valid until the next. Changes the logits.
  std::span<const TokenProbability> Best(std::span<float> logits);

 private:
  std::span<float> Known(std::span<float> logits) const;
  int32_t IdOf(size_t row) const;
  int32_t Draw(std::span<float> known, size_t place, size_t position);

  Options options_;
  size_t num_rows_;                 // of the logits, that are looked at
  std::vector<size_t> unknown_;     // of them, those that are never guessed
  std::optional<Sampler> sampler_;  // where guesses are drawn
  RandomStream stream_;
  std::vector<std::vector<TokenProbability>> drawn_from_;  // [most] or empty
  std::optional<TokenRanking> ranking_;
  std::vector<TokenProbability> best_;
  std::vector<float> chunk_max_;
  std::vector<double> chunk_sum_;
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFT_CHOICE_H_
