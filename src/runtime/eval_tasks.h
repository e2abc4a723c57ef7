// The tasks of `tidemill eval` as texts: a context of about as many tokens as was asked for, questions behind it, and their answers.
//
// All follow from seed, task and index; a tokenizer only says how many tokens a text has.
#ifndef TIDEMILL_RUNTIME_EVAL_TASKS_H_
#define TIDEMILL_RUNTIME_EVAL_TASKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tidemill/eval.h"
#include "tidemill/result.h"

namespace tidemill {

// Tokens of a text.
using TokenCounter = std::function<Result<size_t>(std::string_view text)>;

struct EvalItemSpec {
  EvalTask task = EvalTask::kRepetition;
  uint64_t seed = 0;
  size_t index = 0;            // of the context
  size_t context_tokens = 0;   // at most so many; of those that fit the last one or few may be missing
  size_t num_questions = 1;    // at most; passkey, notes and bpc have one
  size_t answer_tokens = 64;   // of repetition and bpc: where the answer ends, to the next word
  std::string_view text = {};  // of repetition and bpc; empty: repetition has prose
};

struct EvalQuestion {
  std::string text;  // stands right behind the context
  // Stands right behind the question; kMinAnswerTokens or more with any tokenizer of less than a word for each number.
  std::string answer;
};

struct EvalItem {
  std::string context;
  std::vector<EvalQuestion> questions;  // at least one
};

// kInvalidArgument: the context has no room for what the task needs, or the text is too short. Errors of `count`.
// Cost: counts each sentence once, and the whole context a few times.
Result<EvalItem> MakeEvalItem(const EvalItemSpec& spec, const TokenCounter& count);

inline constexpr size_t kMinAnswerTokens = 8;

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_EVAL_TASKS_H_
