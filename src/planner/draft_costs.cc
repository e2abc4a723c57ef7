#include "planner/draft_costs.h"

#include <algorithm>

#include "base/check.h"

namespace tidemill {

DraftCosts PredictDraftCosts(const PredictedCosts& model, const PredictedCosts* drafter, const DraftSetting& setting) {
  DraftCosts costs;
  if (setting.order == GuessOrder::kTree) return costs;
  costs.other_tokens = static_cast<double>(setting.others);
  for (size_t guesses = 0; guesses < costs.step_seconds.size(); ++guesses)
    costs.step_seconds[guesses] = model.CheckStep(setting.depth, 1 + guesses, setting.others);
  if (drafter != nullptr) {
    const size_t rows = setting.order == GuessOrder::kAtOnce ? setting.most : 1;
    costs.guess_seconds = drafter->CheckStep(setting.depth, rows, 0);
  }
  return costs;
}

double DraftRate(const DraftCosts& costs, GuessOrder order, size_t guesses, double share) {
  double tokens = 1 + costs.other_tokens, reached = 1;
  for (size_t i = 0; i < guesses; ++i) tokens += reached *= share;
  const size_t made = order == GuessOrder::kAtOnce ? std::min<size_t>(guesses, 1) : guesses;
  return tokens / (costs.step_seconds[guesses] + static_cast<double>(made) * costs.guess_seconds);
}

std::optional<double> BreakEvenShare(const DraftCosts& costs, GuessOrder order, size_t guesses) {
  TIDEMILL_CHECK(guesses != 0);
  const double plain = DraftRate(costs, order, 0, 0);
  if (DraftRate(costs, order, guesses, 1) < plain) return std::nullopt;
  constexpr int kHalvings = 40;
  double low = 0, high = 1;  // the rate rises with the share
  for (int i = 0; i < kHalvings; ++i) {
    const double share = (low + high) / 2;
    (DraftRate(costs, order, guesses, share) < plain ? low : high) = share;
  }
  return high;
}

}  // namespace tidemill
