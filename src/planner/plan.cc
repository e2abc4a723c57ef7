#include "planner/plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "planner/growth_choice.h"
#include "tensor/dtype.h"

namespace tidemill {
namespace {

std::string RowsText(size_t rows) { return std::to_string(rows) + (rows == 1 ? " row" : " rows"); }

// A plan in the making.
class Planner {
 public:
  explicit Planner(const PlanInput& input)
      : in_(input), costs_(in_.profile, in_.model), padded_(ChoosePaddedPeriod(in_.context, CostsOfPadding())) {}

  Plan Make() const {
    Plan plan;
    plan.context = in_.context;
    plan.batch = in_.batch;
    plan.state_row_bytes = in_.model.state_row_bytes;
    plan.state_memory_bytes = in_.state_memory;
    plan.padded = padded_;
    plan.choices = {GrowthPeriod(), Policy(), BackEnd(), PrefillChunk(), Threads()};
    for (const size_t depth : {size_t{0}, in_.context / 2, in_.context - 1}) {
      if (!plan.decode.empty() && depth <= plan.decode.back().depth) continue;
      plan.decode.push_back({depth, costs_.DecodeStep(depth, in_.batch)});
    }
    plan.prefill_seconds = costs_.Prefill(in_.context, in_.prefill_chunk);
    return plan;
  }

 private:
  PaddedCosts CostsOfPadding() const {
    PaddedCosts costs{.attend_seconds = costs_.AttendOneRow(in_.batch), .grow_seconds = costs_.GrowOneRow(in_.batch)};
    for (const AttentionLayers& group : in_.model.attention) {
      const AttentionShape& shape = group.shape;
      if (shape.window != 0) continue;
      costs.sharing = static_cast<double>(shape.heads) / static_cast<double>(shape.kv_heads);
      costs.shrinking =
          2 * static_cast<double>(shape.head_dim) / static_cast<double>(RowBytes(shape.kv_dtype, shape.head_dim));
      break;
    }
    return costs;
  }

  double Growing(KvPolicy policy, size_t period) const {
    return costs_.Growing(policy, period, in_.context, in_.batch);
  }
  double IdleBytes(KvPolicy policy, size_t period) const {
    return static_cast<double>(in_.model.state_row_bytes) *
           static_cast<double>(MostIdleRows(policy, period, in_.context));
  }
  uint64_t Share() const { return in_.state_memory / in_.sequences; }
  double AllowedIdleBytes() const { return static_cast<double>(Share() / kIdlePart); }
  std::string NameOf(KvPolicy policy) const { return std::string(KvPolicyName(policy)); }

  Choice GrowthPeriod() const {
    const auto alternative = [&](size_t period) { return Alternative{RowsText(period), Growing(in_.policy, period)}; };
    Choice choice{.name = "growth period", .chosen = alternative(in_.period), .of = "growing to the whole context"};
    if (in_.policy != KvPolicy::kBmc) {
      choice.reason = in_.period_given ? "given by --kv-period" : "the default: only bmc copies less with a longer one";
      return choice;
    }
    const size_t by_rule =
        in_.state_memory == 0 ? in_.period : ChooseExactPeriod(in_.context, in_.model.state_row_bytes, Share());
    const size_t shorter = in_.period / 2 + in_.period % 2, longer = std::min(in_.context, 2 * in_.period);
    const size_t other = in_.period_given && by_rule != in_.period ? by_rule : in_.period > 1 ? shorter : longer;
    if (other != in_.period) choice.runner_up = alternative(other);
    const std::string exact = "no spare row is ever read, so that a longer period costs no time";
    if (in_.period_given) {
      choice.reason = "given by --kv-period";
    } else if (in_.model.state_row_bytes == 0) {
      choice.reason = "every layer has a window and is bounded by it";
    } else if (in_.state_memory == 0) {
      choice.reason = "free memory is not known, so that the period is the default";
    } else if (in_.period == in_.context) {
      choice.reason = exact + ", and its spare rows take at most " + BytesText(IdleBytes(in_.policy, in_.period)) +
                      " of the " + BytesText(AllowedIdleBytes()) + " allowed for those of a sequence";
    } else {
      choice.reason = exact + ", and the spare rows of a longer one would take more than the " +
                      BytesText(AllowedIdleBytes()) + " allowed for those of a sequence";
    }
    return choice;
  }

