#include "engine/sequential_executor.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/float_environment.h"
#include "kernels/elementwise.h"

namespace tidemill {

Result<std::unique_ptr<SequentialExecutor>> SequentialExecutor::Create(const LanguageModel& model,
                                                                       ExecutionContext& ctx, size_t max_rows) {
  std::unique_ptr<SequentialExecutor> executor(new SequentialExecutor(model, ctx));
  TIDEMILL_TRY(buffers, StepBuffers::Create(model.step_shape(), max_rows, ctx.isa()));
  executor->buffers_ = std::move(buffers);
  // The head needs the residual stream only.
  StepShape head_shape;
  head_shape.hidden = model.settings.hidden_size;
  head_shape.bfloat16_weights = model.step_shape().bfloat16_weights;
  head_shape.quantized_weights = model.step_shape().quantized_weights;
  head_shape.q8_0_weights = model.step_shape().q8_0_weights;
  const size_t head_rows = std::min(kHeadRows, max_rows);
  TIDEMILL_TRY(head_buffers, StepBuffers::Create(head_shape, head_rows, ctx.isa()));
  executor->head_buffers_ = std::move(head_buffers);
  const size_t width = model.token_embedding().cols();
  if (model.project_in.present()) {
    TIDEMILL_TRY(narrow, AlignedBuffer::Create(max_rows * width * sizeof(float)));
    executor->narrow_memory_ = std::move(narrow);
    executor->narrow_ = Matrix<float>(executor->narrow_memory_.As<float>().data(), max_rows, width);
  }
  if (model.features.present() && !model.features.fuses_tokens) {
    const size_t features = model.features.width;
    TIDEMILL_TRY(wide, AlignedBuffer::Create(max_rows * features * sizeof(float)));
    executor->wide_memory_ = std::move(wide);
    executor->wide_ = Matrix<float>(executor->wide_memory_.As<float>().data(), max_rows, features);
  }
  TIDEMILL_TRY(logits, AlignedBuffer::Create(head_rows * model.settings.vocab_size * sizeof(float)));
  executor->logits_memory_ = std::move(logits);
  executor->buffer_bytes_ = max_rows * StepBuffers::RowBytes(model.step_shape(), ctx.isa()) +
                            head_rows * StepBuffers::RowBytes(head_shape, ctx.isa()) + executor->narrow_memory_.size() +
                            executor->wide_memory_.size() + executor->logits_memory_.size();
  executor->sequence_rows_.reserve(max_rows);
  executor->wanted_.reserve(max_rows);
  return executor;
}

uint64_t SequentialExecutor::work_bytes() const {
  uint64_t bytes = buffer_bytes_ + ctx_.shared_scratch().size();
  for (size_t thread = 0; thread < ctx_.threads().num_all_threads(); ++thread) bytes += ctx_.scratch(thread).size();
  return bytes;
}

void SequentialExecutor::Embed(std::span<const StepSequence> sequences) {
  sequence_rows_.clear();
  wanted_.clear();
  size_t row = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const StepSequence& sequence = sequences[s];
    TIDEMILL_DCHECK(sequence.parents.empty() || sequence.parents.size() == sequence.tokens.size());
    sequence_rows_.push_back({sequence.state, row, sequence.tokens.size(), sequence.parents});
    const auto length = static_cast<uint32_t>(sequence.state->length());
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      const bool last = t + sequence.num_last >= sequence.tokens.size();
      if (sequence.rows == Wanted::kAll || (sequence.rows == Wanted::kLast && last)) {
        wanted_.push_back(
            {static_cast<uint32_t>(row + t), static_cast<uint32_t>(s), static_cast<uint32_t>(t), sequence.want});
      }
      uint32_t position = length + static_cast<uint32_t>(t);
      if (!sequence.parents.empty()) {
        const int32_t parent = sequence.parents[t];
        position = parent < 0 ? length : buffers_.positions[row + static_cast<size_t>(parent)] + 1;
      }
      buffers_.positions[row + t] = position;
    }
    row += sequence.tokens.size();
  }
  const bool reads_features = model_.features.present();
  const Matrix<float> x = reads_features                ? buffers_.paired.Cols(0, buffers_.x.cols)
                          : model_.project_in.present() ? narrow_
                                                        : buffers_.x;
  constexpr size_t kChunkRows = 8;
  ctx_.threads().ParallelFor((row + kChunkRows - 1) / kChunkRows, [&](size_t chunk, size_t) {
    for (const SequenceRows& rows : sequence_rows_) {
      const size_t begin = std::max(rows.first_row, chunk * kChunkRows);
      const size_t end = std::min(rows.first_row + rows.num_rows, (chunk + 1) * kChunkRows);
      const auto tokens = sequences[static_cast<size_t>(&rows - sequence_rows_.data())].tokens;
      for (size_t r = begin; r < end; ++r) {
        model_.token_embedding().CopyRow(static_cast<size_t>(tokens[r - rows.first_row]), {x.row(r), x.cols});
      }
    }
  });
  if (model_.embedding_scale != 1) ScaleRows(ctx_, model_.embedding_scale, x.Rows(0, row));
  if (reads_features) ReadFeatures(sequences, row);
  if (model_.project_in.present()) {
    buffers_.BeginProducts(x);
    buffers_.AddProduct(ctx_, model_.project_in, 0, row, buffers_.x, false);
    buffers_.RunProducts(ctx_);
  }
  const std::span<const uint32_t> positions(buffers_.positions.data(), row);
  AddPositions(positions);
  for (size_t i = 0; i < model_.ropes.size(); ++i) {
    FillRopeRows(ctx_, model_.ropes[i], positions, buffers_.rope[i].cos.Rows(0, row),
                 buffers_.rope[i].sin.Rows(0, row));
  }
}

