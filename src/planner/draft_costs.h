// What guesses are predicted to cost, and what that says of how many a step should check.
//
//   step(g)      one sequence has 1 + g rows behind `depth` positions, `others` have one each: PredictedCosts::CheckStep
//   d            of a drafter that makes its guesses one by one: a decode step of the draft model behind as many positions; of one that
//                makes all at once: a step of it with as many rows as there are guesses at most; of none (prompt lookup): 0
//   rate(g, a)   = (others + E(g)) / (step(g) + g d), E(g) = 1 + a + ... + a^g        decoding/draft_width.h
//   break-even   the least a with rate(g, a) >= rate(0, a) = (others + 1) / step(0)
#ifndef TIDEMILL_PLANNER_DRAFT_COSTS_H_
#define TIDEMILL_PLANNER_DRAFT_COSTS_H_

#include <cstddef>
#include <optional>

#include "decoding/draft_width.h"
#include "planner/predicted_costs.h"

namespace tidemill {

// Where a guess is made, and when.
struct DraftSetting {
  size_t depth = 0;
  size_t others = 0;
  size_t most = 1;  // guesses; at least 1
  GuessOrder order = GuessOrder::kOneByOne;
};

// drafter: null where guesses take no steps. Of a tree, whose levels are not known beforehand: without prediction, all zeros.
DraftCosts PredictDraftCosts(const PredictedCosts& model, const PredictedCosts* drafter, const DraftSetting& setting);

// Tokens a second of a step with so many guesses, each right with probability `share`.
double DraftRate(const DraftCosts& costs, GuessOrder order, size_t guesses, double share);

// none: not even where all of them are right. guesses: at least 1.
std::optional<double> BreakEvenShare(const DraftCosts& costs, GuessOrder order, size_t guesses);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_DRAFT_COSTS_H_
