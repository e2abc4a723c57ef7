// Compares every choice with its alternatives by predicted costs: a pure function of numbers, which is tested on any machine.
#ifndef TIDEMILL_PLANNER_PLAN_H_
#define TIDEMILL_PLANNER_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decoding/num_draft_tokens.h"
#include "planner/draft_costs.h"
#include "planner/machine_profile.h"
#include "planner/predicted_costs.h"
#include "planner/wave_order.h"
#include "tidemill/plan.h"
#include "tidemill/policies.h"

namespace tidemill {

// Draft tokens that requests will have.
struct DraftPlan {
  bool is_planned = false;                   // else draft tokens that cost nothing to make
  DraftCosts costs = {};                     // at half the context, beside batch - 1 batch mates that draft, too
  DraftOrder order = DraftOrder::kOneByOne;  // no tree
  size_t min_draft_tokens = 0, num_draft_tokens = 1;  // draft tokens
  DraftPrefill prefill = {};                          // of half the context
};

// Of a model that reads segments.
struct SegmentPlan {
  size_t segment_tokens = 1, memory_tokens = 0;
  size_t front_tokens = 0;   // memory tokens in front of a segment, too
  size_t prompt_tokens = 1;  // at least 1
  size_t whole_segments = 0;
  uint64_t memory_bytes = 0;  // A and z of all layers, or what RMT carries
  WaveChoice waves = {};
};

struct PlanInput {
  MachineProfile profile;
  ModelNumbers model;
  size_t context = 1;         // N, at least 1; of a model that reads segments, positions of one
  size_t batch = 1;           // at least 1
  uint64_t state_memory = 1;  // bytes, at least 1
  size_t sequences = 1;       // the most that share it; at least 1
  PlannedMemory memory = {};  // but unused_capacity, which the plan fills
  // What the engine uses: a plan says what that costs.
  KvPolicy policy = KvPolicy::kBmc;
  size_t increment = 1;  // growth increment, 1 to the context
  bool increment_given = false;
  size_t prefill_chunk = 512;
  size_t threads = 1;
  bool linear_given = false;  // its form, by a flag
  // Beside which dense attention stands: what --attention sparq would be; empty: no layer can be sparse.
  std::vector<AttentionLayers> other_attention = {};
  std::string_view attention_reason = {};  // RequestStats::attention_reason
  DraftPlan drafts;
  std::optional<SegmentPlan> segments = {};
};

// All of a plan but where its profile comes from.
Plan ChoosePlan(const PlanInput& input);

// "1.25 ms", "917 MB": three digits.
std::string SecondsText(double seconds);
std::string BytesText(double bytes);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_PLAN_H_
