#include "models/layers/step_buffers.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/elementwise.h"

namespace tidemill {
namespace {

// An odd number of cache lines: rows a power of two apart would share the sets of the L1 cache.
size_t Stride(size_t width) { return RoundUp<size_t>(width, 16) | 16; }

// Calls place(matrix, rows for each row of the step, width) for every matrix.
template <typename Buffers, typename Place>
void ForEachMatrix(Buffers& b, const StepShape& s, Place place) {
  place(b.x, 1, s.hidden);
  place(b.normed, 1, s.hidden);
  if (s.paired) place(b.paired, 1, 2 * s.hidden);
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

size_t MaxColumns(const StepShape& s) {
  return std::max({s.hidden, s.q_dim, s.ffn, s.expert_ffn, s.paired ? 2 * s.hidden : 0, s.feature_width});
}
bool HasBFloat16(const StepShape& s, Isa isa) { return s.bfloat16_weights && HasBFloat16Products(isa); }
bool HasBiased(const StepShape& s, Isa isa) { return s.q8_0_weights && WantsBiased(DType::kQ8_0, isa); }
size_t InputRowsFor(const StepShape& s) { return std::max<size_t>(1, s.experts_per_token); }

}  // namespace

size_t StepBuffers::RowBytes(const StepShape& shape, Isa isa) {
  size_t floats = 0;
  StepBuffers none;
  ForEachMatrix(none, shape, [&](Matrix<float>&, size_t rows, size_t width) { floats += rows * Stride(width); });
  const size_t quantized =
      shape.quantized_weights
          ? InputRowsFor(shape) * QuantizedBuffer::RowBytes(MaxColumns(shape), isa, HasBiased(shape, isa))
          : 0;
  const size_t rounded =
      HasBFloat16(shape, isa) ? InputRowsFor(shape) * BFloat16Buffer::RowBytes(MaxColumns(shape)) : 0;
  return floats * sizeof(float) + quantized + rounded + sizeof(uint32_t) + sizeof(AttentionTask) +
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
  if (shape.quantized_weights) {
    TIDEMILL_TRY(quantized, QuantizedBuffer::Create(InputRowsFor(shape) * max_rows, MaxColumns(shape), isa,
                                                    HasBiased(shape, isa)));
    b.quantized_ = std::move(quantized);
  }
  if (HasBFloat16(shape, isa)) {
    TIDEMILL_TRY(rounded, BFloat16Buffer::Create(InputRowsFor(shape) * max_rows, MaxColumns(shape)));
    b.bfloat16_ = std::move(rounded);
  }
  b.positions.resize(max_rows);
  b.attention_tasks.reserve(max_rows);
  const size_t max_products = std::max(kMaxMatMulTasks, 2 * shape.experts);  // `gate` and `up` of all experts
  b.products_.reserve(max_products);
  b.product_rows_.reserve(max_products);
  if (shape.experts != 0) {
    const size_t slots = max_rows * shape.experts_per_token;
    b.experts.weights.resize(slots);
    for (std::vector<uint32_t>* ids : {&b.experts.chosen, &b.experts.slots, &b.experts.order}) ids->resize(slots);
    b.experts.offsets.resize(shape.experts + 1);
  }
  return b;
}

void StepBuffers::AddProduct(ExecutionContext& ctx, const Linear& linear, size_t first_row, size_t rows,
                             Matrix<float> y, bool accumulate) {
  if (!linear.bias.empty()) {
    if (accumulate) {
      const ConstMatrix<float> repeated(linear.bias.data(), rows, linear.bias.size(), 0);
      AddRows(ctx, repeated, y.Rows(first_row, rows));
    } else {
      FillRows(ctx, linear.bias, y.Rows(first_row, rows));
    }
    accumulate = true;
  }
  AddProduct(linear.weight, first_row, rows, y, accumulate);
}

void StepBuffers::AddProduct(const WeightMatrix& weight, size_t first_row, size_t rows, Matrix<float> y,
                             bool accumulate) {
  products_.push_back(
      {.weight = &weight, .x = source_.Rows(first_row, rows), .y = y.Rows(first_row, rows), .accumulate = accumulate});
  product_rows_.push_back(first_row);
}

// The rows that the products read, and where their other forms will be.
StepBuffers::RowRange StepBuffers::PlaceForms(ExecutionContext& ctx) {
  if (products_.empty()) return {0, 0};
  size_t begin = SIZE_MAX, end = 0;
  wants_int8_ = wants_biased_ = wants_bfloat16_ = false;
  for (size_t i = 0; i < products_.size(); ++i) {
    const DType dtype = products_[i].weight->dtype();
    const ActivationForm form = FormFor(dtype, ctx.isa());
    wants_int8_ = wants_int8_ || form == ActivationForm::kInt8;
    wants_biased_ = wants_biased_ || dtype == DType::kQ8_0;
    wants_bfloat16_ = wants_bfloat16_ || form == ActivationForm::kBFloat16;
    begin = std::min(begin, product_rows_[i]);
    end = std::max(end, product_rows_[i] + products_[i].x.rows);
  }
  const QuantizedRows quantized =
      wants_int8_ ? quantized_.Place(end - begin, source_.cols, wants_biased_) : QuantizedRows();
  if (wants_bfloat16_) bfloat16_rows_ = bfloat16_.Place(end - begin, source_.cols);
  for (size_t i = 0; i < products_.size(); ++i) {
    const size_t first = product_rows_[i] - begin, rows = products_[i].x.rows;
    if (wants_int8_) products_[i].quantized = quantized.Rows(first, rows);
    if (wants_bfloat16_) products_[i].bfloat16 = bfloat16_rows_.Rows(first, rows);
  }
  return {begin, end - begin};
}

void StepBuffers::FillForms(ExecutionContext& alone, size_t begin, size_t first, size_t count) {
  const ConstMatrix<float> rows = source_.Rows(begin + first, count);
  if (wants_int8_) quantized_.QuantizeRows(alone, rows, first);
  if (wants_bfloat16_) BFloat16Buffer::RoundRows(alone, rows, bfloat16_rows_.Rows(first, count));
}

void StepBuffers::MultiplyAndClear(ExecutionContext& ctx) {
  for (size_t done = 0; done < products_.size(); done += kMaxMatMulTasks)
    MatMul(ctx, std::span(products_).subspan(done, std::min(kMaxMatMulTasks, products_.size() - done)));
  products_.clear();
  product_rows_.clear();
}

}  // namespace tidemill
