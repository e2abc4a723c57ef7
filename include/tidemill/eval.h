// What sparse attention costs in quality: tasks with known answers, each answered under several policies from one prefilled context.
//
//   auto policies = ParseEvalPolicies("dense,sparq,h2o", {2, 8});
//   Evaluate(*engine, *model, {.tasks = {EvalTask::kCodes}, .policies = *policies}, {}, sink, progress);
//   for (const EvalRow& row : SummarizeEval(records)) ...
//
// The reference answer is fed one token a step, so that all policies see the same text. Prompts are read densely, and so the row that predicts an
// answer's first token is the same for all: means are over the tokens behind it.
#ifndef TIDEMILL_EVAL_H_
#define TIDEMILL_EVAL_H_

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tidemill/engine.h"
#include "tidemill/policies.h"
#include "tidemill/result.h"

namespace tidemill {

enum class EvalTask : uint8_t {
  kRepetition,  // a stretch of the text begins again, and goes on as it did there: arXiv:2312.04985
  kPasskey,     // one key in prose
  kCodes,       // eight named codes in prose, of which one is asked for
  kChoice,      // which of two answers holds for one of 8 to 64 invented people
  kNotes,       // lines with a tag, out of prose
  kFunctions,   // the body of one of up to 100 functions in Python; for models of code
  kBpc,         // the text goes on: bits per character
};
inline constexpr std::array kEvalTasks = {EvalTask::kRepetition, EvalTask::kPasskey, EvalTask::kCodes,
                                          EvalTask::kChoice,     EvalTask::kNotes,   EvalTask::kFunctions,
                                          EvalTask::kBpc};

// "repetition", "passkey", "codes", "choice", "notes", "functions", "bpc"; kInvalidArgument lists them.
Result<EvalTask> ParseEvalTask(std::string_view name);
std::string_view EvalTaskName(EvalTask task);

// What attention reads of a context of n positions, in elements for each KV head of head_dim d:
//   dense 2nd      sparq rn + 2kd      topk nd + 2kd      h2o, window 2kd
// `compression` c: a share of 1/c of dense. sparq: k = 128 if that leaves r of at least d/8; else k is the largest power of two whose
// 2kd are at most half of the share, and r takes the rest; both at least 1, r at most d. topk reads more than half of dense, and has
// sparq's k. h2o and window: k = n/c, of a window 17 at least. All else is as AttentionPolicy's defaults.
struct EvalPolicy {
  AttentionKind kind = AttentionKind::kDense;  // any but kAuto
  size_t compression = 1;                      // where k is 0
  size_t r = 0, k = 0;                         // given instead: r of kSparq only

