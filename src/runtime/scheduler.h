// Which requests run, and which of their tokens the next step has.
//
//   Admission   oldest first while max_batch and the memory for states last: a request starts when the state of all its known tokens has
//               room. None overtakes another, so that none waits forever.
//   Rows        one for each request that has one token to run; then parts of prompts, oldest first, prefill_chunk rows in all at
//               most, as equal as can be (a few rows read all weights as many do), but few beside requests that decode
//               (PromptRowsBeside); then guesses at what follows the one token, oldest first, which are made for all requests together
//               (DraftSteps): rows that a draft model was promised and does not use go to nobody
//   Memory      where a state cannot grow within the bound, the youngest request that runs is put aside, until it can. The oldest one
//               fails only when it alone is too large, without features that a drafter of its keeps: those it gives up before. Guesses use
//               the rows that are free, and where none is free they grow with the state: the spare rows of BMC (section VI-A). Of
//               more guesses than free rows the least promising ones are cut, but where they are worth more seconds
//               (DraftWidth::Gain) than growing now (EarlyGrowth), and that takes no memory that a request that runs, or waits for
//               memory, could need before the text itself makes the state grow. Where the memory is not there, they are cut to the free rows.
//
// None of it changes a bit of an answer (under DraftRule::kNoise): rows do not see their company, and a state that was put aside or computed again is the same.
#ifndef TIDEMILL_RUNTIME_SCHEDULER_H_
#define TIDEMILL_RUNTIME_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sequential_executor.h"
#include "runtime/active_request.h"
#include "runtime/draft_steps.h"

namespace tidemill {

struct SchedulerLimits {
  size_t max_batch = 1;           // requests that run
  size_t max_rows = 1;            // of a step; at least max_batch
  size_t prefill_chunk = 1;       // rows of prompts in a step
  uint64_t state_memory = 0;      // bytes of the states of all that run, with the features that their drafters keep
  std::string spill_folder = {};  // see EngineOptions
};

// Rows of prompts beside `decoding` requests with one row each, which all wait for the step. A step reads each weight once whatever its
// rows are: 32 rows take a few times as long as one, 512 tens of times (99 of 100 pauses between tokens were up to 613 ms). Where more
// than 32 decode, as many rows again at most double the step.
constexpr size_t PromptRowsBeside(size_t decoding) { return decoding > 32 ? decoding : 32; }

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  // Plans the next step for `requests`, oldest first, and reserves its rows. Requests whose state cannot grow fail with an event each.
  // Allocates nothing but state.
  void Plan(std::span<const std::unique_ptr<ActiveRequest>> requests, std::vector<Event>* events);

  std::span<const StepSequence> step() const { return step_; }
  ActiveRequest& request(size_t index) { return *stepping_[index]; }  // of step()[index]
  const DraftSteps& draft_steps() const { return draft_steps_; }

 private:
  struct Running {
    RequestId id;
    ActiveRequest* request;
    uint64_t bytes;     // counted against state_memory: held, or promised at its start
    uint64_t features;  // of them, what a drafter's features take
    size_t rows = 0;
  };

  void Admit(std::span<const std::unique_ptr<ActiveRequest>> requests, std::vector<Event>* events);
  void AssignRows();
  void AddGuesses(size_t rows);  // at most so many
  // For its pending token, now: its guesses are made in rows that are free behind that.
  void GrowForText(Running& running);
  // Those that its free rows have room for, or all that are worth growing for; how many they are.
  size_t TakeGuesses(Running& running, const DraftTask& draft);
  bool GrowsFor(const Running& running, const ActiveRequest::GuessRows& guesses) const;
  // Room for the rows of running_[index]; false where it does not run any more.
  bool MakeRoom(size_t index, std::vector<Event>* events);
  void PreemptYoungest();
  void UncountFeatures(Running& running);  // that it has given up

  SchedulerLimits limits_;
  std::vector<Running> running_;  // oldest first: always the oldest of all requests
  uint64_t bytes_ = 0;            // of all of them
  bool one_waits_ = false;        // for memory
  std::vector<StepSequence> step_;
  std::vector<ActiveRequest*> stepping_;
  DraftSteps draft_steps_;
  std::vector<DraftTask> drafts_;   // of requests whose guesses are made together
  std::vector<Running*> drafting_;  // those
};

// kOutOfMemory: "WHAT: N positions: expected at most HAVE bytes of state, found NEED[, of which FEATURES ...]; ...".
Error StateTooLarge(std::string_view what, size_t positions, uint64_t need, uint64_t features, uint64_t have) noexcept;

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_SCHEDULER_H_
