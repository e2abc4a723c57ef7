#include "planner/plan.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "decoding/draft_width.h"
#include "planner/draft_costs.h"
#include "planner/growth_choice.h"

namespace tidemill {
namespace {

std::string TokensText(size_t tokens) { return std::to_string(tokens) + (tokens == 1 ? " token" : " tokens"); }

// A plan in the making.
class Planner {
 public:
  explicit Planner(const PlanInput& input)
      : in_(input), costs_(in_.profile, in_.model, in_.threads == 1 ? ThreadUse::kOne : ThreadUse::kAll) {}

  Plan Make() const {
    Plan plan;
    plan.context = in_.context;
    plan.batch = in_.batch;
    plan.state_row_bytes = in_.model.state_row_bytes;
    plan.state_memory_bytes = in_.state_memory;
    plan.memory = in_.memory;
    plan.memory.unused_capacity =
        static_cast<uint64_t>(IdleBytes(in_.policy, in_.period) * static_cast<double>(in_.batch));
    plan.choices = {GrowthPeriod(), Policy(), PrefillChunk(), Threads()};
    if (in_.drafts.is_planned) plan.choices.push_back(Width());
    plan.drafts = Drafts();
    for (const size_t depth : {size_t{0}, in_.context / 2, in_.context - 1}) {
      if (!plan.decode.empty() && depth <= plan.decode.back().depth) continue;
      plan.decode.push_back({depth, costs_.DecodeStep(depth, in_.batch)});
    }
    plan.prefill_seconds = costs_.Prefill(in_.context, in_.prefill_chunk);
    return plan;
  }

 private:
  double Growing(KvPolicy policy, size_t period) const {
    return costs_.Growing(policy, period, in_.context, in_.batch);
  }
  double IdleBytes(KvPolicy policy, size_t period) const {
    return static_cast<double>(in_.model.state_row_bytes) *
           static_cast<double>(MostIdleRows(policy, period, in_.context));
  }
  uint64_t Share() const { return in_.state_memory / in_.sequences; }
  // What another policy than the one in use would have.
  size_t PeriodOf(KvPolicy policy) const {
    if (policy == in_.policy || in_.period_given) return in_.period;
    return ChoosePeriod(policy, in_.context, in_.model.state_row_bytes, Share());
  }
  double AllowedIdleBytes() const { return static_cast<double>(Share() / kIdlePart); }
  std::string NameOf(KvPolicy policy) const { return std::string(KvPolicyName(policy)); }

  std::string GrowingText() const { return "growing to " + TokensText(in_.context); }
  std::string DecodeText() const { return "a decode step at depth " + std::to_string(in_.context / 2); }

  Choice GrowthPeriod() const {
    const auto alternative = [&](size_t period) {
      return Alternative{TokensText(period), Growing(in_.policy, period)};
    };
    Choice choice{.name = "growth increment", .chosen = alternative(in_.period), .of = GrowingText()};
    if (in_.policy != KvPolicy::kBmc) {
      choice.reason = in_.period_given ? "given by --kv-period" : "the default: only bmc copies less with a larger one";
      return choice;
    }
    const size_t by_rule = ChooseExactPeriod(in_.context, in_.model.state_row_bytes, Share());
    const size_t shorter = in_.period / 2 + in_.period % 2, longer = std::min(in_.context, 2 * in_.period);
    const size_t other = in_.period_given && by_rule != in_.period ? by_rule : in_.period > 1 ? shorter : longer;
    if (other != in_.period) {
      choice.runner_up = alternative(other);
      choice.option = "--kv-period " + std::to_string(other);
    }
    const std::string allowed = BytesText(AllowedIdleBytes());
    if (in_.period_given) {
      choice.reason = "given by --kv-period";
    } else if (in_.model.state_row_bytes == 0) {
      choice.reason = "every layer has a window and is bounded by it";
    } else if (in_.period == in_.context) {
      choice.reason = "unused capacity costs no time, and its " + BytesText(IdleBytes(in_.policy, in_.period)) +
                      " at most are within the " + allowed + " that a sequence may leave unused";
    } else {
      choice.reason = "unused capacity costs no time, and a larger increment may leave more than " + allowed +
                      " of a sequence unused";
    }
    return choice;
  }

  Choice Policy() const {
    Choice choice{
        .name = "kv policy", .chosen = {NameOf(in_.policy), Growing(in_.policy, in_.period)}, .of = GrowingText()};
    std::optional<KvPolicy> other;
    // Not paged: what more spans cost attention is not measured.
    for (const KvPolicy policy :
         {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc, KvPolicy::kGeometric, KvPolicy::kReserve}) {
      if (policy == in_.policy) continue;
      if (IdleBytes(policy, PeriodOf(policy)) > AllowedIdleBytes()) continue;
      const double cost = Growing(policy, PeriodOf(policy));
      if (choice.runner_up && cost >= choice.runner_up->cost) continue;
      choice.runner_up = Alternative{NameOf(policy), cost};
      choice.option = "--kv-policy " + NameOf(policy);
      other = policy;
    }
    if (in_.policy != KvPolicy::kBmc) {
      choice.reason = "given by --kv-policy";
    } else if (!choice.runner_up_is_cheaper()) {
      choice.reason = "the default; no policy that leaves as little unused grows faster";
    } else if (other == KvPolicy::kReserve) {  // docs/kv-cache.md, "When each pays"
      choice.reason = "the default; whole answers took 0.93 to 1.19 times as long with reserve";
    } else {
      choice.reason = "the default; " + choice.runner_up->value + " allocates more than a short answer needs";
    }
    return choice;
  }

