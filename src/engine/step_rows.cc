#include "engine/step_rows.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "engine/segments.h"
#include "kernels/elementwise.h"

namespace tidemill {
namespace {

// The head needs the residual stream only.
StepShape HeadShapeOf(const LanguageModel& model, const StepShape& shape) {
  return {.hidden = shape.hidden,
          .bfloat16_weights = shape.bfloat16_weights,
          .quantized_weights = shape.quantized_weights,
          .q8_0_weights = shape.q8_0_weights,
          .source_width = std::max(shape.hidden, model.head_or_tied().cols())};
}

// Columns of the embeddings where they are not the layers', and of the target's features where the model fuses those alone; else 0.
size_t NarrowWidth(const LanguageModel& model) {
  return model.project_in.present() ? model.token_embedding().cols() : 0;
}
size_t WideWidth(const LanguageModel& model) {
  return model.features.present() && !model.features.fuses_tokens ? model.features.width : 0;
}

void KeepLast(size_t num, SequenceRows* rows) {
  const size_t dropped = rows->num_rows - num;
  rows->first_row += dropped;
  rows->slot += dropped;
  rows->num_rows = num;
}

}  // namespace

uint64_t StepRows::Bytes(const LanguageModel& model, Isa isa, size_t max_rows) {
  const StepShape shape = model.step_shape();
  const size_t floats = NarrowWidth(model) + WideWidth(model);
  return max_rows * (StepBuffers::RowBytes(shape, isa) + floats * sizeof(float)) +
         std::min(kHeadRows, max_rows) *
             (StepBuffers::RowBytes(HeadShapeOf(model, shape), isa) + model.settings.vocab_size * sizeof(float));
}

Result<StepRows> StepRows::Create(const LanguageModel& model, ExecutionContext& ctx, size_t max_rows) {
  StepRows r(model, ctx);
  const StepShape shape = model.step_shape();
  TIDEMILL_TRY(buffers, StepBuffers::Create(shape, max_rows, ctx.isa()));
  r.buffers_ = std::move(buffers);
  const StepShape head_shape = HeadShapeOf(model, shape);
  const size_t head_rows = std::min(kHeadRows, max_rows);
  TIDEMILL_TRY(head_buffers, StepBuffers::Create(head_shape, head_rows, ctx.isa()));
  r.head_buffers_ = std::move(head_buffers);
  if (const size_t width = NarrowWidth(model); width != 0) {
    TIDEMILL_TRY(narrow, AlignedBuffer::Create(max_rows * width * sizeof(float)));
    r.narrow_memory_ = std::move(narrow);
    r.narrow_ = Matrix<float>(r.narrow_memory_.As<float>().data(), max_rows, width);
  }
  if (const size_t features = WideWidth(model); features != 0) {
    TIDEMILL_TRY(wide, AlignedBuffer::Create(max_rows * features * sizeof(float)));
    r.wide_memory_ = std::move(wide);
    r.wide_ = Matrix<float>(r.wide_memory_.As<float>().data(), max_rows, features);
  }
  TIDEMILL_TRY(logits, AlignedBuffer::Create(head_rows * model.settings.vocab_size * sizeof(float)));
  r.logits_memory_ = std::move(logits);
  r.buffer_bytes_ = Bytes(model, ctx.isa(), max_rows);
  r.whole_.Reserve(max_rows, max_rows);
  return r;
}

// Where each row is: in the step, in its sequence's state, and in its text.
void StepRows::PlaceRows(std::span<const StepSequence> sequences, Part& part) {
  part.num_rows_ = 0;
  for (const StepSequence& sequence : sequences) part.num_rows_ += sequence.num_rows();
  TIDEMILL_CHECK(part.num_rows_ != 0 && part.first_row_ + part.num_rows_ <= max_rows());
  part.sequences_.clear();
  part.wanted_.clear();
  size_t row = part.first_row_;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const StepSequence& sequence = sequences[s];
    const size_t count = sequence.num_rows();
    TIDEMILL_CHECK(sequence.embeddings.rows == 0 || (sequence.tokens.empty() && !model_->features.present()));
    if (model_->segments.present() && sequence.embeddings.rows == 0)  // memory rows have the slots in front
      TIDEMILL_CHECK(sequence.slot >= MemoryRows::CountInFront(*sequence.state));
    TIDEMILL_DCHECK(sequence.positions.empty() || sequence.positions.size() == count);
    TIDEMILL_DCHECK(sequence.parents.empty() || (sequence.parents.size() == count && sequence.slot == 0));
    part.sequences_.push_back({.state = sequence.state,
                               .first_row = row,
                               .num_rows = count,
                               .slot = sequence.slot,
                               .parents = sequence.parents,
                               .visibility = sequence.visibility,
                               .sparse_from = sequence.sparse_from,
                               .ends_segment = sequence.ends_segment});
    const SequenceRows& placed = part.sequences_.back();
    const auto first = static_cast<uint32_t>(model_->segments.present() ? PlaceInSegment(*placed.state, placed.slot)
                                                                        : placed.first_position());
    for (size_t t = 0; t < count; ++t) {
      const bool last = t + sequence.num_last >= count;
      if (sequence.rows == Wanted::kAll || (sequence.rows == Wanted::kLast && last)) {
        part.wanted_.push_back(
            {static_cast<uint32_t>(row + t), static_cast<uint32_t>(s), static_cast<uint32_t>(t), sequence.want});
      }
      uint32_t position = first + static_cast<uint32_t>(t);
      if (!sequence.positions.empty()) {
        position = sequence.positions[t];
      } else if (!sequence.parents.empty()) {
        const int32_t parent = sequence.parents[t];
        position = parent < 0 ? first : buffers_.positions[row + static_cast<size_t>(parent)] + 1;
      }
      buffers_.positions[row + t] = position;
    }
    row += count;
  }
  FindOutputs(sequences, part);
}

