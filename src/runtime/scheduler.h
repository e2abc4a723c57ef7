// Which requests run, and which of their tokens the next step has.
//
//   Admission   oldest first within max_batch and the memory for states. A request starts when the state of all its known tokens fits.
//               None overtakes another, so none starves.
//   Prefixes    a request begins with the rows that the prefix cache, or an older running request, has of its first tokens. While an older
//               one is about to compute rows that it would compute too, it waits for them.
//   Rows        1. One for each request with one token to run.
//               2. Parts of prompts, oldest first, at most prefill_chunk rows in all, of equal size, since a few rows read all weights
//               too. Fewer beside requests that decode (PromptRowsBeside).
//               3. Draft tokens, oldest first, made for all requests together (DraftSteps). Unused draft rows are not reassigned.
//   Memory      where a state cannot grow within the bound, the prefix cache gives memory first. Then the youngest running request is
//               preempted. The oldest request gives up its drafter's features, then blocks that it shares, and fails only if its state
//               alone is too large.
//   Drafts      use the state's unused capacity, or grow with the state if none is left (BMC, section VI-A). If more draft tokens were
//               made, the least promising are dropped. The state grows for them only if they are worth more seconds (NumDraftTokens::Gain)
//               than growing now (EarlyGrowth). That must take no memory that a running or waiting request could need before the text
//               itself makes the state grow.
//
// None of it changes a bit of an answer: rows do not see their batch mates, and a state that was preempted or computed again is the same.
#ifndef TIDEMILL_RUNTIME_SCHEDULER_H_
#define TIDEMILL_RUNTIME_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/step_executor.h"
#include "runtime/active_request.h"
#include "runtime/draft_steps.h"
#include "runtime/prefix_cache.h"

namespace tidemill {

struct SchedulerLimits {
  size_t max_batch = 1;           // requests that run
  size_t max_rows = 1;            // of a step; at least max_batch
  size_t prefill_chunk = 1;       // rows of prompts in a step
  uint64_t state_memory = 0;      // bytes of all running requests' states, with their drafters' features
  std::string spill_folder = {};  // see EngineOptions
  bool prefix_cache = false;      // see EngineOptions
};

// Prompt rows beside `decoding` requests with one row each. A step of 32 rows takes a few times as long as one row, 512 tens of times
// (p99 inter-token latency was 613 ms). If more than 32 decode, as many prompt rows at most double the step.
constexpr size_t PromptRowsBeside(size_t decoding) { return decoding > 32 ? decoding : 32; }

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  // Plans the next step for `requests`, oldest first, and reserves its rows. A request whose state cannot grow fails with an event.
  // Allocates state only.
  void Plan(std::span<const std::unique_ptr<ActiveRequest>> requests, std::vector<Event>* events);

  // A request that is done: its state goes into the prefix cache. Without memory nothing is kept.
  void Keep(ActiveRequest& request) noexcept;
  const PrefixCache& prefix_cache() const { return prefix_cache_; }

  std::span<const StepSequence> step() const { return step_; }
  ActiveRequest& request(size_t index) { return *stepping_[index]; }  // of step()[index]
  const DraftSteps& draft_steps() const { return draft_steps_; }

 private:
  struct Running {
    RequestId id;
    ActiveRequest* request;
    uint64_t bytes;     // counted against state_memory: allocated, or promised at its start
    uint64_t features;  // of them, its drafter's features
    size_t rows = 0;
  };

  void Admit(std::span<const std::unique_ptr<ActiveRequest>> requests, std::vector<Event>* events);
  // Rows of others for its first tokens, where there are any. False: it waits for those that an older one computes.
  bool TakePrefix(ActiveRequest& request);
  // Whether so many bytes more are within the bound, once the prefix cache has given what is missing.
  bool Fits(uint64_t more);
  void AssignRows();
  void AddDraftTokens(size_t rows);  // at most so many
  // For its last sampled token, before drafting in the unused capacity after it.
  void GrowForText(Running& running);
  // Draft tokens that fit, or all if they are worth growing for; their number.
  size_t TakeDraftTokens(Running& running, const DraftTask& draft);
  bool GrowsFor(const Running& running, const ActiveRequest::DraftRows& draft_tokens) const;
  // Reserves the rows of running_[index]; false: it no longer runs.
  bool MakeRoom(size_t index, std::vector<Event>* events);
  void PreemptYoungest();
  void UncountFeatures(Running& running);  // given up

  SchedulerLimits limits_;
  PrefixCache prefix_cache_;
  std::vector<Running> running_;  // the oldest of all requests, oldest first
  uint64_t bytes_ = 0;            // of all of them
  bool one_waits_ = false;        // for memory
  std::vector<StepSequence> step_;
  std::vector<ActiveRequest*> stepping_;
  DraftSteps draft_steps_;
  std::vector<DraftTask> drafts_;   // made together
  std::vector<Running*> drafting_;  // their requests
};

// kOutOfMemory: "WHAT: N tokens: expected at most HAVE bytes of state, found NEED[, of which FEATURES ...]; ...".
Error StateTooLarge(std::string_view what, size_t positions, uint64_t need, uint64_t features, uint64_t have) noexcept;

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_SCHEDULER_H_