  Choice Policy() const {
    Choice choice{.name = "kv policy",
                  .chosen = {NameOf(in_.policy), Growing(in_.policy, in_.period)},
                  .of = "growing to the whole context"};
    // Not paged: what more spans cost attention is not measured.
    for (const KvPolicy policy :
         {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc, KvPolicy::kGeometric, KvPolicy::kReserve}) {
      if (policy == in_.policy) continue;
      if (in_.state_memory != 0 && IdleBytes(policy, in_.period) > AllowedIdleBytes()) continue;
      const double cost = Growing(policy, in_.period);
      if (!choice.runner_up || cost < choice.runner_up->cost) choice.runner_up = Alternative{NameOf(policy), cost};
    }
    const bool loses = choice.runner_up && choice.runner_up->cost < choice.chosen.cost;
    choice.reason = loses ? "used unless --kv-policy names another: " + choice.runner_up->value +
                                " is predicted to save " + SecondsText(choice.chosen.cost - choice.runner_up->cost)
                          : "none whose spare rows are within what is allowed is predicted to take less time";
    return choice;
  }

  Choice BackEnd() const {
    const double step = costs_.DecodeStep(in_.context / 2, in_.batch), n = static_cast<double>(in_.context);
    const double spare = static_cast<double>(padded_.period - 1) / 2 * costs_.AttendOneRow(in_.batch);
    Choice choice{.name = "attention back end", .chosen = {"exact", step + Growing(in_.policy, in_.period) / n}};
    choice.runner_up = Alternative{"padded", step + spare + Growing(KvPolicy::kBmc, padded_.period) / n};
    choice.of = "a decode step at half the context, its share of the growing included";
    choice.reason = "it attends to the rows that are there; a padded one would read " +
                    std::to_string((padded_.period - 1) / 2) + " spare rows a step on average";
    return choice;
  }

  Choice PrefillChunk() const {
    constexpr size_t kSmallest = 32, kLargest = 512;
    Choice choice{.name = "prefill chunk",
                  .chosen = {RowsText(in_.prefill_chunk), costs_.Prefill(in_.context, in_.prefill_chunk)}};
    for (size_t rows = kSmallest; rows <= kLargest; rows *= 2) {
      if (rows == in_.prefill_chunk) continue;
      const double cost = costs_.Prefill(in_.context, rows);
      if (!choice.runner_up || cost <= choice.runner_up->cost) choice.runner_up = Alternative{RowsText(rows), cost};
    }
    choice.of = "a prompt as long as the context";
    choice.reason = "weights are read once a chunk; more rows would make a step's buffers larger than they may be";
    return choice;
  }

  Choice Threads() const {
    const size_t depth = in_.context / 2;
    Choice choice{
        .name = "threads",
        .chosen = {std::to_string(in_.threads),
                   PredictedCosts(in_.profile, in_.model, in_.threads == 1 ? ThreadUse::kOne : ThreadUse::kAll)
                       .DecodeStep(depth, in_.batch)}};
    choice.of = "a decode step at half the context";
    if (in_.threads == 1) {
      choice.reason = "one thread was asked for, or there is one core";
      return choice;
    }
    choice.runner_up =
        Alternative{"1", PredictedCosts(in_.profile, in_.model, ThreadUse::kOne).DecodeStep(depth, in_.batch)};
    choice.reason = "one for each core that may be used, or as many as were asked for";
    return choice;
  }

  const PlanInput& in_;
  PredictedCosts costs_;
  PaddedGrowth padded_;
};

}  // namespace

Plan ChoosePlan(const PlanInput& input) { return Planner(input).Make(); }

}  // namespace tidemill
