// Runs steps of a decoder stack layer by layer: a step is L lists of one cell, each holding the rows of all its sequences.
//
//   embed rows -> for each layer: one cell -> final norm and head for the rows that want them -> (the caller commits)
//
// Any mixture of prompt chunks, single tokens and trees of drafts is the same call. Bits of a row depend on its own sequence only.
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

// What one sequence does in a step: its next tokens, and for which of them logits (or hidden states) are wanted.
struct StepSequence {
  SequenceState* state = nullptr;   // has room for the tokens
  std::span<const int32_t> tokens;  // each < vocab_size
  Wanted rows = Wanted::kNothing;
  RowWant want = RowWant::kLogits;
  // [tokens] where they are a tree of drafts: token i follows token parents[i] < i of the step, or with -1 what the state holds, and its
  // logits are those of that path alone, bit for bit. CommitPath takes up one path. Empty: each follows the one before it.
  std::span<const int32_t> parents = {};
  size_t num_last = 1;  // of kLast: so many of the last rows, at least 1
  // [tokens, width] of a model that reads them (LanguageModel::features): those of the target, or of its own rows, [tokens, hidden]. A
  // row with the token of position i + 1 reads the feature of position i: a draft head's state begins with the sequence's second token.
  ConstMatrix<float> features = {};
};

// Hidden features of all rows of a step, which draft heads read.
struct StepFeatures {
  // Where they are taken: i is the residual stream in front of layer i, num_layers in front of the final norm, num_layers + 1 behind it.
  std::span<const size_t> taps;
  Matrix<float> out;  // [at least the step's rows, taps * hidden] a row's features, tap behind tap
};

class SequentialExecutor {
 public:
  // Rows whose logits are computed together: bounds the memory for logits.
  static constexpr size_t kHeadRows = 32;

  // Borrows model and context. max_rows: the most rows of one step. Takes all memory that steps need.
  static Result<std::unique_ptr<SequentialExecutor>> Create(const LanguageModel& model, ExecutionContext& ctx,
                                                            size_t max_rows);

  size_t max_rows() const { return buffers_.max_rows(); }

  // Called for each wanted row in ascending order: index of the sequence, of the token within it, and logits [rows of the head] (or
  // hidden [hidden]), which the callee may change; valid during the call.
  using RowSink = std::function<void(size_t sequence, size_t token, std::span<float> values)>;

  // Runs the step. False when `interrupt` (may be null) became true on the way: then nothing counts. States are not committed.
  // Of the layers only the first `num_layers`, at least one: an early exit through the model's own norm and head; states of
  // the others are left alone. features: filled where it is not null, of a step through all layers; other results are the same bits.
  // Allocates nothing.
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
