// Which requests run, and which of their tokens the next step has.
//
//   Admission   oldest first within max_batch and the memory for states. A request starts when the state of all its known tokens fits.
//               None overtakes one that waits for memory, so none starves.
//   Prefixes    a request begins with the rows that the prefix cache, or a running request, has of its first tokens. While an older
//               one is about to compute rows that it would compute too, it waits for them, and younger ones may start. Where a model
//               forgets, states are kept at the ends of prompts, at beginnings that a waiting request has, too, and every
//               kSnapshotTokens.
//   Rows        1. One for each request with one token to run.
//               2. Parts of prompts, oldest first, at most prefill_chunk rows in all, of equal size, since a few rows read all weights
//               too. Fewer beside requests that decode (PromptRowsBeside). Where a model reads segments, memory rows behind those that end one.
//               3. Draft tokens, oldest first, made for all requests together (DraftSteps). Unused draft rows are not reassigned.
//               While all requests that run have whole segments of prompts to read, those run as a wave (engine/wavefront.h), oldest first:
//               younger ones fill its ends.
//   Memory      is promised to running requests for the tokens that they know (runtime/state_memory.h). What does not fit takes it from
//               the prefix cache, then from drafters' states, from saved requests that wait, and from the youngest running
//               request, which is preempted. The oldest request gives up its drafter's features, then blocks that it shares, and fails
//               only if its state alone is too large.
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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/segments.h"
#include "engine/step_executor.h"
#include "runtime/active_request.h"
#include "runtime/draft_steps.h"
#include "runtime/prefix_cache.h"
#include "runtime/state_memory.h"

namespace tidemill {

struct SchedulerLimits {
  size_t max_batch = 1;                     // requests that run
  size_t max_rows = 1;                      // of a step; at least max_batch
  size_t prefill_chunk = 1;                 // rows of prompts in a step
  std::string spill_folder = {};            // see EngineOptions
  bool prefix_cache = false;                // see EngineOptions
  const LanguageModel* segments = nullptr;  // the model, where it reads its text in segments; outlives the scheduler
  size_t wave_tokens = 0;                   // of whole segments that run as one wave, at most; 0: none do
  size_t wave_segments = 2;                 // of a wave, at least
};

// Prompt rows beside `decoding` requests with one row each. A step of 32 rows takes a few times as long as one row, 512 tens of times
// (p99 inter-token latency was 613 ms). If more than 32 decode, as many prompt rows at most double the step.
constexpr size_t PromptRowsBeside(size_t decoding) { return decoding > 32 ? decoding : 32; }

class Scheduler {
 public:
  static constexpr size_t kSnapshotTokens = 1024;

  // Borrows `memory`.
  Scheduler(const SchedulerLimits& limits, StateMemory& memory);

  // Plans the next step for `requests`, oldest first, and reserves its rows. A request whose state cannot grow fails with an event.
  // Allocates state only.
  void Plan(std::span<const std::unique_ptr<ActiveRequest>> requests, std::vector<Event>* events);

  // A request that is done needs nothing more: its state goes into the prefix cache. Without memory nothing is kept.
  void Keep(ActiveRequest& request) noexcept;
  // Once the step is committed: keeps states that could not be gone back to later.
  void KeepSnapshots() noexcept;

  // Memory rows in front of some requests' tokens; of each request that takes part one; memory rows behind some.
  std::span<const StepSequence> step() const { return step_; }
  size_t num_requests() const { return stepping_.size(); }
  // Of step()[first_of_requests() + index].
  ActiveRequest& request(size_t index) { return *stepping_[index]; }
  size_t first_of_requests() const { return first_of_requests_; }
  // In place of a step: whole segments of requests, oldest first, each from its state's end on; empty: there are none.
  struct WavePart {
    ActiveRequest* request = nullptr;
    size_t tokens = 0, segments = 0;  // at least 1
  };
  std::span<const WavePart> wave() const { return wave_; }
  // Of waves from now on: tokens at most, and segments at least.
  void LimitWaves(size_t tokens, size_t segments) {
    limits_.wave_tokens = tokens;
    limits_.wave_segments = segments;
  }
  size_t wave_tokens() const { return limits_.wave_tokens; }
  void StopWaves() { limits_.wave_tokens = 0; }  // for good
  const DraftSteps& draft_steps() const { return draft_steps_; }

 private:
  struct Running {
    RequestId id;
    ActiveRequest* request;
    uint64_t promised;  // bytes
    size_t rows = 0;
    size_t front_rows = 0;   // memory rows in front of those
    size_t memory_rows = 0;  // behind those rows, which end a segment
    size_t snapshot = 0;     // the length after the step, where others may want to continue from it
    ActiveRequest::WholeSegments wave = {};
  };

  void TakeRunning();  // those of requests_ that run, and what they are promised
  void Admit(std::vector<Event>* events);
  // Starts a waiting request if it may start; true: those behind it may, too.
  bool Start(ActiveRequest& request, std::vector<Event>* events);
  uint64_t NeedToStart(const ActiveRequest& request) const;  // for the tokens that it knows and the next one
  void Promise(Running& running);
  void PromiseAll();
  // Rows of others for its first tokens, where there are any; *from: who has them, if it runs. False: it waits for those that an older one
  // computes.
  bool TakePrefix(ActiveRequest& request, Running** from);
  // Whether so many bytes more fit, once the prefix cache, drafters and saved requests that wait have given what is missing.
  // Not the state of `keeps`, which may be null.
  bool MakeFit(uint64_t more, const ActiveRequest* keeps = nullptr);
  // Where its state forgets: the next length, at most its known tokens, at which others may want to continue from it.
  size_t NextSnapshot(const ActiveRequest& request) const;
  void LimitToSnapshot(Running& running);
  // Of a model with segments, with at most so many rows, memory rows included.
  void CutToSegment(Running& running, size_t rows);
  // False: a step is to run. Else wave_ may be empty, too: memory was missing.
  bool PlanWave(std::vector<Event>* events);
  bool ShareWave();  // Running::wave of all; false: too few segments, or a request that has none stops the others
  void AssignRows();
  void AddDraftTokens(size_t rows);  // at most so many
  // For its last sampled token, before drafting in the unused capacity after it; layers of constant size make such.
  void GrowForText(Running& running, const DraftTask& draft);
  // Draft tokens that fit, or all if they are worth growing for; their number.
  size_t TakeDraftTokens(Running& running, const DraftTask& draft);
  bool GrowsFor(const Running& running, const ActiveRequest::DraftRows& draft_tokens) const;
  // Reserves the rows of running_[index]; false: it no longer runs.
  bool MakeRoom(size_t index, std::vector<Event>* events);
  void PreemptYoungest();

  SchedulerLimits limits_;
  StateMemory& memory_;
  std::span<const std::unique_ptr<ActiveRequest>> requests_;  // during Plan; oldest first
  std::vector<Running> running_;                              // oldest first
  bool one_waits_ = false;                                    // for memory
  std::vector<WavePart> wave_;
  std::optional<MemoryRows> memory_rows_;  // of a model with segments
  std::vector<StepSequence> step_;
  std::vector<ActiveRequest*> stepping_;
  size_t first_of_requests_ = 0;
  DraftSteps draft_steps_;
  std::vector<DraftTask> drafts_;   // made together
  std::vector<Running*> drafting_;  // their requests
};

// kOutOfMemory: "WHAT: N tokens: expected at most HAVE bytes of state, found NEED[, of which FEATURES ...]; ...".
Error StateTooLarge(std::string_view what, size_t positions, uint64_t need, uint64_t features, uint64_t have) noexcept;

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_SCHEDULER_H_
