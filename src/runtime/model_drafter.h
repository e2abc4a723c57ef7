// Guesses by a smaller model with the same vocabulary.
//
// It keeps a state of its own for each request. The next guesses begin where that state and the sequence agree: it is rolled back to
// there, runs the tokens that it has not seen, and then its own most likely ones, one by one. A tree grows a level at a time: each level
// is one step that runs its nodes and their ancestors as rows behind the state, where each sees its ancestors only. None is committed.
//
// A model with a mask token (PARD, arXiv:2504.18583) makes all guesses of a chain in one step instead: g - 1 mask tokens run behind the
// sequence, and its last row and theirs are the g guesses. The masks are never committed, so that the state holds the sequence alone.
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
#include "decoding/guess_builder.h"
#include "engine/sequential_executor.h"
#include "kernels/execution_context.h"
#include "models/language_model.h"
#include "runtime/draft_state.h"
#include "runtime/draft_steps.h"
#include "state/sequence_state.h"
#include "tidemill/result.h"

namespace tidemill {

// A draft model's buffers, once for an engine: its drafters run together, between the steps.
class DraftModel {
 public:
  // Borrows model and threads. `most_sequences`: that guess at once.
  static Result<std::unique_ptr<DraftModel>> Create(const LanguageModel& model, Isa isa, ThreadPool& threads,
                                                    size_t most_sequences);

  const LanguageModel& model() const { return model_; }
  SequentialExecutor& executor() { return *executor_; }

 private:
  DraftModel(const LanguageModel& model, ExecutionContext ctx) : model_(model), ctx_(std::move(ctx)) {}

  const LanguageModel& model_;
  ExecutionContext ctx_;
  std::unique_ptr<SequentialExecutor> executor_;
};

class ModelDrafter : public StepDrafter {
 public:
  // All that is borrowed outlives it.
  struct Options {
    const LanguageModel* model = nullptr;
    SequentialExecutor* executor = nullptr;  // of that model
    DraftMemory* memory = nullptr;
    const std::atomic<bool>* interrupt = nullptr;  // ends guessing early; may be null
    // A chain's guesses at once, in the rows of this token, which is guesses.never.
    std::optional<int32_t> mask_token = std::nullopt;
    DraftTreeKind tree = DraftTreeKind::kChain;  // anything else: guesses.drawn_as is null
    DraftChoice::Options guesses = {};           // the model may have fewer ids than guesses.vocab_size
  };

  // Throws std::bad_alloc.
  ModelDrafter(const Options& options, std::unique_ptr<SequenceState> state);

  void Append(int32_t id) override;
  bool reads_text() const override { return true; }
  void Release() override;
  GuessOrder guess_order() const override { return guesses_.order(); }
  std::string_view trouble() const override { return trouble_; }

  DraftForward forward() const override { return {.executor = options_.executor, .interrupt = options_.interrupt}; }
  void Begin(size_t most) override;
  // Of a long text that is new to it, it runs a part in each draft and guesses nothing until it is through.
  DraftNext Next(size_t rows, StepSequence* step) override;
  void Choose(size_t row, std::span<float> logits) override;
  void Ran(size_t first_row) override;
  DraftTree End() override;

 private:
  enum class Stage { kText, kChain, kTree, kDone };

  void StepBack();
  DraftNext NextOfText(size_t rows, StepSequence* step);
  // A step of ids behind what the state has, and so many masks that do not stay.
  DraftNext NextOf(std::span<const int32_t> ids, Wanted wanted, size_t masks, StepSequence* step);
  // A step that asks what follows the nodes of the level, as many as the state has room for.
  DraftNext NextOfTree(size_t rows, StepSequence* step);
  bool MakeRoom(size_t rows);
  DraftNext Done();
  void Stop(std::string_view why);

  Options options_;
  DraftState state_;
  std::vector<int32_t> ids_;  // the sequence, as far as the state's context goes
  std::vector<int32_t> ran_;  // what the state holds
  size_t agreed_ = 0;         // leading ids that are the same in both
  GuessBuilder guesses_;
  size_t most_ = 0;
  Stage stage_ = Stage::kDone;        // what the next step is of
  size_t num_caught_up_ = 0;          // ids that ran since Begin without being asked what follows
  bool is_part_ = false;              // of the text, without its end
  bool has_text_ = false;             // all of it ran
  std::span<const int32_t> running_;  // the step's ids that stay
  std::vector<RowKey> keys_;
  std::vector<int32_t> masked_;  // the ids of a step and the masks behind them
  bool stopped_ = false;
  std::string_view trouble_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_MODEL_DRAFTER_H_
