// What the engine chooses for a model on this machine, at what predicted cost, and why.
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
#include "tidemill/result.h"

namespace tidemill {

// Costs are seconds.
struct Alternative {
  std::string value;  // "256 rows", "bmc", "1"
  double cost = 0;
};

struct Choice {
  // "growth period", "kv policy", "prefill chunk" or "threads"; "draft width" where guesses are planned
  std::string name;
  Alternative chosen;
  std::optional<Alternative> runner_up = {};  // the best of the others; none where there is no other
  std::string of = {};                        // what the cost is of: "growing to the whole context"
  std::string reason = {};                    // one sentence
};

struct PredictedDecode {
  size_t depth = 0;    // positions that each sequence holds
  double seconds = 0;  // of one step, a token for each sequence
};

// What guesses cost and when they pay, of one sequence at half the context. Its companions have one row each in its steps; where they are
// planned, a draft model makes the guesses of all in the same steps, and one sequence's cost their share of that.
struct PredictedDrafts {
  struct Step {
    size_t guesses = 0;
    double seconds = 0;  // of a step that has a row for each of them and one for the pending token
    std::optional<double> break_even =
        {};  // how often guesses must be right for that to pay; none: never, or there is no guess
  };
  struct Width {
    double share = 0;    // how often guesses are right
    size_t guesses = 0;  // as many as make most tokens a second then
    double seconds = 0;  // for a token
  };
  bool is_planned = false;     // else guesses are taken to cost nothing, as prompt lookup's
  double guess_seconds = 0;    // of making one
  bool all_at_once = false;    // or all of them
  double reading_seconds = 0;  // of half the context by a draft model, before its first guess; 0: nothing is read
  // Tokens of an answer that can make up for that in an easy text: in a shorter one none are made, if none have to be. None: no answer can.
  std::optional<size_t> least_answer = 0;
  std::vector<Step> steps = {};    // of 0 to 16 guesses
  std::vector<Width> widths = {};  // at some shares, ascending
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
  size_t context = 0;  // N: positions that a sequence will have
  size_t batch = 1;
  uint64_t state_row_bytes = 0;     // keys and values of one position, of layers that keep all positions
  uint64_t state_memory_bytes = 0;  // of the engine
  std::vector<Choice> choices;
  std::vector<PredictedDecode> decode;  // at some depths, ascending
  double prefill_seconds = 0;           // of a prompt as long as the context
  PredictedDrafts drafts;
  std::vector<std::string> warnings;  // one line each: what the numbers lack
};

struct PlanOptions {
  size_t batch = 1;                           // at least 1
  std::optional<DraftOptions> draft = {};     // guesses that requests will ask for
  std::string cpu = {};                       // "AMD EPYC, family 26 model 2"; a profile of another is not used
  std::string profile_path = {};              // where this machine's numbers are kept; empty: nowhere
  bool recalibrate = false;                   // measure, whatever is there
  std::function<void(double)> progress = {};  // 0..1 while it measures; may be empty
};

// Measures the machine where `profile_path` names no file, which takes seconds, and writes one. A file that cannot be read or is of
// another machine, and a machine that cannot be measured, is a warning: then built-in numbers of the nearest machine serve.
// kFailedPrecondition while requests are in flight; kInvalidArgument for a batch of 0 for guesses that the engine cannot make, and for trees, which are not predicted.
Result<Plan> MakePlan(Engine& engine, const PlanOptions& options);

std::string PlanText(const Plan& plan);

}  // namespace tidemill

#endif  // TIDEMILL_PLAN_H_