// From the tokens' embeddings, which are in `paired`, and the rows' features to x, which the first layer reads.
void SequentialExecutor::ReadFeatures(std::span<const StepSequence> sequences, size_t rows) {
  const FeatureInput& input = model_.features;
  const Norm plain;  // y = x; allocates nothing
  const size_t hidden = buffers_.x.cols;
  const Matrix<float> tokens = buffers_.paired.Cols(0, hidden).Rows(0, rows),
                      beside = buffers_.paired.Cols(hidden, hidden);
  RunNorm(ctx_, input.token_norm, tokens, tokens);
  size_t first = 0, last = 0;  // rows of sequences side by side with features of the target: one product
  const auto fuse = [&] {
    if (first == last) return;
    buffers_.BeginProducts(wide_.Rows(first, last - first));
    buffers_.AddProduct(ctx_, input.fuse, 0, last - first, buffers_.x.Rows(first, last - first), false);
    buffers_.RunProducts(ctx_);
  };
  for (size_t s = 0; s < sequences.size(); ++s) {
    const ConstMatrix<float> features = sequences[s].features;
    const size_t begin = sequence_rows_[s].first_row, count = sequence_rows_[s].num_rows;
    const bool own = features.cols == hidden;
    TIDEMILL_CHECK(features.rows == count && (own || features.cols == input.width));
    if (own) {
      RunNorm(ctx_, plain, features, (input.fuses_tokens ? beside : buffers_.x).Rows(begin, count));
    } else {
      if (begin != last) {
        fuse();
        first = begin;
      }
      RunNorm(ctx_, plain, features, wide_.Rows(begin, count));
      last = begin + count;
    }
  }
  fuse();
  if (!input.fuses_tokens) return;
  buffers_.BeginProducts(buffers_.paired);
  buffers_.AddProduct(ctx_, input.fuse, 0, rows, buffers_.x, false);
  buffers_.RunProducts(ctx_);
}

// Learned positions, where the model has them: gathered into `normed`, which the first layer overwrites.
void SequentialExecutor::AddPositions(std::span<const uint32_t> positions) {
  if (model_.position_embedding.rows() == 0) return;
  const Matrix<float> rows = buffers_.normed.Rows(0, positions.size());
  for (size_t r = 0; r < positions.size(); ++r)
    model_.position_embedding.CopyRow(positions[r] + model_.position_offset, {rows.row(r), rows.cols});
  AddRows(ctx_, rows, buffers_.x.Rows(0, positions.size()));
}

