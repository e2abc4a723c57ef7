// From what a draft model says behind a row to draft tokens: the likeliest token, or the best few.
#ifndef TIDEMILL_DECODING_DRAFT_CHOICE_H_
#define TIDEMILL_DECODING_DRAFT_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/isa.h"
#include "decoding/token_probability.h"
#include "decoding/token_ranking.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

class DraftChoice {
 public:
  // All that is borrowed outlives it.
  struct Options {
    Isa isa = Isa::kBaseline;
    size_t num_draft_tokens = 0;  // draft tokens in a draft
    size_t vocab_size = 0;        // only ids below it are drafted
    float min_probability = 0;
    std::optional<int32_t> never = std::nullopt;  // a row of the logits
    std::span<const int32_t> target_ids =
        {};  // of the rows of the logits; empty: their own numbers, at least vocab_size rows
    const Tokenizer* tokenizer = nullptr;  // of the best few: whose special ids are none of them; else null
  };

  // Throws std::bad_alloc.
  explicit DraftChoice(const Options& options);

  // The likeliest token; none: nothing is likely enough. Changes the logits.
  std::optional<int32_t> Next(std::span<float> logits);

  // The best tokens, TreeDraft::kRanks at most, with their probabilities. Needs `tokenizer`. Valid until the next. Changes the logits.
  std::span<const TokenProbability> Best(std::span<float> logits);

 private:
  std::span<float> Known(std::span<float> logits) const;
  int32_t IdOf(size_t row) const;

  Options options_;
  size_t num_rows_;              // of the logits, that are looked at
  std::vector<size_t> unknown_;  // of them, those that are never drafted
  std::optional<TokenRanking> ranking_;
  std::vector<TokenProbability> best_;
  std::vector<float> chunk_max_;
  std::vector<double> chunk_sum_;
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFT_CHOICE_H_