void StepRows::FindOutputs(std::span<const StepSequence> sequences, Part& part) {
  part.outputs_.clear();
  size_t last_end = SIZE_MAX, last = 0, count = 0;  // of the outputs so far: the end, and whose they are
  for (size_t s = 0; s < sequences.size(); ++s) {
    const StepSequence& sequence = sequences[s];
    const size_t rows = part.sequences_[s].num_rows;
    size_t num = sequence.rows == Wanted::kLast  ? std::min(rows, sequence.num_last)
                 : sequence.rows == Wanted::kAll ? rows
                                                 : 0;
    if (sequence.ends_segment || (num != 0 && !sequence.parents.empty())) num = rows;  // a tree stays whole
    part.outputs_.push_back(part.sequences_[s]);
    KeepLast(num, &part.outputs_.back());
    if (num == 0) continue;
    if (last_end != SIZE_MAX && part.outputs_.back().first_row - last_end < kFewestApart)
      std::copy_n(part.sequences_.data() + last + 1, s - last, part.outputs_.data() + last + 1);
    last = s;
    last_end = part.sequences_[s].first_row + rows;
  }
  for (const SequenceRows& rows : part.outputs_) count += rows.num_rows;
  part.all_are_outputs_ = count == part.num_rows_;
}

void StepRows::CopyEmbeddings(std::span<const StepSequence> sequences, const Part& part, Matrix<float> x) {
  constexpr size_t kChunkRows = 8;
  ctx_->threads().ParallelFor((part.num_rows_ + kChunkRows - 1) / kChunkRows, [&](size_t chunk, size_t) {
    const size_t first = part.first_row_ + chunk * kChunkRows;
    for (const SequenceRows& rows : part.sequences_) {
      const size_t begin = std::max(rows.first_row, first);
      const size_t end = std::min(rows.first_row + rows.num_rows, first + kChunkRows);
      const StepSequence& sequence = sequences[static_cast<size_t>(&rows - part.sequences_.data())];
      if (begin >= end) continue;
      const Matrix<float> out = x.Rows(begin, end - begin);
      if (sequence.embeddings.rows != 0) {
        RunNorm(ctx_->alone(), Norm(), sequence.embeddings.Rows(begin - rows.first_row, end - begin), out);
        continue;
      }
      for (size_t r = begin; r < end; ++r) {
        const int32_t token = sequence.tokens[r - rows.first_row];
        model_->token_embedding().CopyRow(static_cast<size_t>(token), {x.row(r), x.cols});
      }
      if (model_->embedding_scale != 1) ScaleRows(ctx_->alone(), model_->embedding_scale, out);
    }
  });
}

