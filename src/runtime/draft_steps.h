// Guesses for all sequences of a step. Drafters that run the same model run it together: a step of it has rows of each sequence that wants
// guesses, so that k guesses for n sequences read its weights k times, not n k times. A row's bits do not depend on its company, so each
// drafter guesses what it would guess alone. One that needs fewer steps than the others drops out.
#ifndef TIDEMILL_RUNTIME_DRAFT_STEPS_H_
#define TIDEMILL_RUNTIME_DRAFT_STEPS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decoding/draft_tree.h"
#include "decoding/drafter.h"
#include "engine/sequential_executor.h"

namespace tidemill {

// Rows of a sequence in the first step of a draft, where many guess: the tokens that came, a right guess and the one behind it.
inline constexpr size_t kDraftRowsOfSequence = 2;

// Ids that a drafter keeps room for; beyond it a context grows now and then.
inline constexpr size_t kReservedDraftIds = size_t{1} << 20;

// What a drafter's steps run on. All that is borrowed outlives it.
struct DraftForward {
  SequentialExecutor* executor = nullptr;
  size_t num_layers = SIZE_MAX;
  const StepFeatures* features = nullptr;        // of a draft head: where a step leaves its rows' own
  const std::atomic<bool>* interrupt = nullptr;  // ends guessing early; may be null

  // Their rows may share a step.
  bool IsSame(const DraftForward& other) const { return executor == other.executor && num_layers == other.num_layers; }
};

enum class DraftNext : uint8_t {
  kStep,
  kWait,  // a step of more rows than there is room for
  kDone,  // the guesses are made, or cannot be
};

// A drafter whose guesses take steps of a model: Propose in parts, so that drafters of several sequences share the steps.
//
//   Begin(most) -> while Next(..) is kStep: the step runs, Choose for each of its wanted rows in their order, Ran -> End()
//
// End may come early: then the guesses are those that there are. Each may throw std::bad_alloc: then it drafts nothing any more.
class StepDrafter : public Drafter {
 public:
  // The same drafter; null where its guesses take no steps.
  static StepDrafter* Of(Drafter* drafter) { return dynamic_cast<StepDrafter*>(drafter); }

  virtual DraftForward forward() const = 0;  // the same for its life

  virtual void Begin(size_t most) = 0;
  // Of at most `rows` rows, for which the state has room then. With as many as the executor has it is never kWait.
  virtual DraftNext Next(size_t rows, StepSequence* step) = 0;
  virtual void Choose(size_t row, std::span<float> logits) = 0;
  // All of the step was run; its first row was this one of DraftForward::features.
  virtual void Ran(size_t first_row) = 0;
  virtual DraftTree End() = 0;  // as Propose

  DraftTree Propose(size_t most) final;  // alone
};

// What is wanted of one sequence's drafter, and what came of it.
struct DraftTask {
  Drafter* drafter = nullptr;
  StepDrafter* steps = nullptr;  // StepDrafter::Of it
  size_t most = 0;               // nodes
  DraftTree guesses = {};        // valid until the drafter's next
  double seconds = 0;            // that they took; of steps with others its rows' share
  bool failed = false;           // std::bad_alloc: it drafts nothing any more
};

class DraftSteps {
 public:
  // `most`: tasks at once. Throws std::bad_alloc.
  explicit DraftSteps(size_t most);
  DraftSteps(const DraftSteps&) = delete;
  DraftSteps& operator=(const DraftSteps&) = delete;

  // Tasks of different drafters. Allocates nothing but what drafters do; what one of them cannot have costs its guesses alone.
  void Make(std::span<DraftTask> tasks);
  // Steps of all models that were made so far.
  size_t num_steps() const { return num_steps_; }

 private:
  // The next step, of the first of active_ and of all that share its model; those that are done leave. False: interrupted.
  bool Step();

  std::vector<DraftTask*> active_;  // that take steps and are not done
  std::vector<StepSequence> step_;
  std::vector<DraftTask*> stepping_;  // of step_
  SequentialExecutor::RowSink sink_;
  size_t num_steps_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_DRAFT_STEPS_H_
