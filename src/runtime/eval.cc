#include "tidemill/eval.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/out_of_memory.h"
#include "runtime/engine_impl.h"
#include "runtime/eval_answer.h"
#include "runtime/eval_metrics.h"
#include "runtime/eval_states.h"
#include "runtime/eval_tasks.h"

namespace tidemill {
namespace {

class EvalRunner {
 public:
  EvalRunner(Engine::Impl& impl, const EvalOptions& options, const EvalCallbacks& callbacks,
             const std::atomic<bool>* interrupt)
      : impl_(impl),
        options_(options),
        callbacks_(callbacks),
        interrupt_(interrupt),
        tokenizer_(impl.model->impl().text.tokenizer),
        states_(impl, options, interrupt),
        vocab_(impl.language_model().head_or_tied().rows()),
        rows_(options.policies.size() * vocab_) {}

  Result<void> Run() {
    size_t done = 0;
    const size_t all = options_.tasks.size() * options_.context_tokens.size() * options_.contexts;
    if (callbacks_.progress) callbacks_.progress(0, all);
    for (const EvalTask task : options_.tasks) {
      for (const size_t tokens : options_.context_tokens) {
        for (size_t index = 0; index < options_.contexts; ++index) {
          TIDEMILL_TRY_VOID(RunContext({.task = task, .context_tokens = tokens, .context = index}));
          if (callbacks_.progress) callbacks_.progress(++done, all);
        }
      }
    }
    return {};
  }

 private:
  Result<size_t> Count(std::string_view text) const {
    TIDEMILL_TRY(ids, tokenizer_.Encode(text, {.add_special = false, .parse_special = false}));
    return ids.size();
  }

  // One step of one token for each of the runs, whose logits go to their rows.
  Result<void> Step(std::span<EvalAnswer*> runs, std::span<const int32_t> tokens, size_t sparse_from) {
    steps_.clear();
    for (size_t i = 0; i < runs.size(); ++i) {
      TIDEMILL_TRY_VOID(runs[i]->state->Reserve(1).WithContext("evaluate"));
      const bool is_dense = runs[i]->policy->kind == AttentionKind::kDense;
      steps_.push_back({.state = runs[i]->state.get(),
                        .tokens = tokens.subspan(i, 1),
                        .rows = Wanted::kLast,
                        .sparse_from = is_dense ? SIZE_MAX : sparse_from});
    }
    const auto sink = [&](size_t sequence, size_t, std::span<float> logits) {
      std::copy(logits.begin(), logits.end(), RowOf(*runs[sequence]).begin());
    };
    if (!impl_.executor->Run(steps_, sink, interrupt_)) return EvalCancelled();
    for (size_t i = 0; i < runs.size() && is_feeding_ && callbacks_.layer_row; ++i)
      TellRows(*runs[i], callbacks_.layer_row);
    for (size_t i = 0; i < runs.size(); ++i) {
      keys_.assign(1, static_cast<RowKey>(tokens[i]));
      runs[i]->state->Commit(keys_);
    }
    return {};
  }

  std::span<float> RowOf(const EvalAnswer& run) {
    return std::span(rows_).subspan(static_cast<size_t>(&run - runs_.data()) * vocab_, vocab_);
  }
  int32_t Likeliest(std::span<const float> row) const {
    return static_cast<int32_t>(ArgMax(row.first(std::min(vocab_, tokenizer_.vocab_size()))));
  }

  Result<void> RunContext(EvalKey key) {
    const auto count = [this](std::string_view text) { return Count(text); };
    const EvalItemSpec spec = {.task = key.task,
                               .seed = options_.seed,
                               .index = key.context,
                               .context_tokens = key.context_tokens,
                               .num_questions = options_.questions,
                               .answer_tokens = options_.answer_tokens,
                               .text = options_.text};
    TIDEMILL_TRY(item, MakeEvalItem(spec, count));
    TIDEMILL_TRY(ids, tokenizer_.Encode(item.context, {.add_special = false, .parse_special = false}));
    if (tokenizer_.adds_bos() && tokenizer_.bos_id()) ids.insert(ids.begin(), *tokenizer_.bos_id());
    states_.BeginContext();
    for (key.question = 0; key.question < item.questions.size(); ++key.question) {
      if (!FindWanted(key)) continue;
      TIDEMILL_TRY(question, EncodeQuestion(tokenizer_, item.questions[key.question], options_.answer_tokens));
      const size_t positions = ids.size() + question.question.size() + question.answer.size();
      if (positions > impl_.options.context) {
        return Error(ErrorCode::kContextFull, "evaluate: a context of " + std::to_string(ids.size()) +
                                                  " tokens, its question and answer have " + std::to_string(positions) +
                                                  ": the engine holds " + std::to_string(impl_.options.context) +
                                                  "; choose a smaller --context-tokens");
      }
      for (const EvalAnswer& run : runs_) TIDEMILL_TRY_VOID(states_.ReadContext(*run.policy, ids, positions));
      TIDEMILL_TRY_VOID(RunQuestion(key.task, ids.size(), question));
    }
    return {};
  }

