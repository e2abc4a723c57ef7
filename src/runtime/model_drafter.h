// Drafting by a smaller model with the same vocabulary.
//
// It has its own state for each request. A draft rolls that state back to where it agrees with the sequence, runs the new tokens, then its
// own most likely ones, one by one. A tree takes a step for each depth, of its nodes and their ancestors; each row sees its ancestors only.
// None is committed.
//
// A model with a mask token (PARD, arXiv:2504.18583) drafts a chain of g in one step instead, from the sequence's last row and g - 1 mask
// tokens after it. The masks are never committed.
#ifndef TIDEMILL_RUNTIME_MODEL_DRAFTER_H_
#define TIDEMILL_RUNTIME_MODEL_DRAFTER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/isa.h"
#include "base/thread_pool.h"
#include "decoding/draft_builder.h"
#include "engine/step_executor.h"
#include "kernels/execution_context.h"
#include "models/language_model.h"
#include "runtime/draft_state.h"
#include "runtime/draft_steps.h"
#include "state/sequence_state.h"
#include "tidemill/result.h"

namespace tidemill {

// A draft model's buffers, shared by all drafters of an engine.
class DraftModel {
 public:
  // Borrows model and threads. `max_sequences`: that draft together.
  static Result<std::unique_ptr<DraftModel>> Create(const LanguageModel& model, Isa isa, ThreadPool& threads,
                                                    size_t max_sequences);

  const LanguageModel& model() const { return model_; }
  StepExecutor& executor() { return *executor_; }

 private:
  DraftModel(const LanguageModel& model, ExecutionContext ctx) : model_(model), ctx_(std::move(ctx)) {}

  const LanguageModel& model_;
  ExecutionContext ctx_;
  std::unique_ptr<StepExecutor> executor_;
};

class ModelDrafter : public StepDrafter {
 public:
  // All that is borrowed outlives it.
  struct Options {
    const LanguageModel* model = nullptr;
    StepExecutor* executor = nullptr;  // of that model
    StateMemory* memory = nullptr;
    const std::atomic<bool>* interrupt = nullptr;  // ends drafting early; may be null
    // Drafts a chain at once, in the rows of this token, which is choice.never.
    std::optional<int32_t> mask_token = std::nullopt;
    DraftTreeKind tree = DraftTreeKind::kChain;
    DraftChoice::Options choice = {};  // the model may have fewer ids than choice.vocab_size
  };

  // Throws std::bad_alloc.
  ModelDrafter(const Options& options, std::unique_ptr<SequenceState> state);

  void Append(int32_t id) override;
  bool reads_text() const override { return true; }
  void Release() override;
  DraftOrder draft_order() const override { return builder_.order(); }
  std::string_view trouble() const override { return trouble_; }

  DraftForward forward() const override { return {.executor = options_.executor, .interrupt = options_.interrupt}; }
  void Begin(size_t num_draft_tokens) override;
  // Runs a part of a long new text in each draft, and drafts nothing until all of it ran.
  DraftNext Next(size_t rows, StepSequence* step) override;
  void Choose(size_t row, std::span<float> logits) override;
  void Ran(size_t first_row) override;
  DraftTree End() override;

  uint64_t state_bytes() const override { return state_.bytes(); }
  void ReleaseState() override { Release(); }
  SequenceState* KnownState() override;
  std::unique_ptr<SequenceState> TakeState() override;
  void Continue(SequenceState& from, size_t length) override;
  void ForEachBlock(const LayerState::BlockVisitor& visit) const override {
    if (state_.get() != nullptr) state_->ForEachBlock(visit);
  }

 private:
  enum class Stage { kText, kChain, kTree, kDone };

  void StepBack();
  DraftNext NextOfText(size_t rows, StepSequence* step);
  // A step of ids after the state, and so many masks that are not committed; of `all` ids, for which there must be room.
  DraftNext NextOf(std::span<const int32_t> ids, Wanted wanted, size_t masks, StepSequence* step, size_t all = 0);
  // A step that computes what follows a depth's nodes, as many as fit.
  DraftNext NextOfTree(size_t rows, StepSequence* step);
  bool MakeRoom(size_t rows, size_t all);
  DraftNext Done();
  void Stop(std::string_view why);

  Options options_;
  DraftState state_;
  std::vector<int32_t> ids_;  // the sequence, as far as the state's context goes
  std::vector<int32_t> ran_;  // what the state holds
  size_t agreed_ = 0;         // equal leading ids of both
  DraftBuilder builder_;
  size_t max_ = 0;
  Stage stage_ = Stage::kDone;        // what the next step is of
  size_t num_caught_up_ = 0;          // ids that ran since Begin without wanted logits
  bool is_part_ = false;              // of the text, without its end
  bool has_text_ = false;             // all of it ran
  std::span<const int32_t> running_;  // the step's ids to commit
  std::vector<RowKey> keys_;
  std::vector<int32_t> masked_;  // a step's ids and the masks after them
  bool stopped_ = false;
  std::string_view trouble_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_MODEL_DRAFTER_H_
