// One policy's answer to one question of an evaluation, and its record.
#ifndef TIDEMILL_RUNTIME_EVAL_ANSWER_H_
#define TIDEMILL_RUNTIME_EVAL_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/eval_tasks.h"
#include "state/sequence_state.h"
#include "state/sparse_kv_layer.h"
#include "tidemill/eval.h"
#include "tidemill/result.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

// Whether an answer that is not exact can still be a good one.
bool HasWords(EvalTask task);

// A question as ids behind those of its context.
struct EncodedQuestion {
  std::vector<int32_t> question, answer;  // neither is empty
};

// The question's ids are those that it has with the answer behind it, up to the first one that differs without. The answer has at most so many.
// kUnsupported: the tokenizer joins the two.
Result<EncodedQuestion> EncodeQuestion(const Tokenizer& tokenizer, const EvalQuestion& question, size_t answer_tokens);

struct EvalAnswer {
  EvalKey key;
  const EvalPolicy* policy = nullptr;
  std::unique_ptr<SequenceState> state;
  bool is_wanted = false;  // its record is not there yet
  double nll = 0, kl = 0;  // sums
  size_t agreed = 0, matched = 0;
  EvalAttention attention;
  std::vector<SparseCounts> told;  // of each layer, what TellRows has told
  bool still_matches = true;
  std::vector<int32_t> generated;
};

// What the answer's last step added to the counts of each layer: one row.
void TellRows(EvalAnswer& answer, const std::function<void(const EvalLayerRow&)>& tell);

// Of the steps that a state has made.
EvalAttention CountedAttention(SequenceState& state);

// All but what follows from the numbers of positions: r, k, bytes and prompt_tokens. Errors of the tokenizer.
Result<EvalRecord> EvalRecordOf(const EvalAnswer& answer, const EncodedQuestion& ids, const EvalOptions& options,
                                const Tokenizer& tokenizer);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_EVAL_ANSWER_H_
