// Weighs every choice with the predicted costs: a pure function of numbers, so that a plan can be tested on any machine.
#ifndef TIDEMILL_PLANNER_PLAN_H_
#define TIDEMILL_PLANNER_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "decoding/draft_width.h"
#include "planner/draft_costs.h"
#include "planner/machine_profile.h"
#include "planner/predicted_costs.h"
#include "tidemill/plan.h"
#include "tidemill/policies.h"

namespace tidemill {

// Guesses that the engine would make.
struct DraftPlan {
  bool is_planned = false;  // else: guesses that cost nothing, as far as the step goes
  DraftCosts costs = {};    // at half the context, beside batch - 1 others that guess, too
  GuessOrder order = GuessOrder::kOneByOne;
  size_t least = 0, most = 1;
  DraftReading reading = {};  // of half the context
};
ThreadUse drafter_threads = ThreadUse::kAll;
};

struct PlanInput {
  MachineProfile profile;
  ModelNumbers model;
  size_t context = 1;         // N, at least 1
  size_t batch = 1;           // at least 1
  uint64_t state_memory = 1;  // bytes, at least 1
  size_t sequences = 1;       // that may share it; at least 1
  // What the engine uses: a plan says what that costs.
  KvPolicy policy = KvPolicy::kBmc;
  size_t period = 1;  // rows, 1 to the context
  bool period_given = false;
  size_t prefill_chunk = 512;
  size_t threads = 1;
  DraftPlan drafts;
};

// All of a plan but where its profile comes from.
Plan ChoosePlan(const PlanInput& input);

// "1.25 ms", "917 MB": three digits.
std::string SecondsText(double seconds);
std::string BytesText(double bytes);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_PLAN_H_
