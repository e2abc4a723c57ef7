// What the engine chooses for a model on this machine, what that is predicted to cost, and why.
//
//   auto plan = MakePlan(*engine, {.batch = 8});
//   std::cout << PlanText(*plan);
#ifndef TIDEMILL_PLAN_H_
#define TIDEMILL_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tidemill/engine.h"
#include "tidemill/model.h"
#include "tidemill/result.h"

namespace tidemill {

struct Alternative {
  std::string value;  // "4096 tokens", "bmc", "2"
  double cost = 0;    // seconds
};

struct Choice {
  std::string
      name;  // "growth increment", "kv policy", "prefill chunk", "threads"; "draft tokens" where drafts are planned
  Alternative chosen;
  std::optional<Alternative> runner_up = {};  // the cheapest alternative; none: there is no alternative
  std::string option = {};                    // the flag that chooses it: "--kv-policy reserve"
  std::string of = {};                        // what both costs are of: "growing to 8192 tokens"
  std::string reason = {};                    // why the chosen one is used; one line

  // Whether the alternative is predicted to be cheaper, by more than 1 % of the chosen one.
  bool runner_up_is_cheaper() const { return runner_up && runner_up->cost < 0.99 * chosen.cost; }
};

// Bytes that `batch` sequences of the whole context take, with a draft model's where one is planned.
struct PlannedMemory {
  uint64_t weights = 0;               // packed; of mapped weights, their files
  uint64_t kv_cache = 0;              // of all layers; those with a window hold the window
  uint64_t unused_capacity = 0;       // beside tokens that are there: the most at any depth
  uint64_t work = 0;                  // step buffers, logits and scratch of the threads
  std::optional<uint64_t> free = {};  // what the system has; none: it does not say

  // kv_cache may be more than can be counted.
  uint64_t total() const { return kv_cache > UINT64_MAX - weights - work ? UINT64_MAX : weights + kv_cache + work; }
  std::optional<bool> fits() const { return free ? std::optional(total() <= *free) : std::nullopt; }
};

struct PredictedDecode {
  size_t depth = 0;    // tokens that each sequence holds
  double seconds = 0;  // of one step, a token for each sequence
};

// What draft tokens cost and when they pay: one sequence at half the context. Its batch mates have one row each in its steps. Where drafts are
// planned, one draft step makes the draft tokens of all, and costs each sequence its part.
struct PredictedDrafts {
  struct Step {
    size_t num_draft_tokens = 0;
    double seconds = 0;                     // a step with a row for each of them and for the last sampled token
    std::optional<double> break_even = {};  // acceptance rate; none: it never pays, or nothing is drafted
  };
  struct Best {
    double acceptance_rate = 0;
    size_t num_draft_tokens = 0;  // that makes most tokens a second then
    double seconds = 0;           // for a token
  };
  bool is_planned = false;           // else draft tokens are taken to cost nothing, as prompt lookup's
  double draft_token_seconds = 0;    // of making a draft token
  bool all_at_once = false;          // or all of a step's
  double draft_prefill_seconds = 0;  // draft prefill of half the context; 0: no draft model
  // The shortest answer that can make up for the draft prefill in an easy text, in tokens. None: no answer can.
  std::optional<size_t> min_answer_tokens = 0;
  std::vector<Step> steps = {};  // of 0 to 16 draft tokens
  std::vector<Best> best = {};   // at some acceptance rates, ascending
};

// How a model that reads segments takes a prompt as long as the context: whole segments as waves, then the last one. Its other predictions
// are those within a segment.
struct PredictedSegments {
  struct Order {
    std::string name;            // "sequential", "diagonal 16", "layer-major 8", "teams 8 x 2"
    double segment_seconds = 0;  // of a whole segment
    double prompt_seconds = 0;   // of the prompt
    uint64_t buffer_bytes = 0;   // of its rows in flight
  };
  size_t segment_tokens = 0, memory_tokens = 0;
  size_t prompt_tokens = 0, whole_segments = 0;  // before the last one
  uint64_t memory_bytes = 0;       // what is kept of all earlier segments: A and z of all layers, or what RMT carries
  uint64_t tail_bytes = 0;         // keys and values of a whole segment
  size_t wave_segments = 0;        // that run between two looks at other requests, at most; 0: steps do
  std::vector<Order> orders = {};  // sequential first
  std::string chosen, reason;      // one sentence
  std::string note;                // the same for every model
};

// The numbers that the costs come from.
struct ProfileInfo {
  std::string cpu, isa;
  size_t threads = 0;
  std::string date;       // "2026-11-22"
  std::string source;     // how they were measured, or that they are built in
  bool measured = false;  // by this call
};

struct Plan {
  ProfileInfo profile;
  size_t context = 0;  // context size, tokens
  size_t batch = 1;
  uint64_t state_row_bytes = 0;     // keys and values of one token, in the layers without a window
  uint64_t state_memory_bytes = 0;  // of the engine
  PlannedMemory memory;
  std::vector<Choice> choices;
  std::vector<PredictedDecode> decode;  // at some depths, ascending
  double prefill_seconds = 0;           // of a prompt as long as the context
  PredictedDrafts drafts;
  std::optional<PredictedSegments> segments = {};  // none: the model reads its text as a whole
  std::vector<std::string> warnings;               // one line each: what the numbers lack
};

struct PlanOptions {
  size_t batch = 1;                                // at least 1
  WeightStorage weights = WeightStorage::kPacked;  // as the model will be loaded; a plan itself reads no weights
  std::optional<DraftOptions> draft = {};          // what requests will ask for; a chain
  std::string cpu = {};                            // "AMD EPYC, family 26 model 2"; a profile of another is not used
  std::string profile_path = {};                   // where this machine's numbers are kept; empty: nowhere
  bool recalibrate = false;                        // measure, whatever is there
  std::function<void(double)> progress = {};       // 0..1 while it measures; may be empty
};

// Measures the machine if there is no file at `profile_path`, which takes seconds, and writes one. A file that cannot be read or is of another
// machine is a warning, and so is a machine that cannot be measured: the nearest built-in numbers serve.
// kFailedPrecondition while requests are in flight; kInvalidArgument for a batch of 0, for drafts that the engine cannot make, and for trees.
Result<Plan> MakePlan(Engine& engine, const PlanOptions& options);

// At most 20 lines, and 9 of segments: what is chosen, what it and the best alternative cost, and memory. verbose: reasons and the costs of draft tokens, too.
std::string PlanText(const Plan& plan, bool verbose = false);

}  // namespace tidemill

#endif  // TIDEMILL_PLAN_H_