void StepRows::Prepare(std::span<const StepSequence> sequences, size_t first_row, Part* part) {
  part->first_row_ = first_row;
  PlaceRows(sequences, *part);
  const size_t rows = part->num_rows_;
  const bool reads_features = model_->features.present();
  const Matrix<float> x = reads_features                 ? buffers_.paired.Cols(0, buffers_.x.cols)
                          : model_->project_in.present() ? narrow_
                                                         : buffers_.x;
  CopyEmbeddings(sequences, *part, x);
  if (reads_features) ReadFeatures(sequences, *part);
  if (model_->project_in.present()) {
    buffers_.BeginProducts(x);
    buffers_.AddProduct(*ctx_, model_->project_in, first_row, rows, buffers_.x, false);
    buffers_.RunProducts(*ctx_);
  }
  AddPositions(*part);
  for (size_t i = 0; i < model_->ropes.size(); ++i) {
    FillRopeRows(*ctx_, model_->ropes[i], std::span(buffers_.positions).subspan(first_row, rows),
                 buffers_.rope[i].cos.Rows(first_row, rows), buffers_.rope[i].sin.Rows(first_row, rows));
  }
}

// From the tokens' embeddings, which are in `paired`, and the rows' features to x, which the first layer reads.
void StepRows::ReadFeatures(std::span<const StepSequence> sequences, const Part& part) {
  TIDEMILL_CHECK(part.first_row_ == 0);  // a draft head's steps have one part
  const FeatureInput& input = model_->features;
  const Norm plain;  // y = x; allocates nothing
  const size_t hidden = buffers_.x.cols;
  const Matrix<float> tokens = buffers_.paired.Cols(0, hidden).Rows(0, part.num_rows_),
                      beside = buffers_.paired.Cols(hidden, hidden);
  RunNorm(*ctx_, input.token_norm, tokens, tokens);
  size_t first = 0, last = 0;  // rows of sequences side by side with features of the target: one product
  const auto fuse = [&] {
    if (first == last) return;
    buffers_.BeginProducts(wide_.Rows(first, last - first));
    buffers_.AddProduct(*ctx_, input.fuse, 0, last - first, buffers_.x.Rows(first, last - first), false);
    buffers_.RunProducts(*ctx_);
  };
  for (size_t s = 0; s < sequences.size(); ++s) {
    const ConstMatrix<float> features = sequences[s].features;
    const size_t begin = part.sequences_[s].first_row, count = part.sequences_[s].num_rows;
    const bool own = features.cols == hidden;
    TIDEMILL_CHECK(features.rows == count && (own || features.cols == input.width));
    if (own) {
      if (input.fuses_tokens) {
        RunNorm(*ctx_, input.feature_norm, features, beside.Rows(begin, count));
      } else {
        RunNorm(*ctx_, plain, features, buffers_.x.Rows(begin, count));
      }
    } else {
      if (begin != last) {
        fuse();
        first = begin;
      }
      RunNorm(*ctx_, plain, features, wide_.Rows(begin, count));
      last = begin + count;
    }
  }
  fuse();
  if (!input.fuses_tokens) return;
  buffers_.BeginProducts(buffers_.paired);
  buffers_.AddProduct(*ctx_, input.fuse, 0, part.num_rows_, buffers_.x, false);
  buffers_.RunProducts(*ctx_);
}

