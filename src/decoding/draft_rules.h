// How a token is drawn where guesses at it were made and verified: rules beside the plain draw, whose tokens follow the same distribution.
// A guess is right iff it is the token that a rule returns, so the rule alone decides what is accepted.
//
//   noise     the plain draw (Sampler::Sample): the answer is the same with any guesses or none
//   sibling   guesses x1, x2, ... that were not drawn at random: x1 with probability p(x1); else p(x1) = 0, p is scaled back to a sum of
//             one, and x2 has its turn; after the last one a draw from what is left of p               EAGLE, arXiv:2401.15077
//   residual  one guess x that was drawn from a known q: x with probability min(1, p(x) / q(x)); else a draw from max(0, p - q), scaled
//             arXiv:2211.17192, theorem 1. With probability sum of min(p, q), the most that a drawn guess can have
//
// Numbers come from UniformAt for the token's own position and are used for nothing else; sums run in the given order in f64.
#ifndef TIDEMILL_DECODING_DRAFT_RULES_H_
#define TIDEMILL_DECODING_DRAFT_RULES_H_

#include <cstdint>
#include <span>

#include "decoding/random.h"

namespace tidemill {

struct TokenProbability {
  int32_t id;
  double probability;  // > 0
};

// What was guessed at one position.
struct Guesses {
  std::span<const int32_t> ids = {};  // the most promising first
  std::span<const TokenProbability> drawn_from =
      {};  // residual rule: q by ascending id, from which the only id was drawn; else empty
};

// target: p, not empty; overwritten.
int32_t DrawAmongSiblings(std::span<TokenProbability> target, std::span<const int32_t> siblings,
                          const RandomStream& stream, uint32_t position);
// draft: q by ascending id. `guess` has a probability in it.
int32_t DrawWithResidual(std::span<TokenProbability> target, int32_t guess, std::span<const TokenProbability> draft,
                         const RandomStream& stream, uint32_t position);

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFT_RULES_H_
