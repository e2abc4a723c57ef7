#include "planner/plan.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "decoding/num_draft_tokens.h"
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
    plan.context = in_.segments ? in_.segments->prompt_tokens : in_.context;
    plan.batch = in_.batch;
    plan.state_row_bytes = in_.model.state_row_bytes;
    plan.state_memory_bytes = in_.state_memory;
    plan.memory = in_.memory;
    plan.memory.unused_capacity =
        static_cast<uint64_t>(IdleBytes(in_.policy, in_.increment) * static_cast<double>(in_.batch));
    if (in_.segments) plan.segments = Segments(*in_.segments);
    plan.choices = {GrowthIncrement(), Policy(), in_.segments ? SegmentOrder(*plan.segments) : PrefillChunk(),
                    Threads()};
    if (FirstSparse(in_.model.attention) || FirstSparse(in_.other_attention)) plan.choices.push_back(Attention());
    if (in_.model.linear.layers != 0) plan.choices.push_back(LinearForm());
    if (in_.drafts.is_planned) plan.choices.push_back(NumDraftTokensChoice());
    plan.drafts = Drafts();
    for (const size_t depth : {size_t{0}, in_.context / 2, in_.context - 1}) {
      if (!plan.decode.empty() && depth <= plan.decode.back().depth) continue;
      plan.decode.push_back({depth, costs_.DecodeStep(depth, in_.batch)});
    }
    plan.prefill_seconds = plan.segments ? plan.choices[2].chosen.cost : costs_.Prefill(in_.context, in_.prefill_chunk);
    return plan;
  }

 private:
  double Growing(KvPolicy policy, size_t increment) const {
    return costs_.Growing(policy, increment, in_.context, in_.batch);
  }
  double IdleBytes(KvPolicy policy, size_t increment) const {
    return static_cast<double>(in_.model.state_row_bytes) *
           static_cast<double>(MaxIdleRows(policy, increment, in_.context));
  }
  uint64_t Share() const { return in_.state_memory / in_.sequences; }
  // What another policy than the one in use would have.
  size_t IncrementOf(KvPolicy policy) const {
    if (policy == in_.policy || in_.increment_given) return in_.increment;
    return ChooseIncrement(policy, in_.context, in_.model.state_row_bytes, Share());
  }
  double AllowedIdleBytes() const { return static_cast<double>(Share() / kIdlePart); }
  std::string NameOf(KvPolicy policy) const { return std::string(KvPolicyName(policy)); }

  std::string GrowingText() const { return "growing to " + TokensText(in_.context); }
  std::string DecodeText() const { return "a decode step at depth " + std::to_string(in_.context / 2); }

  Choice GrowthIncrement() const {
    const auto alternative = [&](size_t increment) {
      return Alternative{TokensText(increment), Growing(in_.policy, increment)};
    };
    Choice choice{.name = "growth increment", .chosen = alternative(in_.increment), .of = GrowingText()};
    if (in_.policy != KvPolicy::kBmc) {
      choice.reason =
          in_.increment_given ? "given by --kv-increment" : "the default: only bmc copies less with a larger one";
      return choice;
    }
    const size_t by_rule = ChooseGrowthIncrement(in_.context, in_.model.state_row_bytes, Share());
    const size_t shorter = in_.increment / 2 + in_.increment % 2, longer = std::min(in_.context, 2 * in_.increment);
    const size_t other = in_.increment_given && by_rule != in_.increment ? by_rule
                         : in_.increment > 1                             ? shorter
                                                                         : longer;
    if (other != in_.increment) {
      choice.runner_up = alternative(other);
      choice.option = "--kv-increment " + std::to_string(other);
    }
    const std::string allowed = BytesText(AllowedIdleBytes());
    if (in_.increment_given) {
      choice.reason = "given by --kv-increment";
    } else if (in_.model.state_row_bytes == 0) {
      choice.reason = "every layer has a window and is bounded by it";
    } else if (in_.increment == in_.context) {
      choice.reason = "unused capacity costs no time, and its " + BytesText(IdleBytes(in_.policy, in_.increment)) +
                      " at most are within the " + allowed + " that a sequence may leave unused";
    } else {
      choice.reason = "unused capacity costs no time, and a larger increment may leave more than " + allowed +
                      " of a sequence unused";
    }
    return choice;
  }

  Choice Policy() const {
    Choice choice{
        .name = "kv policy", .chosen = {NameOf(in_.policy), Growing(in_.policy, in_.increment)}, .of = GrowingText()};
    std::optional<KvPolicy> other;
    // Not paged: what more spans cost attention is not measured.
    for (const KvPolicy policy :
         {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc, KvPolicy::kGeometric, KvPolicy::kReserve}) {
      if (policy == in_.policy) continue;
      if (IdleBytes(policy, IncrementOf(policy)) > AllowedIdleBytes()) continue;
      const double cost = Growing(policy, IncrementOf(policy));
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
      choice.reason = "the default; a layer's attention took 0.93 to 1.19 times as long with reserve";
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
    choice.reason = "the most whose step buffers take 32 MiB, unless --prefill-chunk says otherwise";
    return choice;
  }

  PredictedSegments Segments(const SegmentPlan& of) const {
    const double tail = costs_.Prefill(of.prompt_tokens - of.whole_segments * of.segment_tokens, in_.prefill_chunk);
    PredictedSegments predicted{
        .segment_tokens = of.segment_tokens,
        .memory_tokens = of.memory_tokens,
        .prompt_tokens = of.prompt_tokens,
        .whole_segments = of.whole_segments,
        .memory_bytes = of.memory_bytes,
        .tail_bytes = in_.model.state_row_bytes * (of.front_tokens + of.segment_tokens + of.memory_tokens),
        .wave_segments = of.waves.as_steps ? 0 : of.waves.pieces,
        .chosen = WaveFormName(of.waves.chosen.form),
        .reason = of.waves.reason,
        .note = std::string(kWaveOrdersText),
    };
    for (const WavePrediction& one : of.waves.predicted) {
      predicted.orders.push_back({.name = WaveFormName(one.form),
                                  .segment_seconds = one.seconds,
                                  .prompt_seconds = static_cast<double>(of.whole_segments) * one.seconds + tail,
                                  .buffer_bytes = one.bytes});
    }
    return predicted;
  }

  // No flag chooses another one.
  static Choice SegmentOrder(const PredictedSegments& segments) {
    Choice choice;
    choice.name = "segment order";
    choice.of = "a prompt of " + TokensText(segments.prompt_tokens);
    choice.reason = segments.reason;
    for (const PredictedSegments::Order& order : segments.orders) {
      const Alternative alternative{order.name, order.prompt_seconds};
      if (order.name == segments.chosen) {
        choice.chosen = alternative;
      } else if (!choice.runner_up || alternative.cost < choice.runner_up->cost) {
        choice.runner_up = alternative;
      }
    }
    return choice;
  }

  Choice Threads() const {
    const size_t depth = in_.context / 2;
    Choice choice{.name = "threads", .chosen = {std::to_string(in_.threads), costs_.DecodeStep(depth, in_.batch)}};
    choice.of = DecodeText();
    choice.reason = "one for each core that may be used, unless --threads says otherwise";
    if (in_.threads == 1) return choice;
    choice.runner_up =
        Alternative{"1", PredictedCosts(in_.profile, in_.model, ThreadUse::kOne).DecodeStep(depth, in_.batch)};
    choice.option = "--threads 1";
    return choice;
  }

  // Null: all are dense.
  static const AttentionLayers* FirstSparse(const std::vector<AttentionLayers>& layers) {
    for (const AttentionLayers& group : layers) {
      if (group.sparse.kind != SparseKind::kDense) return &group;
    }
    return nullptr;
  }
  static std::string NameOf(const std::vector<AttentionLayers>& layers) {
    const AttentionLayers* sparse = FirstSparse(layers);
    if (sparse == nullptr) return "dense";
    const SparseForm& form = sparse->sparse;
    const std::string positions = " k " + std::to_string(form.k);
    switch (form.kind) {
      case SparseKind::kSparq: return "sparq r " + std::to_string(form.r) + positions;
      case SparseKind::kTopk: return "topk" + positions;
      case SparseKind::kH2o: return "h2o" + positions;
      case SparseKind::kWindow: return "window" + positions;
      case SparseKind::kDense: break;
    }
    return "dense";
  }

  // What a request has is its caller's choice: all but dense give something up.
  Choice Attention() const {
    const size_t depth = in_.context / 2;
    std::vector<AttentionLayers> own = in_.model.attention, dense = own;
    for (AttentionLayers& group : dense) group.sparse = {};
    const bool is_sparse = FirstSparse(own) != nullptr, all_before = depth < in_.model.sparse_from.value_or(0);
    const auto alternative = [&](const std::vector<AttentionLayers>& named, const std::vector<AttentionLayers>& read) {
      return Alternative{NameOf(named), static_cast<double>(in_.batch) * costs_.Attention(read, depth, 1)};
    };
    Choice choice{.name = "attention", .chosen = alternative(own, all_before ? dense : own)};
    choice.runner_up = is_sparse ? alternative(dense, dense) : alternative(in_.other_attention, in_.other_attention);
    choice.option = is_sparse ? "--attention dense" : "--attention sparq";
    choice.of = "attention of " + DecodeText();
    const std::string_view decided = in_.attention_reason;
    choice.reason = !decided.empty() ? "chosen by " + std::string(decided)
                    : is_sparse      ? "given by --attention"
                                     : "the default: it is exact";
    if (is_sparse) choice.reason += "; it is approximate, --attention-audit says by how much";
    if (is_sparse && all_before)
      choice.reason += "; rows before position " + std::to_string(*in_.model.sparse_from) + " are dense";
    return choice;
  }

  static std::string NameOf(const DeltaClass& form) {
    if (form.start > form.period) return "kv " + std::to_string(form.start);
    return form.period == 1 ? "recurrent" : "buffered " + std::to_string(form.period);
  }

  // The form is the caller's, or follows from the model's shape; beside it stands the recurrent one, or for that the best buffered one.
  Choice LinearForm() const {
    const DeltaClass& form = in_.model.linear.shape.form;
    const auto cost = [&](size_t period) {
      return costs_.Linear({.start = period, .period = period, .dtype = form.dtype}, 1);
    };
    size_t other = 1;
    if (form.period == 1) {
      other = 2;
      for (size_t period = 3; period <= kMaxDeltaPeriod; ++period) other = cost(period) < cost(other) ? period : other;
    }
    Choice choice{.name = "linear form", .chosen = {NameOf(form), cost(form.period)}};
    choice.runner_up = Alternative{NameOf(DeltaClass{.start = other, .period = other}), cost(other)};
    choice.option = other == 1 ? "--linear-form recurrent" : "--linear-buffer " + std::to_string(other);
    choice.of = "the states of a decode step";
    char text[160];
    std::snprintf(text, sizeof text, "%s; a write costs %.2f of a read; without a state up to %.0f tokens cost less",
                  in_.linear_given ? "given" : "by the model's shape", costs_.WriteFactor(),
                  costs_.Linear({.start = 1, .period = 1, .dtype = form.dtype}, 1) / costs_.LinearStart(form.dtype, 1));
    choice.reason = text;
    return choice;
  }

  double SecondsOfToken(size_t draft_tokens, double rate) const {
    return 1 / DraftRate(in_.drafts.costs, in_.drafts.order, draft_tokens, rate);
  }
  // Of those from `min_draft_tokens` to `num_draft_tokens`, but for one.
  size_t BestNumDraftTokensAt(double rate, size_t min_draft_tokens, size_t num_draft_tokens,
                              std::optional<size_t> but = {}) const {
    std::optional<size_t> best;
    for (size_t draft_tokens = min_draft_tokens; draft_tokens <= num_draft_tokens; ++draft_tokens) {
      if (draft_tokens == but) continue;
      if (!best || SecondsOfToken(draft_tokens, rate) < SecondsOfToken(*best, rate)) best = draft_tokens;
    }
    return best.value_or(min_draft_tokens);
  }

  Choice NumDraftTokensChoice() const {
    const DraftPlan& drafts = in_.drafts;
    const double rate = drafts.costs.acceptance;
    const auto alternative = [this, rate](size_t draft_tokens) {
      return Alternative{std::to_string(draft_tokens), SecondsOfToken(draft_tokens, rate)};
    };
    // What a request begins with.
    const size_t chosen =
        NumDraftTokens(drafts.min_draft_tokens, drafts.num_draft_tokens, drafts.order, drafts.costs).Next();
    Choice choice{.name = "draft tokens", .chosen = alternative(chosen)};
    char of[64];
    std::snprintf(of, sizeof of, "a token at acceptance rate %.1f", rate);
    choice.of = of;
    if (drafts.min_draft_tokens == drafts.num_draft_tokens) {
      choice.reason = "given by --draft-min and --draft-max";
      return choice;
    }
    const size_t other = BestNumDraftTokensAt(rate, drafts.min_draft_tokens, drafts.num_draft_tokens, chosen);
    choice.runner_up = alternative(other);
    choice.option = "--draft-max " + std::to_string(other);
    choice.reason = chosen == drafts.min_draft_tokens
                        ? "at first: one more is predicted to cost more than it brings; then by measured acceptance"
                        : "at first; then by the measured acceptance rate and times of each request";
    return choice;
  }

  static constexpr double kAcceptanceRates[] = {0.3, 0.5, 0.7, 0.8, 0.9};

  PredictedDrafts Drafts() const {
    constexpr size_t kMaxDraftTokens = 16;
    const DraftPlan& drafts = in_.drafts;
    PredictedDrafts predicted{.is_planned = drafts.is_planned,
                              .draft_token_seconds = drafts.costs.draft_token_seconds,
                              .all_at_once = drafts.order == DraftOrder::kAtOnce,
                              .draft_prefill_seconds = drafts.prefill.seconds,
                              .min_answer_tokens = drafts.prefill.min_answer_tokens};
    if (!drafts.costs.any()) return predicted;
    for (size_t draft_tokens = 0; draft_tokens <= kMaxDraftTokens; ++draft_tokens) {
      predicted.steps.push_back({.num_draft_tokens = draft_tokens, .seconds = drafts.costs.step_seconds[draft_tokens]});
      if (draft_tokens != 0)
        predicted.steps.back().break_even = BreakEvenAcceptanceRate(drafts.costs, drafts.order, draft_tokens);
    }
    for (const double rate : kAcceptanceRates) {
      const size_t best = drafts.is_planned
                              ? BestNumDraftTokensAt(rate, drafts.min_draft_tokens, drafts.num_draft_tokens)
                              : BestNumDraftTokensAt(rate, 0, kMaxDraftTokens);
      predicted.best.push_back(
          {.acceptance_rate = rate, .num_draft_tokens = best, .seconds = SecondsOfToken(best, rate)});
    }
    return predicted;
  }

  const PlanInput& in_;
  PredictedCosts costs_;
};

}  // namespace

Plan ChoosePlan(const PlanInput& input) { return Planner(input).Make(); }

}  // namespace tidemill
