#include "models/layers/step_buffers.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"

namespace tidemill {
namespace {

// Row widths, each rounded up to a cache line, in the order of StepBuffers' matrices.
std::vector<size_t> Widths(const StepShape& s) {
  return {s.hidden, s.hidden, s.q_dim, s.kv_dim, s.kv_dim, s.q_dim, s.ffn, s.ffn, s.rotary_dim / 2, s.rotary_dim / 2};
}
size_t Stride(size_t width) { return RoundUp<size_t>(width, 16); }

size_t MostColumns(const StepShape& s) { return std::max({s.hidden, s.q_dim, s.ffn}); }

}  // namespace

size_t StepBuffers::RowBytes(const StepShape& shape, Isa isa) {
  size_t floats = 0;
  for (const size_t width : Widths(shape)) floats += Stride(width);
  return floats * sizeof(float) + QuantizedBuffer::RowBytes(MostColumns(shape), isa) + sizeof(uint32_t) +
         sizeof(AttentionTask);
}

Result<StepBuffers> StepBuffers::Create(const StepShape& shape, size_t max_rows, Isa isa) {
  StepBuffers buffers;
  size_t floats = 0;
  for (const size_t width : Widths(shape)) floats += Stride(width) * max_rows;
  TIDEMILL_TRY(memory, AlignedBuffer::Create(floats * sizeof(float)));
  buffers.memory_ = std::move(memory);
  float* next = buffers.memory_.As<float>().data();
  Matrix<float>* matrices[] = {&buffers.x,        &buffers.normed, &buffers.q,  &buffers.k,   &buffers.v,
                               &buffers.attended, &buffers.gate,   &buffers.up, &buffers.cos, &buffers.sin};
  const std::vector<size_t> widths = Widths(shape);
  for (size_t i = 0; i < widths.size(); ++i) {
    *matrices[i] = Matrix<float>(next, max_rows, widths[i], Stride(widths[i]));
    next += Stride(widths[i]) * max_rows;
  }
  TIDEMILL_TRY(quantized, QuantizedBuffer::Create(max_rows, MostColumns(shape), isa));
  buffers.quantized_ = std::move(quantized);
  buffers.positions.resize(max_rows);
  buffers.attention_tasks.reserve(max_rows);
  buffers.products_.reserve(kMaxMatMulTasks);
  return buffers;
}

StepBuffers::Prepared StepBuffers::Prepare(ExecutionContext& ctx, ConstMatrix<float> source, size_t first, size_t count,
                                           bool quantized) {
  Prepared prepared{source.Rows(first, count), {}, first};
  if (quantized) prepared.quantized = quantized_.Quantize(ctx, prepared.f32);
  return prepared;
}

void StepBuffers::AddProduct(const WeightMatrix& weight, const Prepared& input, size_t first_row, size_t rows,
                             Matrix<float> y, bool accumulate) {
  TIDEMILL_CHECK(products_.size() < kMaxMatMulTasks && first_row >= input.first_row);
  MatMulTask task{.weight = &weight, .x = {}, .quantized = {}, .y = y.Rows(first_row, rows), .accumulate = accumulate};
  if (weight.quantized()) {
    task.quantized = input.quantized.Rows(first_row - input.first_row, rows);
  } else {
    task.x = input.f32.Rows(first_row - input.first_row, rows);
  }
  products_.push_back(task);
}

void StepBuffers::RunProducts(ExecutionContext& ctx) {
  MatMul(ctx, products_);
  products_.clear();
}

}  // namespace tidemill
