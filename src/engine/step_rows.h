// The rows of a step: from tokens to the residual stream that layers read, and from there to what the rows want.
//
//   Prepare: embedding, positions, rope angles  ->  (cells run on buffers())  ->  Finish: final norm and head of wanted rows
#ifndef TIDEMILL_ENGINE_STEP_ROWS_H_
#define TIDEMILL_ENGINE_STEP_ROWS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/execution_context.h"
#include "models/language_model.h"
#include "state/cell.h"
#include "tidemill/result.h"

namespace tidemill {

enum class Wanted : uint8_t { kNothing, kLast, kAll };

// One sequence's next rows, of token ids or embeddings, and which of them want logits or hidden states. A sequence may have several in one
// step, one after the other: chunks of a prompt, whose later rows need the earlier ones' keys.
struct StepSequence {
  SequenceState* state = nullptr;        // has reserved the rows
  std::span<const int32_t> tokens = {};  // each < vocab_size; or none, with embeddings
  Wanted rows = Wanted::kNothing;
  RowWant want = RowWant::kLogits;
  // [tokens] of a draft tree: token i follows token parents[i] < i of the step; -1: the state. Its logits are those of that path alone,
  // bit for bit. CommitPath commits one path. Empty: a chain.
  std::span<const int32_t> parents = {};
  size_t num_last = 1;  // of kLast: how many last rows, at least 1
  // Inputs of a draft head (LanguageModel::features): the target's [tokens, width], or its own [tokens, hidden]. A row with the token of
  // position i + 1 reads the feature of position i, so the head's state begins with the sequence's second token.
  ConstMatrix<float> features = {};
  size_t slot = 0;  // of the first row, within what the state has reserved
  // Rows whose input is no token's: [rows, embedding width], as they are, without embedding_scale. The model is no draft head.
  ConstMatrix<float> embeddings = {};
  // [rows] in the text, which rope and learned positions read; empty: they follow the state's length. What rows see goes by their place
  // in the state.
  std::span<const uint32_t> positions = {};
  Visibility visibility = Visibility::kCausal;
  size_t sparse_from = SIZE_MAX;  // the first position whose row is sparse, in layers that can be
  bool ends_segment = false;      // SequenceRows::ends_segment: embeddings are the model's memory rows

  size_t num_rows() const { return embeddings.rows != 0 ? embeddings.rows : tokens.size(); }
};

// Hidden features of a step's rows, for draft heads.
struct StepFeatures {
  // i: the residual stream before layer i; num_layers: before the final norm; num_layers + 1: after it.
  std::span<const size_t> taps;
  Matrix<float> out;  // [at least the step's rows, taps * hidden], tap after tap
};

class StepRows {
  struct WantedRow {
    uint32_t row, sequence, token;
    RowWant want;
  };

 public:
  // Rows whose logits are computed together; bounds their memory.
  static constexpr size_t kHeadRows = 32;
  // A product whose rows lie apart reads its weights once for each run of them, which takes as long as so many rows more.
  static constexpr size_t kFewestApart = 16;

  // Called for each wanted row in ascending order: indices of sequence and token, and logits [rows of the head] or hidden [hidden]. The
  // callee may change the values, which are valid during the call. Finish returns false if the context stops (ExecutionContext::Interruptible).
  using RowSink = std::function<void(size_t sequence, size_t token, std::span<float> values)>;

  // Borrows model and context. max_rows: of one step. Allocates all memory that steps need.
  static Result<StepRows> Create(const LanguageModel& model, ExecutionContext& ctx, size_t max_rows);

  // Its work_bytes(), before it is there.
  static uint64_t Bytes(const LanguageModel& model, Isa isa, size_t max_rows);

  const LanguageModel& model() const { return *model_; }
  ExecutionContext& ctx() const { return *ctx_; }
  StepBuffers& buffers() { return buffers_; }
  size_t max_rows() const { return buffers_.max_rows(); }
  const StepCounts& counts() const { return buffers_.counts; }
  uint64_t work_bytes() const { return buffer_bytes_; }

  // Rows that are prepared together and finished together. They lie side by side in their order.
  class Part {
   public:
    void Reserve(size_t sequences, size_t rows) {  // so that no Prepare of so many allocates
      sequences_.reserve(sequences);
      outputs_.reserve(sequences);
      wanted_.reserve(rows);
    }
    size_t first_row() const { return first_row_; }
    size_t num_rows() const { return num_rows_; }
    std::span<const SequenceRows> sequences() const { return sequences_; }
    // Cell::outputs: rows that want something, and memory rows. Fewer than kFewestApart rows between them are among them.
    std::span<const SequenceRows> outputs() const {
      return all_are_outputs_ ? std::span<const SequenceRows>() : std::span(outputs_);
    }
    // All rows in a layer. `is_last`: only outputs are read behind it.
    Cell InLayer(size_t layer, bool is_last) const {
      return {.layer = layer,
              .first_row = first_row_,
              .num_rows = num_rows_,
              .sequences = sequences_,
              .outputs = is_last ? outputs() : std::span<const SequenceRows>()};
    }

   private:
    friend class StepRows;
    size_t first_row_ = 0, num_rows_ = 0;
    std::vector<SequenceRows> sequences_, outputs_;  // as many
    bool all_are_outputs_ = true;
    std::vector<WantedRow> wanted_;
  };

  // From `first_row` of the buffers on, where no other part's rows are in use.
  void Prepare(std::span<const StepSequence> sequences, size_t first_row, Part* part);
  bool Finish(const Part& part, const RowSink& sink);

  // Of a step that is one part.
  size_t num_rows() const { return whole_.num_rows(); }
  std::span<const SequenceRows> sequences() const { return whole_.sequences(); }
  const Part& whole() const { return whole_; }
  void Prepare(std::span<const StepSequence> sequences) { Prepare(sequences, 0, &whole_); }

  // The residual stream of all rows as it is now, at tap `tap` of the features.
  void TakeFeatures(const StepFeatures& features, size_t tap);

  bool Finish(const RowSink& sink) { return Finish(whole_, sink); }

 private:
  StepRows(const LanguageModel& model, ExecutionContext& ctx) : model_(&model), ctx_(&ctx) {}

  void PlaceRows(std::span<const StepSequence> sequences, Part& part);
  static void FindOutputs(std::span<const StepSequence> sequences, Part& part);
  void CopyEmbeddings(std::span<const StepSequence> sequences, const Part& part, Matrix<float> x);
  void AddPositions(const Part& part);
  void ReadFeatures(std::span<const StepSequence> sequences, const Part& part);
  void CarryMemory(const Part& part);
  void RunHead(std::span<const WantedRow> rows, const RowSink& sink);

  const LanguageModel* model_;
  ExecutionContext* ctx_;
  uint64_t buffer_bytes_ = 0;
  StepBuffers buffers_;
  StepBuffers head_buffers_;     // kHeadRows rows: x gathers the wanted rows
  AlignedBuffer logits_memory_;  // [kHeadRows, at least the head's rows]
  AlignedBuffer narrow_memory_;
  Matrix<float> narrow_;  // [max_rows, embedding width] where that is not the layers' width
  AlignedBuffer wide_memory_;
  Matrix<float> wide_;  // [max_rows, width of the target's features] where the model fuses those alone
  Part whole_;
};

}  // namespace tidemill

#endif  // TIDEMILL_ENGINE_STEP_ROWS_H_
