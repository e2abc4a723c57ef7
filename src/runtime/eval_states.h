// The states of an evaluation. A context, and each question behind it, is read once for all policies whose states can go on from there.
//
//   BeginContext -> ReadContext for each policy -> (BeginQuestion -> ReadQuestion for each policy -> Fork for each answer)*
#ifndef TIDEMILL_RUNTIME_EVAL_STATES_H_
#define TIDEMILL_RUNTIME_EVAL_STATES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/engine_impl.h"
#include "state/sequence_state.h"
#include "tensor/dtype.h"
#include "tidemill/eval.h"
#include "tidemill/result.h"

namespace tidemill {

inline Error EvalCancelled() { return Error(ErrorCode::kCancelled, "evaluate: interrupted by the caller"); }

class EvalStates {
 public:
  // All outlive it; `interrupt` may be null.
  EvalStates(Engine::Impl& impl, const EvalOptions& options, const std::atomic<bool>* interrupt);

  // What attention is with the policy where rows see about `positions`.
  AttentionPolicy AttentionAt(const EvalPolicy& policy, size_t positions) const;
  // What that reads there, as a share of dense.
  double ShareOfDense(const AttentionPolicy& attention, size_t positions) const;

  // `positions`: those of the question and its answer, too. Each reads nothing where another policy's state serves.
  void BeginContext() { prefills_ = {}; }
  Result<void> ReadContext(const EvalPolicy& policy, std::span<const int32_t> ids, size_t positions);
  void BeginQuestion();
  // `row`: [vocab] logits behind the question; the same bits in all states, since prompts are dense. A question that is sparse is left to the answer.
  Result<void> ReadQuestion(const EvalPolicy& policy, std::span<const int32_t> ids, size_t positions,
                            std::span<float> row);
  // One that goes on from there.
  Result<std::unique_ptr<SequenceState>> Fork(const EvalPolicy& policy, size_t positions);

 private:
  // What policies begin an answer from.
  struct Prefill {
    std::unique_ptr<SequenceState> context;  // made for the first question that is not done
    std::unique_ptr<SequenceState> behind;   // the question
  };

  // Sums of the weights of dense rows, too: only a state of the same kind makes them, and so it shares no prefill with the others.
  static bool KeepsWeights(const EvalPolicy& policy) { return policy.kind == AttentionKind::kH2o; }
  Prefill& PrefillOf(const EvalPolicy& policy) { return prefills_[KeepsWeights(policy) ? 1 : 0]; }
  // An empty state for `positions`. Dense rows may stand in layers of any form that keeps no weights.
  Result<std::unique_ptr<SequenceState>> NewState(const EvalPolicy& policy, size_t positions);
  // Runs and commits `tokens` densely; row: logits of the last one, or empty.
  Result<void> FeedPrompt(SequenceState& state, std::span<const int32_t> tokens, std::span<float> row);

  Engine::Impl& impl_;
  const EvalOptions& options_;
  const std::atomic<bool>* interrupt_;
  const DType kv_dtype_;
  const EvalPolicy* shared_form_ = nullptr;  // of states without weights; null: they are plain
  std::array<Prefill, 2> prefills_;          // of the context at hand: without weights, and with them
  std::vector<RowKey> keys_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_EVAL_STATES_H_
