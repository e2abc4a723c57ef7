#include "runtime/eval_states.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/eval_policies.h"

namespace tidemill {

EvalStates::EvalStates(Engine::Impl& impl, const EvalOptions& options, const std::atomic<bool>* interrupt)
    : impl_(impl), options_(options), interrupt_(interrupt), kv_dtype_(DTypeOf(*impl.options.kv_type)) {
  for (const EvalPolicy& policy : options.policies) {
    if (policy.kind == AttentionKind::kDense || KeepsWeights(policy)) continue;
    // Columns are made in states whose own form reads them.
    const bool has_columns = policy.kind == AttentionKind::kSparq;
    if (shared_form_ == nullptr || (has_columns && shared_form_->kind != AttentionKind::kSparq)) shared_form_ = &policy;
  }
}

AttentionPolicy EvalStates::AttentionAt(const EvalPolicy& policy, size_t positions) const {
  // A model without such a layer refuses any numbers.
  const size_t head_dim = std::max<size_t>(1, SparseHeadDim(impl_.language_model(), kv_dtype_));
  AttentionPolicy attention = EvalAttentionOf(policy, head_dim, positions);
  if (ReadsComponents(policy.kind)) attention.audit = options_.audit;
  if (policy.kind == AttentionKind::kSparq) attention.floors.alphas = options_.floors;
  return attention;
}

double EvalStates::ShareOfDense(const AttentionPolicy& attention, size_t positions) const {
  return EvalShareOfDense(attention, SparseHeadDim(impl_.language_model(), kv_dtype_), positions);
}

Result<std::unique_ptr<SequenceState>> EvalStates::NewState(const EvalPolicy& policy, size_t positions) {
  const EvalPolicy* own = policy.kind == AttentionKind::kDense ? shared_form_ : &policy;
  const AttentionPolicy attention = own == nullptr ? AttentionPolicy() : AttentionAt(*own, positions);
  auto resolved = ResolveAttentionPolicy(attention, impl_.language_model(), positions, kv_dtype_);
  if (!resolved.ok()) {
    return WithoutFlags(resolved.error()).WithContext("evaluate: " + (own == nullptr ? policy : *own).name());
  }
  const AttentionClass made = std::move(resolved).value();
  TIDEMILL_TRY_VOID(impl_.ReserveSparse(made, positions).WithContext("evaluate"));
  return impl_.language_model().MakeState({.kv_dtype = kv_dtype_,
                                           .growth = impl_.GrowthOf(positions),
                                           .max_length = impl_.options.context,
                                           .linear = impl_.own_class.linear,
                                           .sparse = made.layers,
                                           .isa = impl_.isa,
                                           .pages = impl_.pages.get(),
                                           .ledger = &impl_.memory->ledger()});
}

Result<void> EvalStates::FeedPrompt(SequenceState& state, std::span<const int32_t> tokens, std::span<float> row) {
  for (size_t first = 0; first < tokens.size(); first += impl_.options.prefill_chunk) {
    const auto part = tokens.subspan(first, std::min(impl_.options.prefill_chunk, tokens.size() - first));
    const bool is_last = first + part.size() == tokens.size() && !row.empty();
    TIDEMILL_TRY_VOID(state.Reserve(part.size()).WithContext("evaluate"));
    const StepSequence step{.state = &state, .tokens = part, .rows = is_last ? Wanted::kLast : Wanted::kNothing};
    const auto sink = [&](size_t, size_t, std::span<float> logits) {
      std::copy(logits.begin(), logits.end(), row.begin());
    };
    if (!impl_.executor->Run({&step, 1}, sink, interrupt_)) return EvalCancelled();
    keys_.assign(part.begin(), part.end());
    state.Commit(keys_);
  }
  return {};
}

Result<void> EvalStates::ReadContext(const EvalPolicy& policy, std::span<const int32_t> ids, size_t positions) {
  std::unique_ptr<SequenceState>& context = PrefillOf(policy).context;
  if (context != nullptr) return {};
  TIDEMILL_TRY(made, NewState(policy, positions));
  context = std::move(made);
  return FeedPrompt(*context, ids, {});
}

void EvalStates::BeginQuestion() {
  for (Prefill& prefill : prefills_) prefill.behind.reset();
}

Result<void> EvalStates::ReadQuestion(const EvalPolicy& policy, std::span<const int32_t> ids, size_t positions,
                                      std::span<float> row) {
  Prefill& prefill = PrefillOf(policy);
  if (prefill.behind != nullptr) return {};
  TIDEMILL_TRY(made, NewState(policy, positions));
  prefill.behind = std::move(made);
  TIDEMILL_TRY_VOID(prefill.context->ForkTo(*prefill.behind, prefill.context->length()).WithContext("evaluate"));
  if (options_.sparse_question) return {};
  return FeedPrompt(*prefill.behind, ids, row);
}

Result<std::unique_ptr<SequenceState>> EvalStates::Fork(const EvalPolicy& policy, size_t positions) {
  SequenceState& parent = *PrefillOf(policy).behind;
  TIDEMILL_TRY(made, NewState(policy, positions));
  TIDEMILL_TRY_VOID(parent.ForkTo(*made, parent.length()).WithContext("evaluate"));
  return made;
}

}  // namespace tidemill
