// What guesses are predicted to cost, and what that says of how many a step should check.
//
//   step(g)      one sequence has 1 + g rows behind `depth` positions, `others` have one each: PredictedCosts::CheckStep
//   d            of a drafter that makes its guesses one by one: a decode step of the draft model behind as many positions; of one that
//                makes all at once: a step of it with as many rows as there are guesses at most; of one that runs those before a guess
//                again: a step with the rows of a guess in the middle, one of which is asked; of none (prompt lookup): 0.
//                Of `together` others each has as many rows in the same step: then it is a share of that
//   tree         step(g) has the making of its first g nodes in it, d = 0: a row of the pending token, and for each level that has
//                children among them its inner nodes and their ancestors; shared in the same way
//   rate(g, a)   = (others + E(g)) / (step(g) + g d), E(g) = 1 + a + ... + a^g        decoding/draft_width.h
//                of a tree E(g) = 1 + the sum of the acceptance along the paths of its first g nodes
//   reading      of a draft model, before its first guess: the prompt's prefill. With the best g a token of the answer saves
//                (1 + others / E(g)) (1 / rate(0, a) - 1 / rate(g, a)) of it, since all sequences go on meanwhile; a is kHopedShare
//   break-even   the least a with rate(g, a) >= rate(0, a) = (others + 1) / step(0)
#ifndef TIDEMILL_PLANNER_DRAFT_COSTS_H_
#define TIDEMILL_PLANNER_DRAFT_COSTS_H_

#include <cstddef>
#include <optional>

#include "decoding/draft_tree.h"
#include "decoding/draft_width.h"
#include "planner/predicted_costs.h"
#include "tidemill/engine.h"

namespace tidemill {

// Where a guess is made, and when.
struct DraftSetting {
  size_t depth = 0;
  size_t others = 0;
  size_t together = 0;  // of them, those whose guesses the same steps of the draft model make
  size_t most = 1;      // guesses; at least 1
  GuessOrder order = GuessOrder::kOneByOne;
  bool runs_guesses_again = false;  // a guess is a step of the pending token and all guesses before it
};

// drafter: null where guesses take no steps. No tree.
DraftCosts PredictDraftCosts(const PredictedCosts& model, const PredictedCosts* drafter, const DraftSetting& setting);

// The tree that a request begins with, of at most `most` nodes in order of promise; kDynamic, which follows what the draft model says, as
// kOptimal. Throws std::bad_alloc, as what follows.
DraftShape ShapeOf(DraftTreeKind kind, DraftAcceptance acceptance, size_t most);
// Of drafts that are the first nodes of this shape; promises[i] is how often node i is right by `acceptance`.
DraftCosts PredictTreeCosts(const PredictedCosts& model, const PredictedCosts& drafter, const DraftSetting& setting,
                            const DraftShape& shape, DraftAcceptance acceptance);

// Tokens a second of a step with so many guesses, each right with probability `share`. No tree.
double DraftRate(const DraftCosts& costs, GuessOrder order, size_t guesses, double share);

// How often a guess of a draft model or a head is right, as is assumed before any was checked; benchmarks/RESULTS.md, "Speculation", has what
// they were. Of other drafters it is DraftCosts::share's default.
inline constexpr double kShareOfModel = 0.8;
// In a text that a draft model finds easy.
inline constexpr double kHopedShare = 0.95;

struct DraftReading {
  double seconds = 0;
  std::optional<size_t> least_answer = 0;  // tokens that can make up for it; none: no answer can
};
// Of `prompt` tokens in chunks. A tree has to pay by its likeliest path.
DraftReading PredictReading(const PredictedCosts& model, const PredictedCosts& drafter, const DraftSetting& setting,
                            size_t prompt, size_t chunk);

// none: not even where all of them are right. guesses: at least 1. No tree.
std::optional<double> BreakEvenShare(const DraftCosts& costs, GuessOrder order, size_t guesses);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_DRAFT_COSTS_H_