// Learned positions, where the model has them: gathered into `normed`, which the first layer overwrites.
void StepRows::AddPositions(const Part& part) {
  if (model_->position_embedding.rows() == 0) return;
  const Matrix<float> rows = buffers_.normed.Rows(part.first_row_, part.num_rows_);
  for (size_t r = 0; r < part.num_rows_; ++r) {
    const size_t position = buffers_.positions[part.first_row_ + r] + model_->position_offset;
    model_->position_embedding.CopyRow(position, {rows.row(r), rows.cols});
  }
  AddRows(*ctx_, rows, buffers_.x.Rows(part.first_row_, part.num_rows_));
}

void StepRows::TakeFeatures(const StepFeatures& features, size_t tap) {
  TIDEMILL_CHECK(features.out.rows >= num_rows() && features.out.cols == features.taps.size() * buffers_.x.cols);
  const Norm plain;  // y = x; allocates nothing
  const Matrix<float> x = buffers_.x.Rows(0, num_rows());
  for (size_t i = 0; i < features.taps.size(); ++i) {
    if (features.taps[i] != tap) continue;
    RunNorm(*ctx_, tap > model_->layers.size() ? model_->final_norm : plain, x,
            features.out.Rows(0, num_rows()).Cols(i * x.cols, x.cols));
  }
}

// Behind the last layer of RMT.
void StepRows::CarryMemory(const Part& part) {
  for (const SequenceRows& rows : part.sequences_) {
    if (!rows.ends_segment) continue;
    const Matrix<float> carried = EndCarried(*rows.state, rows.slot);
    RunNorm(*ctx_, model_->final_norm, buffers_.x.Rows(rows.first_row, rows.num_rows), carried);
  }
}

bool StepRows::Finish(const Part& part, const RowSink& sink) {
  const std::span<const WantedRow> wanted = part.wanted_;
  if (model_->segments.shape.front_rows != 0) CarryMemory(part);
  for (size_t first = 0; first < wanted.size(); first += head_buffers_.max_rows()) {
    if (ctx_->Stops()) return false;
    RunHead(wanted.subspan(first, std::min(head_buffers_.max_rows(), wanted.size() - first)), sink);
  }
  return !ctx_->IsAbandoned();
}

void StepRows::RunHead(std::span<const WantedRow> rows, const RowSink& sink) {
  StepBuffers& b = head_buffers_;
  bool any_logits = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(b.x.row(i), buffers_.x.row(rows[i].row), b.x.cols * sizeof(float));
    any_logits = any_logits || rows[i].want == RowWant::kLogits;
  }
  RunNorm(*ctx_, model_->final_norm, b.x.Rows(0, rows.size()), b.normed.Rows(0, rows.size()));
  const WeightMatrix& head = model_->head_or_tied();
  const Matrix<float> logits(logits_memory_.As<float>().data(), b.max_rows(), head.rows());
  if (any_logits) {
    ConstMatrix<float> input = b.normed;
    if (model_->project_out.present()) {
      b.BeginProducts(b.normed);
      b.AddProduct(*ctx_, model_->project_out, 0, rows.size(), narrow_, false);
      b.RunProducts(*ctx_);
      input = narrow_;
    }
    b.BeginProducts(input);
    b.AddProduct(head, 0, rows.size(), logits, false);
    b.RunProducts(*ctx_);
    if (model_->logit_soft_cap != 0) SoftCap(*ctx_, model_->logit_soft_cap, logits.Rows(0, rows.size()));
  }
  if (ctx_->IsAbandoned()) return;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool wants_logits = rows[i].want == RowWant::kLogits;
    sink(
        rows[i].sequence, rows[i].token,
        wants_logits ? std::span<float>(logits.row(i), head.rows()) : std::span<float>(b.normed.row(i), b.normed.cols));
  }
}

}  // namespace tidemill
