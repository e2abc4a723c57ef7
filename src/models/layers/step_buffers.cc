#include "models/layers/step_buffers.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/elementwise.h"

namespace tidemill {
namespace {

size_t Stride(size_t width) { return RoundUp<size_t>(width, 16); }

// Calls place(matrix, rows for each row of the step, width) for every matrix.
template <typename Buffers, typename Place>
void ForEachMatrix(Buffers& b, const StepShape& s, Place place) {
  place(b.x, 1, s.hidden);
  place(b.normed, 1, s.hidden);
  place(b.q, 1, s.q_dim);
  place(b.k, 1, s.kv_dim);
  place(b.v, 1, s.kv_dim);
  place(b.attended, 1, s.q_dim);
  place(b.gate, 1, s.ffn);
  place(b.up, 1, s.ffn);
  for (size_t i = 0; i < kMaxRopeTables; ++i) {
    place(b.rope[i].cos, 1, s.rotary_dims[i] / 2);
    place(b.rope[i].sin, 1, s.rotary_dims[i] / 2);
  }
  const size_t slots = s.experts_per_token;
  place(b.experts.logits, 1, s.experts);
  place(b.experts.in, slots, slots == 0 ? 0 : s.hidden);
  place(b.experts.out, slots, slots == 0 ? 0 : s.hidden);
  place(b.experts.gate, slots, s.expert_ffn);
  place(b.experts.up, slots, s.expert_ffn);
}

size_t MostColumns(const StepShape& s) { return std::max({s.hidden, s.q_dim, s.ffn, s.expert_ffn}); }
size_t QuantizedRowsFor(const StepShape& s) { return std::max<size_t>(1, s.experts_per_token); }

}  // namespace

size_t StepBuffers::RowBytes(const StepShape& shape, Isa isa) {
  size_t floats = 0;
  StepBuffers none;
  ForEachMatrix(none, shape, [&](Matrix<float>&, size_t rows, size_t width) { floats += rows * Stride(width); });
  const size_t quantized = QuantizedRowsFor(shape) * QuantizedBuffer::RowBytes(MostColumns(shape), isa);
  return floats * sizeof(float) + quantized + sizeof(uint32_t) + sizeof(AttentionTask) +
         shape.experts_per_token * 4 * sizeof(uint32_t);
}

Result<StepBuffers> StepBuffers::Create(const StepShape& shape, size_t max_rows, Isa isa) {
  StepBuffers b;
  size_t floats = 0;
  ForEachMatrix(b, shape,
                [&](Matrix<float>&, size_t rows, size_t width) { floats += rows * max_rows * Stride(width); });
  TIDEMILL_TRY(memory, AlignedBuffer::Create(floats * sizeof(float)));
  b.memory_ = std::move(memory);
  float* next = b.memory_.As<float>().data();
  ForEachMatrix(b, shape, [&](Matrix<float>& matrix, size_t rows, size_t width) {
    matrix = Matrix<float>(next, rows * max_rows, width, Stride(width));
    next += rows * max_rows * Stride(width);
  });
  TIDEMILL_TRY(quantized, QuantizedBuffer::Create(QuantizedRowsFor(shape) * max_rows, MostColumns(shape), isa));
  b.quantized_ = std::move(quantized);
  b.positions.resize(max_rows);
  b.attention_tasks.reserve(max_rows);
  b.products_.reserve(kMaxMatMulTasks);
  if (shape.experts != 0) {
    const size_t slots = max_rows * shape.experts_per_token;
    b.experts.weights.resize(slots);
    for (std::vector<uint32_t>* ids : {&b.experts.chosen, &b.experts.slots, &b.experts.order}) ids->resize(slots);
    b.experts.offsets.resize(shape.experts + 1);
  }
  return b;
}

StepBuffers::Prepared StepBuffers::Prepare(ExecutionContext& ctx, ConstMatrix<float> source, size_t first, size_t count,
                                           bool quantized) {
  Prepared prepared{source.Rows(first, count), {}, first};
  if (quantized) prepared.quantized = quantized_.Quantize(ctx, prepared.f32);
  return prepared;
}

void StepBuffers::AddProduct(ExecutionContext& ctx, const Linear& linear, const Prepared& input, size_t first_row,
                             size_t rows, Matrix<float> y, bool accumulate) {
  if (products_.size() == kMaxMatMulTasks) RunProducts(ctx);
  if (!linear.bias.empty()) {
    if (accumulate) {
      const ConstMatrix<float> repeated(linear.bias.data(), rows, linear.bias.size(), 0);
      AddRows(ctx, repeated, y.Rows(first_row, rows));
    } else {
      FillRows(ctx, linear.bias, y.Rows(first_row, rows));
    }
    accumulate = true;
  }
  AddProduct(linear.weight, input, first_row, rows, y, accumulate);
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
