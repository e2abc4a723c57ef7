// Drafting by layers of the model itself: the first ones, an early exit through its own norm and head, or all of them with sparse attention.
//
// They run in the request's own state, in unused capacity: rows of the last sampled token and of the draft tokens. None is committed; the
// verifying step writes the same rows again in all layers. So there is no draft prefill and no own memory. A chain runs each draft token once:
// what its steps wrote stays for the next ones. In a tree, and with linear attention, a step has the last sampled token and all earlier draft
// tokens again, 1, 2, ... g rows for g draft tokens of a chain.
#ifndef TIDEMILL_RUNTIME_LAYERS_DRAFTER_H_
#define TIDEMILL_RUNTIME_LAYERS_DRAFTER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "decoding/draft_builder.h"
#include "engine/step_executor.h"
#include "models/language_model.h"
#include "runtime/draft_steps.h"
#include "state/sequence_state.h"
#include "tidemill/engine.h"

namespace tidemill {

class LayersDrafter : public StepDrafter {
 public:
  // All that is borrowed outlives it.
  struct Options {
    StepExecutor* executor = nullptr;  // of the model
    size_t num_layers = 1;             // that run
    bool is_sparse = false;            // their attention, in layers whose form says so
    bool keeps_rows = false;           // KeepsRows of the model
    SequenceState* state = nullptr;    // of the request; draft tokens are made where it lacks the last id alone
    const std::atomic<bool>* interrupt = nullptr;  // ends drafting early; may be null
    DraftTreeKind tree = DraftTreeKind::kChain;
    DraftChoice::Options choice = {};
  };

  // Whether what a step of a chain wrote stays for the next one.
  static bool KeepsRows(const LanguageModel& model) { return !model.delta_shape(); }

  // Throws std::bad_alloc.
  explicit LayersDrafter(const Options& options);

  void Append(int32_t id) override { ids_.push_back(id); }
  std::string_view trouble() const override { return trouble_; }
  DraftOrder draft_order() const override { return builder_.order(); }
  DraftForward forward() const override {
    return {.executor = options_.executor, .num_layers = options_.num_layers, .interrupt = options_.interrupt};
  }
  void Begin(size_t num_draft_tokens) override;
  DraftNext Next(size_t rows, StepSequence* step) override;
  void Choose(size_t row, std::span<float> logits) override;
  void Ran(size_t first_row) override;
  DraftTree End() override;

 private:
  // Rows of the state's unused capacity for drafting.
  size_t UnusedRows(size_t max_rows) const;

  Options options_;
  std::vector<int32_t> ids_;  // the sequence
  DraftBuilder builder_;
  bool had_unused_ = false;  // a draft token fitted once
  std::string_view trouble_;
  size_t num_rows_ = 0;                // of a chain: reserved
  bool goes_on_ = false;               // there is another step
  bool was_asked_ = false;             // a step computed what follows the last sampled token
  std::vector<int32_t> rows_ids_;      // of a step
  std::vector<int32_t> rows_parents_;  // of a step of a tree
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_LAYERS_DRAFTER_H_
