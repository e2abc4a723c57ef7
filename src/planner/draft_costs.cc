#include "planner/draft_costs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace tidemill {

namespace {

// Of a step that the draft tokens of several sequences share: one's part.
double PartOf(const PredictedCosts& drafter, const DraftSetting& setting, size_t rows, size_t asked) {
  const size_t sequences = 1 + setting.together;
  return drafter.BatchStep(setting.depth, rows, asked, sequences) / static_cast<double>(sequences);
}

// What a step of the draft model has of the nodes at one depth.
struct Level {
  size_t rows = 0, asked = 0;
};

// Of the first `nodes` nodes; [0] is the last sampled token's, and the last one asks something.
std::vector<Level> Levels(const DraftShape& shape, size_t nodes) {
  std::vector<size_t> depths(nodes);  // from 1
  std::vector<bool> has_child(nodes);
  size_t deepest = 0;
  for (size_t i = 0; i < nodes; ++i) {
    const int32_t parent = shape.parents[i];
    depths[i] = parent < 0 ? 1 : depths[static_cast<size_t>(parent)] + 1;
    if (parent >= 0) {
      has_child[static_cast<size_t>(parent)] = true;
      deepest = std::max(deepest, depths[i] - 1);
    }
  }
  std::vector<Level> levels(nodes == 0 ? 0 : 1 + deepest);
  if (!levels.empty()) levels[0] = {1, 1};
  for (size_t level = 1; level < levels.size(); ++level) {
    std::vector<bool> runs(nodes);
    for (size_t i = nodes; i-- > 0;) {  // children before their parents
      const bool asks = depths[i] == level && has_child[i];
      if (asks) ++levels[level].asked;
      if (!asks && !runs[i]) continue;
      ++levels[level].rows;
      if (shape.parents[i] >= 0) runs[static_cast<size_t>(shape.parents[i])] = true;
    }
  }
  return levels;
}

}  // namespace

DraftCosts PredictDraftCosts(const PredictedCosts& model, const PredictedCosts* drafter, const DraftSetting& setting) {
  TIDEMILL_CHECK(setting.order != DraftOrder::kTree);
  DraftCosts costs;
  costs.other_tokens = static_cast<double>(setting.others);
  for (size_t draft_tokens = 0; draft_tokens < costs.step_seconds.size(); ++draft_tokens)
    costs.step_seconds[draft_tokens] = model.CheckStep(setting.depth, 1 + draft_tokens, setting.others);
  if (drafter != nullptr) {
    const bool at_once = setting.order == DraftOrder::kAtOnce;
    costs.acceptance = setting.acceptance;
    const size_t rows = at_once                           ? setting.num_draft_tokens
                        : setting.runs_draft_tokens_again ? (1 + setting.num_draft_tokens) / 2
                                                          : 1;
    costs.draft_token_seconds = PartOf(*drafter, setting, rows, at_once ? rows : 1);
  }
  return costs;
}

DraftShape ShapeOf(DraftTreeKind kind, DraftAcceptance acceptance, size_t num_draft_tokens) {
  TIDEMILL_CHECK(kind != DraftTreeKind::kChain);
  if (kind != DraftTreeKind::kFixed) return OptimalDraftShape(acceptance, num_draft_tokens);
  DraftShape shape = OrderByPromise(FixedDraftShape(), acceptance);
  shape.parents.resize(std::min(num_draft_tokens, shape.size()));
  shape.ranks.resize(shape.parents.size());
  return shape;
}

DraftCosts PredictTreeCosts(const PredictedCosts& model, const PredictedCosts& drafter, const DraftSetting& setting,
                            const DraftShape& shape, DraftAcceptance acceptance) {
  DraftCosts costs;
  costs.other_tokens = static_cast<double>(setting.others);
  const std::vector<double> promises = Promises(shape, acceptance);
  std::copy_n(promises.begin(), std::min(promises.size(), costs.promises.size()), costs.promises.begin());
  for (size_t draft_tokens = 0; draft_tokens < costs.step_seconds.size(); ++draft_tokens) {
    const size_t nodes = std::min(draft_tokens, shape.size());
    costs.step_seconds[draft_tokens] = model.CheckStep(setting.depth, 1 + nodes, setting.others);
    for (const Level& level : Levels(shape, nodes))
      costs.step_seconds[draft_tokens] += PartOf(drafter, setting, level.rows, level.asked);
  }
  return costs;
}

double DraftRate(const DraftCosts& costs, DraftOrder order, size_t draft_tokens, double acceptance) {
  TIDEMILL_CHECK(order != DraftOrder::kTree);
  double tokens = 1 + costs.other_tokens, reached = 1;
  for (size_t i = 0; i < draft_tokens; ++i) tokens += reached *= acceptance;
  const size_t made = order == DraftOrder::kAtOnce ? std::min<size_t>(draft_tokens, 1) : draft_tokens;
  return tokens / (costs.step_seconds[draft_tokens] + static_cast<double>(made) * costs.draft_token_seconds);
}

DraftPrefill PredictDraftPrefill(const PredictedCosts& model, const PredictedCosts& drafter,
                                 const DraftSetting& setting, size_t prompt, size_t chunk) {
  DraftSetting chain = setting;
  if (chain.order == DraftOrder::kTree) chain.order = DraftOrder::kOneByOne;
  const DraftCosts costs = PredictDraftCosts(model, &drafter, chain);
  const double plain = DraftRate(costs, chain.order, 0, kHopedAcceptance);
  double tokens = 1, reached = 1, best = plain, saved = 0;  // tokens: E(g)
  for (size_t draft_tokens = 1; draft_tokens <= chain.num_draft_tokens; ++draft_tokens) {
    tokens += reached *= kHopedAcceptance;
    const double rate = DraftRate(costs, chain.order, draft_tokens, kHopedAcceptance);
    if (rate <= best) continue;
    best = rate;
    saved = (1 + costs.other_tokens / tokens) * (1 / plain - 1 / rate);
  }
  const double seconds = drafter.Prefill(prompt, chunk);
  constexpr double kLongest = 1e12;
  if (seconds > saved * kLongest) return {.seconds = seconds, .min_answer_tokens = std::nullopt};
  return {.seconds = seconds, .min_answer_tokens = saved == 0 ? 0 : static_cast<size_t>(std::ceil(seconds / saved))};
}

std::optional<double> BreakEvenAcceptanceRate(const DraftCosts& costs, DraftOrder order, size_t draft_tokens) {
  TIDEMILL_CHECK(draft_tokens != 0);
  const double plain = DraftRate(costs, order, 0, 0);
  if (DraftRate(costs, order, draft_tokens, 1) < plain) return std::nullopt;
  constexpr int kHalvings = 40;
  double low = 0, high = 1;  // the rate rises with the acceptance rate
  for (int i = 0; i < kHalvings; ++i) {
    const double acceptance = (low + high) / 2;
    (DraftRate(costs, order, draft_tokens, acceptance) < plain ? low : high) = acceptance;
  }
  return high;
}

}  // namespace tidemill