  // Whose record of the question is not there yet; the first run is dense's, which the others are compared with. False: none.
  bool FindWanted(EvalKey key) {
    bool any = false;
    runs_.clear();
    for (const EvalPolicy& policy : options_.policies) {
      key.policy = policy.name();
      const bool is_wanted = !callbacks_.is_done || !callbacks_.is_done(key);
      any = any || is_wanted;
      if (is_wanted || runs_.empty()) {
        runs_.emplace_back();
        runs_.back().key = key;
        runs_.back().policy = &policy;
        runs_.back().is_wanted = is_wanted;
      }
    }
    return any;
  }

  // Each answer's state behind the question, or before it where the question is sparse.
  Result<void> ForkRuns(std::span<EvalAnswer*> runs, size_t positions) {
    for (EvalAnswer* run : runs) {
      TIDEMILL_TRY(made, states_.Fork(*run->policy, positions));
      run->state = std::move(made);
    }
    return {};
  }

  Result<void> RunQuestion(EvalTask task, size_t context_tokens, const EncodedQuestion& ids) {
    const size_t prompt = context_tokens + ids.question.size(), positions = prompt + ids.answer.size();
    std::vector<float> first_row(vocab_);
    states_.BeginQuestion();
    for (const EvalAnswer& run : runs_)
      TIDEMILL_TRY_VOID(states_.ReadQuestion(*run.policy, ids.question, positions, first_row));
    std::vector<EvalAnswer*> all;
    for (EvalAnswer& run : runs_) all.push_back(&run);
    TIDEMILL_TRY_VOID(ForkRuns(all, positions));
    is_feeding_ = true;
    TIDEMILL_TRY_VOID(ReachAnswer(all, ids, first_row));
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < ids.answer.size(); ++i) {
      TIDEMILL_TRY_VOID(ScoreRows(ids.answer[i], options_.sparse_question || i > 0));
      if (i + 1 == ids.answer.size()) break;
      tokens.assign(all.size(), ids.answer[i]);
      TIDEMILL_TRY_VOID(Step(all, tokens, SparseFrom(prompt, ids)));
    }
    is_feeding_ = false;
    for (EvalAnswer& run : runs_) run.attention = CountedAttention(*run.state);
    if (options_.generate && HasWords(task)) TIDEMILL_TRY_VOID(Generate(ids, positions, first_row));
    for (const EvalAnswer& run : runs_) {
      if (!run.is_wanted) continue;
      TIDEMILL_TRY(record, EvalRecordOf(run, ids, options_, tokenizer_));
      const AttentionPolicy attention = states_.AttentionAt(*run.policy, positions);
      record.r = attention.r.value_or(0);
      record.k = attention.k.value_or(0);
      record.bytes = states_.ShareOfDense(attention, positions);
      record.prompt_tokens = prompt;
      TIDEMILL_TRY_VOID(callbacks_.sink(record));
    }
    return {};
  }

  size_t SparseFrom(size_t prompt, const EncodedQuestion& ids) const {
    return options_.sparse_question ? prompt - ids.question.size() : prompt;
  }

  // Until the rows of all runs predict the answer's first token.
  Result<void> ReachAnswer(std::span<EvalAnswer*> runs, const EncodedQuestion& ids, std::span<const float> first_row) {
    if (!options_.sparse_question) {
      for (const EvalAnswer* run : runs) std::copy(first_row.begin(), first_row.end(), RowOf(*run).begin());
      return {};
    }
    const size_t from = runs.front()->state->length();
    for (const int32_t id : ids.question) TIDEMILL_TRY_VOID(Step(runs, std::vector<int32_t>(runs.size(), id), from));
    return {};
  }