bool SequentialExecutor::Run(std::span<const StepSequence> sequences, const RowSink& sink,
                             const std::atomic<bool>* interrupt, size_t num_layers, const StepFeatures* features) {
  const ScopedDefaultFloatEnvironment float_environment;
  size_t rows = 0;
  for (const StepSequence& sequence : sequences) rows += sequence.tokens.size();
  TIDEMILL_CHECK(rows != 0 && rows <= max_rows());
  if (features != nullptr) {
    TIDEMILL_CHECK(num_layers >= model_.layers.size() && features->out.rows >= rows &&
                   features->out.cols == features->taps.size() * buffers_.x.cols &&
                   std::all_of(features->taps.begin(), features->taps.end(),
                               [this](size_t tap) { return tap <= model_.layers.size() + 1; }));
  }
  Embed(sequences);
  for (size_t layer = 0; layer < std::min(num_layers, model_.layers.size()); ++layer) {
    if (features != nullptr) TakeFeatures(*features, layer, rows);
    if (interrupt != nullptr && interrupt->load(std::memory_order_relaxed)) return false;
    const DecoderCell cell{&model_.layers[layer],
                           {.layer = layer, .first_row = 0, .num_rows = rows, .sequences = sequence_rows_}};
    RunDecoderCells(ctx_, buffers_, {&cell, 1});
  }
  for (const size_t tap : {model_.layers.size(), model_.layers.size() + 1}) {
    if (features != nullptr) TakeFeatures(*features, tap, rows);
  }
  for (size_t first = 0; first < wanted_.size(); first += head_buffers_.max_rows()) {
    if (interrupt != nullptr && interrupt->load(std::memory_order_relaxed)) return false;
    RunHead(std::span(wanted_).subspan(first, std::min(head_buffers_.max_rows(), wanted_.size() - first)), sink);
  }
  return true;
}

void SequentialExecutor::TakeFeatures(const StepFeatures& features, size_t tap, size_t rows) {
  const Norm plain;  // y = x; allocates nothing
  const Matrix<float> x = buffers_.x.Rows(0, rows);
  for (size_t i = 0; i < features.taps.size(); ++i) {
    if (features.taps[i] != tap) continue;
    RunNorm(ctx_, tap > model_.layers.size() ? model_.final_norm : plain, x,
            features.out.Rows(0, rows).Cols(i * x.cols, x.cols));
  }
}

void SequentialExecutor::RunHead(std::span<const WantedRow> rows, const RowSink& sink) {
  StepBuffers& b = head_buffers_;
  bool any_logits = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(b.x.row(i), buffers_.x.row(rows[i].row), b.x.cols * sizeof(float));
    any_logits = any_logits || rows[i].want == RowWant::kLogits;
  }
  RunNorm(ctx_, model_.final_norm, b.x.Rows(0, rows.size()), b.normed.Rows(0, rows.size()));
  const WeightMatrix& head = model_.head_or_tied();
  const Matrix<float> logits(logits_memory_.As<float>().data(), b.max_rows(), head.rows());
  if (any_logits) {
    ConstMatrix<float> input = b.normed;
    if (model_.project_out.present()) {
      b.BeginProducts(b.normed);
      b.AddProduct(ctx_, model_.project_out, 0, rows.size(), narrow_, false);
      b.RunProducts(ctx_);
      input = narrow_;
    }
    b.BeginProducts(input);
    b.AddProduct(head, 0, rows.size(), logits, false);
    b.RunProducts(ctx_);
    if (model_.logit_soft_cap != 0) SoftCap(ctx_, model_.logit_soft_cap, logits.Rows(0, rows.size()));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool wants_logits = rows[i].want == RowWant::kLogits;
    sink(
        rows[i].sequence, rows[i].token,
        wants_logits ? std::span<float>(logits.row(i), head.rows()) : std::span<float>(b.normed.row(i), b.normed.cols));
  }
}

}  // namespace tidemill