  Choice PrefillChunk() const {
    constexpr size_t kSmallest = 32, kLargest = 512;
    Choice choice{.name = "prefill chunk",
                  .chosen = {TokensText(in_.prefill_chunk), costs_.Prefill(in_.context, in_.prefill_chunk)}};
    for (size_t rows = kSmallest; rows <= kLargest; rows *= 2) {
      if (rows == in_.prefill_chunk) continue;
      const double cost = costs_.Prefill(in_.context, rows);
      if (choice.runner_up && cost > choice.runner_up->cost) continue;
      choice.runner_up = Alternative{TokensText(rows), cost};
      choice.option = "--prefill-chunk " + std::to_string(rows);
    }
    choice.of = "a prompt of " + TokensText(in_.context);
    choice.reason = "given by --prefill-chunk, or the most whose step buffers take 32 MiB";
    return choice;
  }

  Choice Threads() const {
    const size_t depth = in_.context / 2;
    Choice choice{.name = "threads", .chosen = {std::to_string(in_.threads), costs_.DecodeStep(depth, in_.batch)}};
    choice.of = DecodeText();
    choice.reason = "given by --threads, or one for each core that may be used";
    if (in_.threads == 1) return choice;
    choice.runner_up =
        Alternative{"1", PredictedCosts(in_.profile, in_.model, ThreadUse::kOne).DecodeStep(depth, in_.batch)};
    choice.option = "--threads 1";
    return choice;
  }

  double SecondsOfToken(size_t guesses, double share) const {
    return 1 / DraftRate(in_.drafts.costs, in_.drafts.order, guesses, share);
  }
  // Of those from `least` to `most`, but for one.
  size_t BestWidth(double share, size_t least, size_t most, std::optional<size_t> but = {}) const {
    std::optional<size_t> best;
    for (size_t guesses = least; guesses <= most; ++guesses) {
      if (guesses == but) continue;
      if (!best || SecondsOfToken(guesses, share) < SecondsOfToken(*best, share)) best = guesses;
    }
    return best.value_or(least);
  }

  Choice Width() const {
    const DraftPlan& drafts = in_.drafts;
    const double share = drafts.costs.share;
    const auto alternative = [this, share](size_t guesses) {
      return Alternative{std::to_string(guesses), SecondsOfToken(guesses, share)};
    };
    // What a request begins with.
    const size_t chosen = DraftWidth(drafts.least, drafts.most, drafts.order, drafts.costs).Next();
    Choice choice{.name = "draft tokens", .chosen = alternative(chosen)};
    char of[64];
    std::snprintf(of, sizeof of, "a token at acceptance rate %.1f", share);
    choice.of = of;
    if (drafts.least == drafts.most) {
      choice.reason = "given by --draft-min and --draft-max";
      return choice;
    }
    const size_t other = BestWidth(share, drafts.least, drafts.most, chosen);
    choice.runner_up = alternative(other);
    choice.option = "--draft-max " + std::to_string(other);
    choice.reason = chosen == drafts.least
                        ? "at first: one more is predicted to cost more than it brings; then by measured acceptance"
                        : "at first; then by the measured acceptance rate and times of each request";
    return choice;
  }

  static constexpr double kShares[] = {0.3, 0.5, 0.7, 0.8, 0.9};

  PredictedDrafts Drafts() const {
    constexpr size_t kMostGuesses = 16;
    const DraftPlan& drafts = in_.drafts;
    PredictedDrafts predicted{.is_planned = drafts.is_planned,
                              .guess_seconds = drafts.costs.guess_seconds,
                              .all_at_once = drafts.order == GuessOrder::kAtOnce,
                              .reading_seconds = drafts.reading.seconds,
                              .least_answer = drafts.reading.least_answer};
    if (!drafts.costs.any()) return predicted;
    for (size_t guesses = 0; guesses <= kMostGuesses; ++guesses) {
      predicted.steps.push_back({.guesses = guesses, .seconds = drafts.costs.step_seconds[guesses]});
      if (guesses != 0) predicted.steps.back().break_even = BreakEvenShare(drafts.costs, drafts.order, guesses);
    }
    for (const double share : kShares) {
      const size_t best =
          drafts.is_planned ? BestWidth(share, drafts.least, drafts.most) : BestWidth(share, 0, kMostGuesses);
      predicted.widths.push_back({.share = share, .guesses = best, .seconds = SecondsOfToken(best, share)});
    }
    return predicted;
  }

  const PlanInput& in_;
  PredictedCosts costs_;
};

}  // namespace

Plan ChoosePlan(const PlanInput& input) { return Planner(input).Make(); }

}  // namespace tidemill