  Result<void> ScoreRows(int32_t target, bool counts) {
    const auto dense = RowOf(runs_.front());
    const int32_t dense_choice = Likeliest(dense);
    for (EvalAnswer& run : runs_) {
      const auto row = RowOf(run);
      const double nll = NegativeLogLikelihood(row, target);
      const int32_t choice = Likeliest(row);
      if (!std::isfinite(nll)) {
        return Error(ErrorCode::kNumericalError, "evaluate: " + run.policy->name() +
                                                     ": a logit is not a finite number; the weights may be damaged");
      }
      run.still_matches = run.still_matches && choice == target;
      if (run.still_matches) ++run.matched;
      if (!counts) continue;
      run.nll += nll;
      run.kl += KlDivergence(dense, row);
      if (choice == dense_choice) ++run.agreed;
    }
    return {};
  }

  // Answers greedily with the policies that left the reference, for as many tokens as that has.
  Result<void> Generate(const EncodedQuestion& ids, size_t positions, std::span<const float> first_row) {
    std::vector<EvalAnswer*> going;
    for (EvalAnswer& run : runs_) {
      if (run.is_wanted && !run.still_matches) going.push_back(&run);
    }
    if (going.empty()) return {};
    const size_t from = SparseFrom(positions - ids.answer.size(), ids);
    TIDEMILL_TRY_VOID(ForkRuns(going, positions));
    TIDEMILL_TRY_VOID(ReachAnswer(going, ids, first_row));
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < ids.answer.size(); ++i) {
      tokens.clear();
      std::erase_if(going, [&](EvalAnswer* run) {
        const int32_t id = Likeliest(RowOf(*run));
        if (tokenizer_.IsEndOfGeneration(id)) return true;
        run->generated.push_back(id);
        tokens.push_back(id);
        return false;
      });
      if (going.empty() || i + 1 == ids.answer.size()) break;
      TIDEMILL_TRY_VOID(Step(going, tokens, from));
    }
    return {};
  }

  Engine::Impl& impl_;
  const EvalOptions& options_;
  const EvalCallbacks& callbacks_;
  const std::atomic<bool>* interrupt_;
  const Tokenizer& tokenizer_;
  EvalStates states_;
  const size_t vocab_;            // rows of the head
  std::vector<float> rows_;       // [policies, vocab]
  std::vector<EvalAnswer> runs_;  // of the question at hand
  bool is_feeding_ = false;       // a reference answer, or its question
  std::vector<StepSequence> steps_;
  std::vector<RowKey> keys_;
};

Error OutOfRange(std::string_view what, size_t found, size_t low, size_t high) {
  return Error(ErrorCode::kInvalidArgument, "evaluate: " + std::string(what) + ": expected " + std::to_string(low) +
                                                " to " + std::to_string(high) + ", found " + std::to_string(found));
}

Result<void> CheckOptions(const EvalOptions& options) {
  constexpr size_t kMaxContexts = 100000, kMaxAnswerTokens = 4096;
  if (options.tasks.empty()) return OutOfRange("tasks", 0, 1, kEvalTasks.size());
  if (options.contexts == 0 || options.contexts > kMaxContexts)
    return OutOfRange("contexts", options.contexts, 1, kMaxContexts);
  if (options.questions == 0 || options.questions > kMaxContexts)
    return OutOfRange("questions", options.questions, 1, kMaxContexts);
  if (options.answer_tokens < kMinAnswerTokens || options.answer_tokens > kMaxAnswerTokens)
    return OutOfRange("answer_tokens", options.answer_tokens, kMinAnswerTokens, kMaxAnswerTokens);
  if (options.policies.empty() || options.policies.size() > kMaxEvalPolicies)
    return OutOfRange("policies", options.policies.size(), 1, kMaxEvalPolicies);
  if (options.policies.front().kind != AttentionKind::kDense)
    return Error(ErrorCode::kInvalidArgument,
                 "evaluate: the policies: expected dense as the first, found " + options.policies.front().name());
  return {};
}

}  // namespace

Result<void> Evaluate(Engine& engine, const Model& model, const EvalOptions& options, const EvalCallbacks& callbacks,
                      const std::atomic<bool>* interrupt) {
  TIDEMILL_TRY_VOID(CheckOptions(options));
  if (!engine.idle())
    return Error(ErrorCode::kFailedPrecondition, "evaluate: requests are in flight; finish or cancel them first");
  if (engine.impl().language_model().segments.present()) {
    return Error(ErrorCode::kUnsupported,
                 "evaluate: expected a model whose rows see its whole text, found one that reads segments; it has no "
                 "other attention");
  }
  if (model.text().tokenizer.vocab_size() == 0)
    return Error(ErrorCode::kFailedPrecondition,
                 "evaluate: the model was loaded without its tokenizer; load it with LoadOptions::text");
  try {
    return EvalRunner(engine.impl(), options, callbacks, interrupt).Run();
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("evaluate");
  }
}

}  // namespace tidemill
