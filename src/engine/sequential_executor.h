// Runs steps of a decoder stack layer by layer, one cell with all sequences' rows for each layer.
//
//   embed rows -> for each layer: one cell -> final norm and head for wanted rows -> (the caller commits)
//
// Prompt chunks, single tokens and draft trees may share a step. A row's bits depend on its own sequence only.
#ifndef TIDEMILL_ENGINE_SEQUENTIAL_EXECUTOR_H_
#define TIDEMILL_ENGINE_SEQUENTIAL_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/execution_context.h"
#include "models/language_model.h"
#include "state/cell.h"
#include "tidemill/result.h"

namespace tidemill {

enum class Wanted : uint8_t { kNothing, kLast, kAll };

// One sequence's next tokens, and which of them want logits or hidden states.
struct StepSequence {
  SequenceState* state = nullptr;   // has reserved the tokens
  std::span<const int32_t> tokens;  // each < vocab_size
  Wanted rows = Wanted::kNothing;
  RowWant want = RowWant::kLogits;
  // [tokens] of a draft tree: token i follows token parents[i] < i of the step; -1: the state. Its logits are those of that path alone,
  // bit for bit. CommitPath commits one path. Empty: a chain.
  std::span<const int32_t> parents = {};
  size_t num_last = 1;  // of kLast: how many last rows, at least 1
  // Inputs of a draft head (LanguageModel::features): the target's [tokens, width], or its own [tokens, hidden]. A row with the token of
  // position i + 1 reads the feature of position i, so the head's state begins with the sequence's second token.
  ConstMatrix<float> features = {};
};

// Hidden features of a step's rows, for draft heads.
struct StepFeatures {
  // i: the residual stream before layer i; num_layers: before the final norm; num_layers + 1: after it.
  std::span<const size_t> taps;
  Matrix<float> out;  // [at least the step's rows, taps * hidden], tap after tap
};

class SequentialExecutor {
 public:
  // Rows whose logits are computed together; bounds their memory.
  static constexpr size_t kHeadRows = 32;

  // Borrows model and context. max_rows: of one step. Allocates all memory that steps need.
  static Result<std::unique_ptr<SequentialExecutor>> Create(const LanguageModel& model, ExecutionContext& ctx,
                                                            size_t max_rows);

  size_t max_rows() const { return buffers_.max_rows(); }
  uint64_t work_bytes() const;  // what Create took, and the context's scratch

  // Called for each wanted row in ascending order: indices of sequence and token, and logits [rows of the head] or hidden [hidden]. The
  // callee may change the values, which are valid during the call.
  using RowSink = std::function<void(size_t sequence, size_t token, std::span<float> values)>;

  // Runs the step; commits nothing, allocates nothing. False: `interrupt` (may be null) became true, and nothing counts.
  // num_layers: only the first ones, at least one, then the model's norm and head (early exit); other layers' states stay as they are.
  // features: null, or filled by a step through all layers; other results keep their bits.
  bool Run(std::span<const StepSequence> sequences, const RowSink& sink, const std::atomic<bool>* interrupt,
           size_t num_layers = SIZE_MAX, const StepFeatures* features = nullptr);

 private:
  SequentialExecutor(const LanguageModel& model, ExecutionContext& ctx) : model_(model), ctx_(ctx) {}

  void Embed(std::span<const StepSequence> sequences);
  void AddPositions(std::span<const uint32_t> positions);
  void ReadFeatures(std::span<const StepSequence> sequences, size_t rows);
  void TakeFeatures(const StepFeatures& features, size_t tap, size_t rows);
  struct WantedRow {
    uint32_t row, sequence, token;
    RowWant want;
  };
  void RunHead(std::span<const WantedRow> rows, const RowSink& sink);

  const LanguageModel& model_;
  ExecutionContext& ctx_;
  uint64_t buffer_bytes_ = 0;
  StepBuffers buffers_;
  StepBuffers head_buffers_;     // kHeadRows rows: x gathers the wanted rows
  AlignedBuffer logits_memory_;  // [kHeadRows, at least the head's rows]
  AlignedBuffer narrow_memory_;
  Matrix<float> narrow_;  // [max_rows, embedding width] where that is not the layers' width
  AlignedBuffer wide_memory_;
  Matrix<float> wide_;  // [max_rows, width of the target's features] where the model fuses those alone
  std::vector<SequenceRows> sequence_rows_;
  std::vector<WantedRow> wanted_;
};

}  // namespace tidemill

#endif  // TIDEMILL_ENGINE_SEQUENTIAL_EXECUTOR_H_
