// What draft tokens are predicted to cost, and how many a step should check.
//
//   step(g)       a step in which one sequence has 1 + g rows at `depth` and `others` have one each: PredictedCosts::CheckStep
//   d             the draft step of one draft token, a decode step of the draft model at that depth. All at once (PARD): a step with as many rows
//                 as there are draft tokens at most. Where earlier draft tokens run again (the model's own layers, if some have linear
//                 attention): a step with (1 + most) / 2 rows. Prompt lookup: 0.
//                 With `together` batch mates in the same draft step: one sequence's part of it.
//   tree          step(g) contains the drafting of the first g nodes, and d = 0: a row of the last sampled token, and for each level with
//                 children the rows of its inner nodes and their ancestors; the same part of it
//   rate(g, a)    = (others + E(g)) / (step(g) + g d), E(g) = 1 + a + ... + a^g, a: acceptance rate        decoding/num_draft_tokens.h
//                 tree: E(g) = 1 + the sum over the first g nodes of the product of acceptance rates along their paths
//   draft prefill the draft model's prefill of the prompt. With the best g a token of the answer saves
//                 (1 + others / E(g)) (1 / rate(0, a) - 1 / rate(g, a)) of it, since all sequences go on meanwhile; a is kHopedAcceptance
//   break-even    the least a with rate(g, a) >= rate(0, a) = (others + 1) / step(0)
#ifndef TIDEMILL_PLANNER_DRAFT_COSTS_H_
#define TIDEMILL_PLANNER_DRAFT_COSTS_H_

#include <cstddef>
#include <optional>

#include "decoding/draft_tree.h"
#include "decoding/num_draft_tokens.h"
#include "planner/predicted_costs.h"
#include "tidemill/engine.h"

namespace tidemill {

// The acceptance rate of a draft model, a head or sparq that is assumed before any draft token was checked. Other drafters: DraftCosts::acceptance's
// default.
inline constexpr double kModelAcceptance = 0.8;
// The acceptance rate in an easy text.
inline constexpr double kHopedAcceptance = 0.95;

// Where and beside whom a draft token is made.
struct DraftSetting {
  size_t depth = 0;             // tokens that each sequence holds
  size_t others = 0;            // batch mates
  size_t together = 0;          // of them, those whose draft tokens come from the same draft steps
  size_t num_draft_tokens = 1;  // draft tokens; at least 1
  DraftOrder order = DraftOrder::kOneByOne;
  bool runs_draft_tokens_again = false;  // a draft step has the last sampled token and all earlier draft tokens
  double acceptance = kModelAcceptance;  // that is assumed at first where drafting takes steps
};

// drafter: null where drafting takes no steps. No tree.
DraftCosts PredictDraftCosts(const PredictedCosts& model, const PredictedCosts* drafter, const DraftSetting& setting);

// The tree that a request begins with: at most `num_draft_tokens` nodes, the likeliest first. kDynamic depends on the draft model's probabilities and is
// predicted as kOptimal. Throws std::bad_alloc, as PredictTreeCosts does.
DraftShape ShapeOf(DraftTreeKind kind, DraftAcceptance acceptance, size_t num_draft_tokens);
// Drafts are the first nodes of this shape. promises[i]: probability by `acceptance` that node i is accepted.
DraftCosts PredictTreeCosts(const PredictedCosts& model, const PredictedCosts& drafter, const DraftSetting& setting,
                            const DraftShape& shape, DraftAcceptance acceptance);

// Tokens a second of a step with so many draft tokens at acceptance rate `acceptance`. No tree.
double DraftRate(const DraftCosts& costs, DraftOrder order, size_t draft_tokens, double acceptance);

struct DraftPrefill {
  double seconds = 0;
  std::optional<size_t> min_answer_tokens =
      0;  // the shortest answer that can make up for it, in tokens; none: no answer can
};
// The draft prefill of `prompt` tokens in chunks. A tree has to pay by its likeliest path.
DraftPrefill PredictDraftPrefill(const PredictedCosts& model, const PredictedCosts& drafter,
                                 const DraftSetting& setting, size_t prompt, size_t chunk);

// The break-even acceptance rate of so many draft tokens, at least 1; none: not even 1 pays. No tree.
std::optional<double> BreakEvenAcceptanceRate(const DraftCosts& costs, DraftOrder order, size_t draft_tokens);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_DRAFT_COSTS_H_
