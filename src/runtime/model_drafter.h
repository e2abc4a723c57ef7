// Guesses by a smaller model: another one with the same vocabulary, or the first layers of the model itself.
//
// It keeps a state of its own for each request. The next guesses begin where that state and the sequence agree: it is rolled back to
// there, runs the tokens that it has not seen, and then its own most likely ones, one by one.
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
#include "decoding/drafter.h"
#include "decoding/random.h"
#include "decoding/sampler.h"
#include "engine/sequential_executor.h"
#include "kernels/execution_context.h"
#include "models/language_model.h"
#include "state/sequence_state.h"
#include "tidemill/generation.h"
#include "tidemill/result.h"

namespace tidemill {

// A draft model's buffers, once for an engine: its drafters run one after another, between the steps.
class DraftModel {
 public:
  // Borrows model and threads.
  static Result<std::unique_ptr<DraftModel>> Create(const LanguageModel& model, Isa isa, ThreadPool& threads);

  const LanguageModel& model() const { return model_; }
  SequentialExecutor& executor() { return *executor_; }

 private:
  DraftModel(const LanguageModel& model, ExecutionContext ctx) : model_(model), ctx_(std::move(ctx)) {}

  const LanguageModel& model_;
  ExecutionContext ctx_;
  std::unique_ptr<SequentialExecutor> executor_;
};

// Bytes of the states of all drafters of an engine.
struct DraftMemory {
  uint64_t limit = 0, held = 0;
};

class ModelDrafter : public Drafter {
 public:
  // All that is borrowed outlives it.
  struct Options {
    const LanguageModel* model = nullptr;
    SequentialExecutor* executor = nullptr;  // of that model
    size_t num_layers = SIZE_MAX;            // that run, and that the state has
    Isa isa = Isa::kBaseline;
    size_t most = 0;        // guesses at once
    size_t vocab_size = 0;  // only ids below it are guessed; the model may have fewer
    float least_probability = 0;
    DraftMemory* memory = nullptr;
    const std::atomic<bool>* interrupt = nullptr;  // ends guessing early; may be null
    // Guesses are drawn, as temperature, top_k, top_p, min_p and seed of these say: what the residual rule wants. Null: the most likely.
    const GenerationOptions* drawn_as = nullptr;
  };

  // Throws std::bad_alloc.
  ModelDrafter(const Options& options, std::unique_ptr<SequenceState> state);
  ~ModelDrafter() override;

  void Append(int32_t id) override;
  // Of a long text that is new to it, it runs a part each time and guesses nothing until it is through.
  DraftTree Propose(size_t most) override;
  void Release() override;
  std::string_view trouble() const override { return trouble_; }

 private:
  void StepBack();
  // Runs ids behind what the state has; false where that cannot be, or not now.
  bool Run(std::span<const int32_t> ids, Wanted wanted);
  void Choose(std::span<float> logits);
  int32_t Draw(std::span<float> logits);
  void CountMemory();
  void Stop(std::string_view why);

  Options options_;
  std::unique_ptr<SequenceState> state_;
  uint64_t held_ = 0;         // counted for the state
  std::vector<int32_t> ids_;  // the sequence, as far as the state's context goes
  std::vector<int32_t> ran_;  // what the state holds
  size_t agreed_ = 0;         // leading ids that are the same in both
  std::vector<int32_t> proposed_;
  std::optional<Sampler> sampler_;  // where guesses are drawn
  RandomStream stream_;
  std::vector<std::vector<TokenProbability>> drawn_from_;  // of proposed_
  std::vector<RowKey> keys_;
  std::vector<float> chunk_max_;
  std::vector<double> chunk_sum_;
  std::optional<int32_t> next_;  // what the last logits say; none: nothing that is likely enough
  SequentialExecutor::RowSink sink_;
  bool stopped_ = false;
  std::string_view trouble_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_MODEL_DRAFTER_H_