  // "dense", "sparq:1/8", "sparq:r=32:k=128", "window:k=256".
  std::string name() const;
  friend bool operator==(const EvalPolicy&, const EvalPolicy&) = default;
};

// Names with commas between them; a name of a kind alone stands for all `compressions`, each 2 to 1024. The result begins with dense, which the others
// are compared with. kInvalidArgument: no such policy, one that is there twice, or more than kMaxEvalPolicies.
Result<std::vector<EvalPolicy>> ParseEvalPolicies(std::string_view names, std::span<const size_t> compressions);
inline constexpr size_t kMaxEvalPolicies = 32;

struct EvalOptions {
  std::vector<EvalTask> tasks = {};
  std::vector<size_t> context_tokens = {1024};  // the generators fill a context up to so many
  size_t contexts = 8;                          // of each task and number of tokens
  size_t questions = 4;                         // of a context, at most; tasks that have but one ask one
  size_t answer_tokens = 64;                    // an answer is cut after so many, at least 8
  std::vector<EvalPolicy> policies = {};        // begins with dense
  std::string_view text = {};  // of repetition and bpc; empty: repetition has generated prose, bpc is refused
  uint64_t seed = 0;
  bool generate = true;          // also lets the model answer, for ROUGE-L, where that says more than the fed tokens
  bool sparse_question = false;  // rows are sparse from the question on, else from the answer on
  size_t audit = 0;  // of kSparq and kTopk: of every so many positions, one is compared with dense attention; 0: none
  std::vector<float> floors = {};  // of kSparq: AttentionFloors::alphas
};

// Which record.
struct EvalKey {
  EvalTask task = EvalTask::kRepetition;
  size_t context_tokens = 0, context = 0, question = 0;
  std::string policy = {};
  friend auto operator<=>(const EvalKey&, const EvalKey&) = default;
};

// What attention kept, of kSparq and kTopk where rows see more than k positions: means over sparse rows of all layers.
struct EvalAttention {
  std::optional<double> alpha_estimate = {};  // of the share of attention that falls on what is read
  size_t audits = 0;                          // rows that were compared with dense attention; the rest is over them
  double kept_mass = 0;                       // what alpha_estimate estimates
  double error = 0;                           // |output - dense| / |dense|
  double overlap = 0;                         // share of the positions read that exact scores would have chosen
};

struct EvalRecord {
  EvalKey key;
  size_t r = 0, k = 0;            // as chosen for the length; 0: none
  double bytes = 1;               // that attention reads, by the formulas above, as a share of dense
  size_t prompt_tokens = 0;       // context and question
  size_t scored_tokens = 0;       // of the answer
  double nll = 0;                 // nats for each of them
  double kl = 0;                  // KL(dense || policy), nats for each
  double agreement = 0;           // share of them for which both have the same likeliest token
  bool exact = false;             // greedy decoding gives the answer
  size_t matched_characters = 0;  // of the answer, before greedy decoding leaves it
  std::optional<double> rouge_l = {};
  std::optional<double> bits_per_character = {};  // of kBpc, over scored tokens
  EvalAttention attention = {};
};

// What became of one sparse row in one layer, of kSparq and kTopk.
struct EvalLayerRow {
  size_t layer = 0;
  double alpha_estimate = 0;  // mean over query heads
  double dense_share = 0;     // of KV heads, those whose floor was not met
  bool is_audited = false;    // the rest is there
  double kept_mass = 0, error = 0;
};

struct EvalCallbacks {
  std::function<bool(const EvalKey&)> is_done = {};                // such a record is there already; may be empty
  std::function<Result<void>(const EvalRecord&)> sink = {};        // an error of it ends the evaluation
  std::function<void(size_t contexts, size_t all)> progress = {};  // contexts that are done, 0 at first; may be empty
  std::function<void(const EvalLayerRow&)> layer_row = {};         // of fed tokens; may be empty
};

// Calls the sink for each context, question and policy in that order. Contexts, questions and answers follow from the seed alone, so that what is done
// need not be done again. kInvalidArgument: options out of range, a text that is too short, or a policy that the model cannot have; kContextFull;
// kFailedPrecondition: requests are in flight; kNumericalError; kOutOfMemory; kCancelled soon after `interrupt`, which may be null.
// Cost: a prefill for each context and for each question, two where kH2o is among others, whose weights come of the prompt; and a step of one row
// for each policy and token of an answer.
Result<void> Evaluate(Engine& engine, const Model& model, const EvalOptions& options, const EvalCallbacks& callbacks,
                      const std::atomic<bool>* interrupt = nullptr);

// Means of one task, length and policy over questions.
struct EvalRow {
  EvalTask task = EvalTask::kRepetition;
  size_t context_tokens = 0;
  std::string policy = {};
  size_t contexts = 0, questions = 0;
  double bytes = 1, nll = 0, kl = 0, agreement = 0, exact = 0, matched_characters = 0;
  std::optional<double> rouge_l = {}, bits_per_character = {};
  EvalAttention attention = {};  // means over audits, too
  // Perplexity of answers over that of dense, and a 95 % interval: a bootstrap over contexts, each of which has both.
  double ratio = 1, ratio_low = 1, ratio_high = 1;
};

// In the order in which records name tasks, lengths and policies first. Questions without a dense record are left out.
std::vector<EvalRow> SummarizeEval(std::span<const EvalRecord> records, uint64_t seed);

// Floors for kSparq, one for each layer, and what they do on other contexts of the same tasks.
struct EvalCalibration {
  AttentionFloors floors = {};            // all of it; alphas are 0 where a layer cannot be sparse
  std::vector<double> errors = {};        // mean relative error with these floors
  std::vector<double> correlations = {};  // of alpha_estimate with the share of attention that was kept, without floors
  std::vector<size_t> rows = {};          // that each floor was fitted to
};

// A layer's floor is the smallest number of thousandths for which rows with a greater alpha_estimate, the mean over their query heads, have a relative
// error of at most `max_error` in the mean; 1 where there is none. The engine asks for it of each query head: it reads all more often.
// `options` names dense and at most one policy of kSparq, by default r = head_dim / 8, k = 128; a share is that of the longest context. Floors are fitted
// with its seed, and what they do is measured with the next one.
// Errors as Evaluate's; kInvalidArgument: other policies, max_error not from 0 to 1, or contexts that have no more than k positions.
// Cost: two evaluations, in which each sparse row is audited.
Result<EvalCalibration> CalibrateFloors(Engine& engine, const Model& model, const EvalOptions& options,
                                        double max_error,
                                        const std::function<void(size_t contexts, size_t all)>& progress = {},
                                        const std::atomic<bool>* interrupt = nullptr);

}  // namespace tidemill

#endif  // TIDEMILL_EVAL_H_
