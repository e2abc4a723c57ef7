#include "tidemill/eval.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "base/out_of_memory.h"
#include "runtime/engine_impl.h"
#include "runtime/eval_metrics.h"
#include "runtime/eval_policies.h"
#include "runtime/eval_tasks.h"
#include "state/sparse_kv_layer.h"

namespace tidemill {
namespace {

// Whether an answer that is not exact can still be a good one.
bool HasWords(EvalTask task) {
  return task == EvalTask::kChoice || task == EvalTask::kNotes || task == EvalTask::kFunctions;
}

Error Cancelled() { return Error(ErrorCode::kCancelled, "evaluate: interrupted by the caller"); }

size_t CharactersIn(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// A question as ids behind those of its context.
struct EncodedQuestion {
  std::vector<int32_t> question, answer;  // neither is empty
};

// One policy's way through one answer.
struct PolicyRun {
  const EvalPolicy* policy = nullptr;
  std::unique_ptr<SequenceState> state;
  bool is_wanted = false;  // its record is not there yet
  double nll = 0, kl = 0;  // sums
  size_t agreed = 0, matched = 0;
  EvalAttention attention;
  std::vector<SparseCounts> told;  // of each layer, what EvalCallbacks::layer_row has had
  bool still_matches = true;
  std::vector<int32_t> generated;
};

// What policies begin an answer from.
struct Prefill {
  std::unique_ptr<SequenceState> context;  // made for the first question that is not done
  std::unique_ptr<SequenceState> behind;   // the question
};

class EvalRunner {
 public:
  EvalRunner(Engine::Impl& impl, const EvalOptions& options, const EvalCallbacks& callbacks,
             const std::atomic<bool>* interrupt)
      : impl_(impl),
        options_(options),
        callbacks_(callbacks),
        interrupt_(interrupt),
        tokenizer_(impl.model->impl().text.tokenizer),
        kv_dtype_(DTypeOf(*impl.options.kv_type)),
        vocab_(impl.language_model().head_or_tied().rows()),
        rows_(options.policies.size() * vocab_) {
    for (const EvalPolicy& policy : options.policies) {
      if (policy.kind == AttentionKind::kDense || KeepsWeights(policy)) continue;
      // Columns are made in states whose own form reads them.
      const bool has_columns = policy.kind == AttentionKind::kSparq;
      if (shared_form_ == nullptr || (has_columns && shared_form_->kind != AttentionKind::kSparq))
        shared_form_ = &policy;
    }
  }

  Result<void> Run() {
    size_t done = 0;
    const size_t all = options_.tasks.size() * options_.context_tokens.size() * options_.contexts;
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
  // Sums of the weights of dense rows, too: only a state of the same kind makes them, and so it shares no prefill with the others.
  static bool KeepsWeights(const EvalPolicy& policy) { return policy.kind == AttentionKind::kH2o; }
  Prefill& PrefillOf(const EvalPolicy& policy) { return prefills_[KeepsWeights(policy) ? 1 : 0]; }

  AttentionPolicy AttentionAt(const EvalPolicy& policy, size_t positions) const {
    // A model without such a layer refuses any numbers.
    const size_t head_dim = std::max<size_t>(1, SparseHeadDim(impl_.language_model(), kv_dtype_));
    AttentionPolicy attention = EvalAttentionOf(policy, head_dim, positions);
    if (ReadsComponents(policy.kind)) attention.audit = options_.audit;
    if (policy.kind == AttentionKind::kSparq) attention.floors.alphas = options_.floors;
    return attention;
  }

  // An empty state for `positions`. Dense rows may stand in layers of any form that keeps no weights.
  Result<std::unique_ptr<SequenceState>> NewState(const EvalPolicy& policy, size_t positions) {
    const EvalPolicy* own = policy.kind == AttentionKind::kDense ? shared_form_ : &policy;
    const AttentionPolicy attention = own == nullptr ? AttentionPolicy() : AttentionAt(*own, positions);
    TIDEMILL_TRY(made, ResolveAttentionPolicy(attention, impl_.language_model(), positions, kv_dtype_)
                           .WithContext("evaluate: " + policy.name()));
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

  Result<size_t> Count(std::string_view text) const {
    TIDEMILL_TRY(ids, tokenizer_.Encode(text, {.add_special = false, .parse_special = false}));
    return ids.size();
  }

  // The question's ids are those that it has with the answer behind it, up to the first one that differs without.
  Result<EncodedQuestion> Encode(const EvalQuestion& question) const {
    constexpr EncodeOptions kPlain = {.add_special = false, .parse_special = false};
    TIDEMILL_TRY(alone, tokenizer_.Encode(question.text, kPlain));
    TIDEMILL_TRY(both, tokenizer_.Encode(question.text + question.answer, kPlain));
    const auto split = std::mismatch(both.begin(), both.end(), alone.begin(), alone.end()).first;
    EncodedQuestion made = {.question = {both.begin(), split}, .answer = {split, both.end()}};
    made.answer.resize(std::min(made.answer.size(), options_.answer_tokens));
    if (made.question.empty() || made.answer.size() < 2)
      return Error(ErrorCode::kUnsupported,
                   "evaluate: the tokenizer joins a question with its answer; choose another model");
    return made;
  }

  // Runs and commits `tokens` densely; row: logits of the last one, or empty.
  Result<void> FeedPrompt(SequenceState& state, std::span<const int32_t> tokens, std::span<float> row) {
    for (size_t first = 0; first < tokens.size(); first += impl_.options.prefill_chunk) {
      const auto part = tokens.subspan(first, std::min(impl_.options.prefill_chunk, tokens.size() - first));
      const bool is_last = first + part.size() == tokens.size() && !row.empty();
      TIDEMILL_TRY_VOID(state.Reserve(part.size()).WithContext("evaluate"));
      const StepSequence step{.state = &state, .tokens = part, .rows = is_last ? Wanted::kLast : Wanted::kNothing};
      const auto sink = [&](size_t, size_t, std::span<float> logits) {
        std::copy(logits.begin(), logits.end(), row.begin());
      };
      if (!impl_.executor->Run({&step, 1}, sink, interrupt_)) return Cancelled();
      keys_.assign(part.begin(), part.end());
      state.Commit(keys_);
    }
    return {};
  }

  // One step of one token for each of the runs, whose logits go to their rows.
  Result<void> Step(std::span<PolicyRun*> runs, std::span<const int32_t> tokens, size_t sparse_from) {
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
    if (!impl_.executor->Run(steps_, sink, interrupt_)) return Cancelled();
    if (is_feeding_ && callbacks_.layer_row) TellRows(runs);
    for (size_t i = 0; i < runs.size(); ++i) {
      keys_.assign(1, static_cast<RowKey>(tokens[i]));
      runs[i]->state->Commit(keys_);
    }
    return {};
  }

  // What the step added to the counts of each layer: one row.
  void TellRows(std::span<PolicyRun*> runs) {
    for (PolicyRun* run : runs) {
      run->told.resize(run->state->num_layers());
      for (size_t i = 0; i < run->told.size(); ++i) {
        SparseKvLayer* layer = SparseOf(run->state->layer(i));
        if (layer == nullptr) continue;
        const SparseCounts& now = layer->counts();
        const SparseCounts before = std::exchange(run->told[i], now);
        if (now.heads == before.heads) continue;
        const auto share = [](uint64_t part, uint64_t all) {
          return static_cast<double>(part) / static_cast<double>(all);
        };
        callbacks_.layer_row(
            {.layer = i,
             .alpha_estimate = (now.alpha - before.alpha) / static_cast<double>(now.heads - before.heads),
             .dense_share = share(now.dense_groups - before.dense_groups, now.groups - before.groups),
             .is_audited = now.audits != before.audits,
             .kept_mass = now.kept_mass - before.kept_mass,
             .error = now.error - before.error});
      }
    }
  }

  std::span<float> RowOf(const PolicyRun& run) {
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
    prefills_ = {};
    for (key.question = 0; key.question < item.questions.size(); ++key.question) {
      if (!FindWanted(key)) continue;
      TIDEMILL_TRY(question, Encode(item.questions[key.question]));
      const size_t positions = ids.size() + question.question.size() + question.answer.size();
      if (positions > impl_.options.context) {
        return Error(ErrorCode::kContextFull, "evaluate: a context of " + std::to_string(ids.size()) +
                                                  " tokens, its question and answer have " + std::to_string(positions) +
                                                  ": the engine holds " + std::to_string(impl_.options.context) +
                                                  "; choose a smaller --context-tokens");
      }
      for (const PolicyRun& run : runs_) {
        std::unique_ptr<SequenceState>& context = PrefillOf(*run.policy).context;
        if (context != nullptr) continue;
        TIDEMILL_TRY(made, NewState(*run.policy, positions));
        context = std::move(made);
        TIDEMILL_TRY_VOID(FeedPrompt(*context, ids, {}));
      }
      TIDEMILL_TRY_VOID(RunQuestion(key, ids.size(), question));
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
        runs_.back().policy = &policy;
        runs_.back().is_wanted = is_wanted;
      }
    }
    return any;
  }

  // Each run's state behind the question, or before it where the question is sparse.
  Result<void> ForkRuns(std::span<PolicyRun*> runs, size_t positions) {
    for (PolicyRun* run : runs) {
      SequenceState& parent = *PrefillOf(*run->policy).behind;
      TIDEMILL_TRY(made, NewState(*run->policy, positions));
      run->state = std::move(made);
      TIDEMILL_TRY_VOID(parent.ForkTo(*run->state, parent.length()).WithContext("evaluate"));
    }
    return {};
  }

  Result<void> RunQuestion(EvalKey key, size_t context_tokens, const EncodedQuestion& ids) {
    const size_t prompt = context_tokens + ids.question.size(), positions = prompt + ids.answer.size();
    std::vector<float> first_row(vocab_);  // the same bits in all states, since their prompts are dense
    for (Prefill& prefill : prefills_) prefill.behind.reset();
    for (const PolicyRun& run : runs_) {
      Prefill& prefill = PrefillOf(*run.policy);
      if (prefill.behind != nullptr) continue;
      TIDEMILL_TRY(made, NewState(*run.policy, positions));
      prefill.behind = std::move(made);
      TIDEMILL_TRY_VOID(prefill.context->ForkTo(*prefill.behind, context_tokens).WithContext("evaluate"));
      if (!options_.sparse_question) TIDEMILL_TRY_VOID(FeedPrompt(*prefill.behind, ids.question, first_row));
    }
    std::vector<PolicyRun*> all;
    for (PolicyRun& run : runs_) all.push_back(&run);
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
    for (PolicyRun& run : runs_) run.attention = AttentionOf(*run.state);
    if (options_.generate && HasWords(key.task)) TIDEMILL_TRY_VOID(Generate(ids, positions, first_row));
    for (const PolicyRun& run : runs_) {
      key.policy = run.policy->name();
      if (!run.is_wanted) continue;
      TIDEMILL_TRY(record, RecordOf(key, run, ids, prompt));
      TIDEMILL_TRY_VOID(callbacks_.sink(record));
    }
    return {};
  }

  // Of the steps that a state has made.
  static EvalAttention AttentionOf(SequenceState& state) {
    SparseCounts all;
    for (size_t i = 0; i < state.num_layers(); ++i) {
      if (SparseKvLayer* layer = SparseOf(state.layer(i)); layer != nullptr) all += layer->counts();
    }
    EvalAttention attention = {.audits = all.audits};
    if (all.heads != 0) attention.alpha_estimate = all.alpha / static_cast<double>(all.heads);
    if (all.audits == 0) return attention;
    const auto audits = static_cast<double>(all.audits);
    attention.kept_mass = all.kept_mass / audits;
    attention.error = all.error / audits;
    attention.overlap = all.agreement / audits;
    return attention;
  }

  size_t SparseFrom(size_t prompt, const EncodedQuestion& ids) const {
    return options_.sparse_question ? prompt - ids.question.size() : prompt;
  }

  // Until the rows of all runs predict the answer's first token.
  Result<void> ReachAnswer(std::span<PolicyRun*> runs, const EncodedQuestion& ids, std::span<const float> first_row) {
    if (!options_.sparse_question) {
      for (const PolicyRun* run : runs) std::copy(first_row.begin(), first_row.end(), RowOf(*run).begin());
      return {};
    }
    const size_t from = runs.front()->state->length();
    for (const int32_t id : ids.question) TIDEMILL_TRY_VOID(Step(runs, std::vector<int32_t>(runs.size(), id), from));
    return {};
  }

  Result<void> ScoreRows(int32_t target, bool counts) {
    const auto dense = RowOf(runs_.front());
    const int32_t dense_choice = Likeliest(dense);
    for (PolicyRun& run : runs_) {
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
    std::vector<PolicyRun*> going;
    for (PolicyRun& run : runs_) {
      if (run.is_wanted && !run.still_matches) going.push_back(&run);
    }
    if (going.empty()) return {};
    const size_t from = SparseFrom(positions - ids.answer.size(), ids);
    TIDEMILL_TRY_VOID(ForkRuns(going, positions));
    TIDEMILL_TRY_VOID(ReachAnswer(going, ids, first_row));
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < ids.answer.size(); ++i) {
      tokens.clear();
      std::erase_if(going, [&](PolicyRun* run) {
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

  Result<EvalRecord> RecordOf(const EvalKey& key, const PolicyRun& run, const EncodedQuestion& ids,
                              size_t prompt) const {
    EvalRecord record = {.key = key, .prompt_tokens = prompt, .attention = run.attention};
    record.scored_tokens = ids.answer.size() - (options_.sparse_question ? 0 : 1);
    const auto n = static_cast<double>(record.scored_tokens);
    record.nll = run.nll / n;
    record.kl = run.kl / n;
    record.agreement = static_cast<double>(run.agreed) / n;
    record.exact = run.still_matches;
    const auto answer = std::span(ids.answer);
    TIDEMILL_TRY(matched, tokenizer_.Decode(answer.first(run.matched), false));
    record.matched_characters = CharactersIn(matched);
    if (options_.generate && HasWords(key.task)) {
      TIDEMILL_TRY(generated,
                   tokenizer_.Decode(run.still_matches ? answer : std::span<const int32_t>(run.generated), false));
      TIDEMILL_TRY(reference, tokenizer_.Decode(answer, false));
      record.rouge_l = RougeL(reference, generated);
    }
    if (key.task == EvalTask::kBpc) {
      TIDEMILL_TRY(scored, tokenizer_.Decode(answer.last(record.scored_tokens), false));
      const size_t characters = std::max<size_t>(1, CharactersIn(scored));
      record.bits_per_character = run.nll / std::log(2.0) / static_cast<double>(characters);
    }
    const size_t positions = prompt + ids.answer.size();
    const AttentionPolicy attention = AttentionAt(*run.policy, positions);
    record.r = attention.r.value_or(0);
    record.k = attention.k.value_or(0);
    record.bytes = EvalShareOfDense(attention, SparseHeadDim(impl_.language_model(), kv_dtype_), positions);
    return record;
  }

  Engine::Impl& impl_;
  const EvalOptions& options_;
  const EvalCallbacks& callbacks_;
  const std::atomic<bool>* interrupt_;
  const Tokenizer& tokenizer_;
  const DType kv_dtype_;
  const size_t vocab_;                       // rows of the head
  std::vector<float> rows_;                  // [policies, vocab]
  const EvalPolicy* shared_form_ = nullptr;  // of states without weights; null: they are plain
  std::array<Prefill, 2> prefills_;          // of the context at hand: without weights, and with them
  std::vector<PolicyRun> runs_;              // of the question at hand
  bool is_feeding_ = false;                  // a reference answer, or its question
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
