// Drafting by a draft head (EAGLE, arXiv:2401.15077; EAGLE-3, arXiv:2503.01840; MTP), which reads features of the target.
//
// The engine hands it the features of all committed rows (AddFeature). The head's row of position p reads id p + 1 beside feature p, so
// the last feature waits for the next id. Up to kKept rows wait until a draft is wanted or one more comes, then run once. Draft rows
// follow them: each reads the feature that the head made of the row before. No draft row stays in the head's state.
//
// The head's state begins with the first row whose feature it has. It starts over with the waiting rows if its context or memory is full,
// and with the next feature if some are missing. Recomputed rows of a preempted request bring their features again; rows read back with
// the target's state do not.
#ifndef TIDEMILL_RUNTIME_EAGLE_DRAFTER_H_
#define TIDEMILL_RUNTIME_EAGLE_DRAFTER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/isa.h"
#include "base/thread_pool.h"
#include "decoding/draft_builder.h"
#include "engine/step_executor.h"
#include "kernels/execution_context.h"
#include "models/language_model.h"
#include "runtime/draft_state.h"
#include "runtime/draft_steps.h"
#include "state/sequence_state.h"
#include "tensor/matrix.h"
#include "tidemill/result.h"

namespace tidemill {

// A draft head's buffers, shared by all drafters of an engine.
class EagleHead {
 public:
  // Borrows both. `target_rows`: of a step of the target, at most. `max_sequences`: that draft together.
  static Result<std::unique_ptr<EagleHead>> Create(const LanguageModel& head, Isa isa, ThreadPool& threads,
                                                   size_t target_rows, size_t max_sequences);

  const LanguageModel& model() const { return model_; }
  // Where a step of the target leaves its rows' features.
  const StepFeatures& target_features() const { return target_features_; }

  StepExecutor& executor() { return *executor_; }
  uint64_t work_bytes() const { return executor_->work_bytes() + memory_.size(); }
  // Where a step of the head leaves its rows' features until the next: [rows, hidden].
  const StepFeatures& own_features() const { return own_features_; }

 private:
  EagleHead(const LanguageModel& model, ExecutionContext ctx) : model_(model), ctx_(std::move(ctx)) {}

  const LanguageModel& model_;
  ExecutionContext ctx_;
  std::unique_ptr<StepExecutor> executor_;
  AlignedBuffer memory_;
  StepFeatures target_features_, own_features_;
};

class EagleDrafter : public StepDrafter {
 public:
  static constexpr size_t kKept = 64;  // features that wait, at most

  // All that is borrowed outlives it.
  struct Options {
    EagleHead* head = nullptr;
    size_t context = 0;  // ids that the sequence may have
    StateMemory* memory = nullptr;
    const std::atomic<bool>* interrupt = nullptr;  // ends drafting early; may be null
    DraftTreeKind tree = DraftTreeKind::kChain;
    DraftChoice::Options choice = {};  // choice.target_ids: the head's
  };

  // `state`: of the head. Throws std::bad_alloc.
  EagleDrafter(const Options& options, std::unique_ptr<SequenceState> state);

  void Append(int32_t id) override;
  bool reads_text() const override { return true; }
  bool reads_features() const override { return true; }
  void AddFeature(size_t position, std::span<const float> feature) override;
  void Release() override;
  void HoldFeatures() override {
    if (!stopped_) (void)HasMemory();
  }
  uint64_t feature_bytes() const override { return stopped_ ? 0 : num_floats() * sizeof(float); }
  uint64_t held_feature_bytes() const override { return counted_.bytes(); }
  DraftOrder draft_order() const override { return builder_.order(); }
  std::string_view trouble() const override { return trouble_; }

  DraftForward forward() const override {
    return {.executor = &options_.head->executor(),
            .features = &options_.head->own_features(),
            .interrupt = options_.interrupt};
  }
  // Nothing is drafted unless a feature came since the last time: the step was abandoned.
  void Begin(size_t num_draft_tokens) override;
  DraftNext Next(size_t rows, StepSequence* step) override;
  void Choose(size_t row, std::span<float> logits) override;
  void Ran(size_t first_row) override;
  DraftTree End() override;

  uint64_t state_bytes() const override { return state_.bytes(); }
  void ReleaseState() override { BeginAt(0); }
  void ForEachBlock(const LayerState::BlockVisitor& visit) const override {
    state_->ForEachBlock(visit);
    visit(this, counted_.bytes());
  }

 private:
  enum class Stage { kKept, kChain, kTree, kDone };

  size_t num_floats() const;  // of memory_
  // Memory for features, from the first one on; false: none.
  bool HasMemory();
  // The position of the next feature.
  size_t next_position() const { return first_ + state_->length() + num_kept_; }
  // Clears the state: the next feature is that of `position`.
  void BeginAt(size_t position);
  // A step of the waiting rows, if they fit.
  DraftNext NextOfKept(Wanted wanted, StepSequence* step);
  bool MakeRoomForKept();
  void TakeKept(size_t first_row);  // after they ran
  // A chain adds a row for each draft token and rolls all of them back.
  DraftNext NextOfChain(StepSequence* step);
  // A step that computes what follows a depth's nodes, as many as fit.
  DraftNext NextOfTree(size_t rows, StepSequence* step);
  DraftNext Done();
  // The row of asked_ with the feature that a child of the node reads.
  size_t PlaceBehind(int32_t node) const;
  void Stop(std::string_view why);

  Options options_;
  DraftState state_;  // row i: id first_ + i + 1 beside feature first_ + i
  size_t first_ = 0;
  std::vector<int32_t> ids_;             // the sequence
  size_t max_kept_ = 0, max_asked_ = 0;  // waiting features, run nodes of a tree
  AlignedBuffer memory_;                 // none before the first feature, nor while the request waits
  LedgerEntry counted_;                  // of it
  Matrix<float> kept_;                   // [max_kept_, width of the target's features] of the waiting rows
  // [1 + max_asked_, hidden] the head's own, of its last row and of run nodes
  Matrix<float> asked_;
  Matrix<float> read_;  // [max_asked_, hidden] of the rows of a depth
  size_t num_kept_ = 0;
  Stage stage_ = Stage::kDone;  // what the next step is of
  bool has_text_ = false;       // the waiting rows ran
  size_t length_ = 0;           // of the state then
  std::vector<RowKey> keys_;
  DraftBuilder builder_;
  std::vector<int32_t> asked_nodes_;  // of asked_, after its first row
  bool stopped_ = false;
  std::string_view trouble_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_EAGLE_DRAFTER_H_
