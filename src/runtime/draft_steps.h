// Drafts for all sequences of a step. Drafters of one model share its steps: k draft tokens for n sequences read its weights k times, not
// n k times. A row's bits do not depend on its batch mates, nor do drafts. A drafter that needs fewer steps drops out.
#ifndef TIDEMILL_RUNTIME_DRAFT_STEPS_H_
#define TIDEMILL_RUNTIME_DRAFT_STEPS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "decoding/draft_tree.h"
#include "decoding/drafter.h"
#include "engine/step_executor.h"

namespace tidemill {

// Rows of a sequence in a shared draft's first step: the new tokens, usually an accepted draft token and the one sampled after it.
inline constexpr size_t kDraftRowsOfSequence = 2;

// Ids that a drafter reserves; longer contexts grow now and then.
inline constexpr size_t kReservedDraftIds = size_t{1} << 20;

// What a drafter's steps run on. All that is borrowed outlives it.
struct DraftForward {
  StepExecutor* executor = nullptr;
  size_t num_layers = SIZE_MAX;
  const StepFeatures* features = nullptr;        // of a draft head: where a step leaves its rows' features
  const std::atomic<bool>* interrupt = nullptr;  // ends drafting early; may be null

  // Their rows may share a step.
  bool IsSame(const DraftForward& other) const { return executor == other.executor && num_layers == other.num_layers; }
};

enum class DraftNext : uint8_t {
  kStep,
  kWait,  // the step needs more rows
  kDone,  // the draft is made, or cannot be
};

// A drafter that takes steps of a model: Propose in parts, so that drafters of several sequences share the steps.
//
//   Begin(most) -> while Next(..) is kStep: the step runs, Choose for each of its wanted rows in their order, Ran -> End()
//
// End may come early and returns the draft so far. Each may throw std::bad_alloc: then it never drafts again.
class StepDrafter : public Drafter {
 public:
  // The same drafter; null: it takes no steps.
  static StepDrafter* Of(Drafter* drafter) { return dynamic_cast<StepDrafter*>(drafter); }

  virtual DraftForward forward() const = 0;  // constant

  virtual void Begin(size_t num_draft_tokens) = 0;
  // A step of at most `rows` rows, which the state has reserved. Never kWait with as many as the executor has.
  virtual DraftNext Next(size_t rows, StepSequence* step) = 0;
  virtual void Choose(size_t row, std::span<float> logits) = 0;
  // The step ran; its first row was this one of DraftForward::features.
  virtual void Ran(size_t first_row) = 0;
  virtual DraftTree End() = 0;  // as Propose

  // Its own state's, which ReleaseState gives back. It is made again where there is room.
  virtual uint64_t state_bytes() const { return 0; }
  virtual void ReleaseState() {}
  // Its own state, of the sequence's first ids; null: none that another drafter of its kind could continue.
  virtual SequenceState* KnownState() { return nullptr; }
  // That, for good: it never drafts again.
  virtual std::unique_ptr<SequenceState> TakeState() { return nullptr; }
  // Before it drafts: its first `length` ids, at most, come from such a state. Without memory it changes nothing.
  virtual void Continue(SequenceState&, size_t) {}
  virtual void ForEachBlock(const LayerState::BlockVisitor&) const {}  // what the ledger counts of it

  DraftTree Propose(size_t num_draft_tokens) final;  // alone
};

// One sequence's draft: what is wanted, and the result.
struct DraftTask {
  Drafter* drafter = nullptr;
  StepDrafter* steps = nullptr;  // StepDrafter::Of it
  size_t num_draft_tokens = 0;   // nodes
  DraftTree draft_tokens = {};   // valid until the drafter's next
  double seconds = 0;            // of making them; of shared steps in proportion to rows
  bool failed = false;           // std::bad_alloc: it never drafts again
};

class DraftSteps {
 public:
  // `num_draft_tokens`: tasks of one call. Throws std::bad_alloc.
  explicit DraftSteps(size_t max_tasks);
  DraftSteps(const DraftSteps&) = delete;
  DraftSteps& operator=(const DraftSteps&) = delete;

  // Tasks of different drafters. Only drafters allocate; a failure costs only that drafter's tokens.
  void Make(std::span<DraftTask> tasks);
  // Steps of all draft models so far.
  size_t num_steps() const { return num_steps_; }

 private:
  // The next step, of the first of active_ and all that share its model. Removes those that are done. False: interrupted.
  bool Step();

  std::vector<DraftTask*> active_;  // not done
  std::vector<StepSequence> step_;
  std::vector<DraftTask*> stepping_;  // of step_
  StepExecutor::RowSink sink_;
  size_t num_steps_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_DRAFT_STEPS_H_
