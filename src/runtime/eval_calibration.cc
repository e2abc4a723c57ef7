#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "runtime/eval_policies.h"
#include "runtime/floor_fit.h"
#include "tidemill/eval.h"

namespace tidemill {
namespace {

Error BadCalibration(const std::string& what) { return Error(ErrorCode::kInvalidArgument, "calibrate: " + what); }

// The one policy, with r and k; a share is that of the longest context.
Result<EvalPolicy> CalibratedPolicy(const EvalOptions& options, size_t head_dim) {
  const std::vector<EvalPolicy>& policies = options.policies;
  const bool is_default = policies.size() == 1 && policies[0].kind == AttentionKind::kDense;
  const bool is_one =
      policies.size() == 2 && policies[0].kind == AttentionKind::kDense && policies[1].kind == AttentionKind::kSparq;
  if (!is_default && !is_one) {
    std::string found;
    for (const EvalPolicy& policy : policies) {
      if (policy.kind != AttentionKind::kDense) found += (found.empty() ? "" : ", ") + policy.name();
    }
    return BadCalibration("the policies: expected one sparq policy, found " + (found.empty() ? "none" : found));
  }
  const EvalPolicy given =
      is_one ? policies[1]
             : EvalPolicy{
                   .kind = AttentionKind::kSparq, .r = DefaultSparseComponents(head_dim), .k = kDefaultSparseTokens};
  const size_t longest = *std::max_element(options.context_tokens.begin(), options.context_tokens.end());
  const AttentionPolicy at = EvalAttentionOf(given, head_dim, longest);
  return EvalPolicy{.kind = AttentionKind::kSparq, .r = at.r.value_or(0), .k = at.k.value_or(0)};
}

double MeanOver(double sum, size_t count) { return sum / static_cast<double>(std::max<size_t>(1, count)); }

}  // namespace

Result<EvalCalibration> CalibrateFloors(Engine& engine, const Model& model, const EvalOptions& options,
                                        double max_error,
                                        const std::function<void(size_t contexts, size_t all)>& progress,
                                        const std::atomic<bool>* interrupt) {
  const Engine::Impl& impl = engine.impl();
  const LanguageModel& language_model = impl.language_model();
  const size_t layers = language_model.layers.size();
  if (!(max_error >= 0 && max_error <= 1)) return BadCalibration("the largest error: expected 0 to 1");
  if (options.context_tokens.empty())
    return BadCalibration("tokens of a context: expected one number at least, found none");
  const size_t head_dim = std::max<size_t>(1, SparseHeadDim(language_model, DTypeOf(*impl.options.kv_type)));
  TIDEMILL_TRY(policy, CalibratedPolicy(options, head_dim));
  EvalOptions audited = options;
  audited.policies = {EvalPolicy(), policy};
  audited.generate = false;
  audited.audit = 1;
  audited.floors.clear();
  size_t passes = 0;
  EvalCallbacks callbacks = {.sink = [](const EvalRecord&) -> Result<void> { return {}; },
                             .progress =
                                 [&](size_t done, size_t all) {
                                   if (progress) progress(passes * all + done, 2 * all);
                                 }};

  std::vector<std::vector<AuditedRow>> rows(layers);
  callbacks.layer_row = [&](const EvalLayerRow& row) {
    rows[row.layer].push_back({.alpha = row.alpha_estimate, .error = row.error, .kept_mass = row.kept_mass});
  };
  TIDEMILL_TRY_VOID(Evaluate(engine, model, audited, callbacks, interrupt));
  ++passes;
  EvalCalibration made;
  AttentionFloors& floors = made.floors;
  floors.origin =
      FloorOrigin{.model = language_model.id, .r = policy.r, .k = policy.k, .local = DefaultSparseLocal(policy.k)};
  for (std::vector<AuditedRow>& own : rows) {
    made.rows.push_back(own.size());
    made.correlations.push_back(AlphaCorrelation(own));
    floors.alphas.push_back(own.empty() ? 0 : FitFloor(std::move(own), max_error));
  }
  if (std::all_of(made.rows.begin(), made.rows.end(), [](size_t count) { return count == 0; })) {
    return BadCalibration("expected contexts of more than " + std::to_string(policy.k) +
                          " positions, of which k is all; choose a larger --context-tokens or a smaller k");
  }

  std::vector<size_t> counts(layers);
  std::vector<double> shares(layers);
  made.errors.resize(layers);
  callbacks.layer_row = [&](const EvalLayerRow& row) {
    ++counts[row.layer];
    shares[row.layer] += row.dense_share;
    made.errors[row.layer] += row.error;
  };
  audited.floors = floors.alphas;
  ++audited.seed;
  TIDEMILL_TRY_VOID(Evaluate(engine, model, audited, callbacks, interrupt));
  for (size_t i = 0; i < layers; ++i) {
    made.errors[i] = MeanOver(made.errors[i], counts[i]);
    floors.dense_shares.push_back(static_cast<float>(std::round(MeanOver(shares[i], counts[i]) * 1000) / 1000));
  }
  return made;
}

}  // namespace tidemill
