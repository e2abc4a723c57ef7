#include "models/layers/step_buffers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/elementwise.h"

namespace tidemill {
namespace {

bool HasBFloat16(const StepShape& s, Isa isa) { return s.bfloat16_weights && HasBFloat16Products(isa); }
bool HasBiased(const StepShape& s, Isa isa) { return s.q8_0_weights && WantsBiased(DType::kQ8_0, isa); }

}  // namespace

void StepShape::AddWeight(const WeightMatrix& weight) {
  bfloat16_weights = bfloat16_weights || weight.dtype() == DType::kBF16;
  quantized_weights = quantized_weights || weight.quantized();
  q8_0_weights = q8_0_weights || weight.dtype() == DType::kQ8_0;
  source_width = std::max(source_width, weight.cols());
}

void StepShape::AddRegions(size_t branch, const std::vector<BufferRegion>& wanted) {
  regions.resize(std::max(regions.size(), branch + 1));
  std::vector<size_t>& floats = regions[branch];
  floats.resize(std::max(floats.size(), wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i)
    floats[i] = std::max(floats[i], wanted[i].per_row * StepBuffers::Stride(wanted[i].width));
}

// Calls place(matrix, width) for every matrix but the regions.
template <typename Buffers, typename Place>
void StepBuffers::ForEachMatrix(Buffers& b, const StepShape& s, Place place) {
  place(b.x, s.hidden);
  place(b.normed, s.hidden);
  if (s.paired) place(b.paired, 2 * s.hidden);
  for (size_t i = 0; i < kMaxRopeTables; ++i) {
    place(b.rope[i].cos, s.rotary_dims[i] / 2);
    place(b.rope[i].sin, s.rotary_dims[i] / 2);
  }
}

size_t StepBuffers::RowFloats(const StepShape& shape) {
  size_t floats = 0;
  StepBuffers none;
  ForEachMatrix(none, shape, [&](Matrix<float>&, size_t width) { floats += Stride(width); });
  for (const std::vector<size_t>& branch : shape.regions)
    floats += std::accumulate(branch.begin(), branch.end(), size_t{0});
  return floats;
}

size_t StepBuffers::RowBytes(const StepShape& shape, Isa isa) {
  const size_t quantized =
      shape.quantized_weights
          ? shape.source_rows * QuantizedBuffer::RowBytes(shape.source_width, isa, HasBiased(shape, isa))
          : 0;
  const size_t rounded = HasBFloat16(shape, isa) ? shape.source_rows * BFloat16Buffer::RowBytes(shape.source_width) : 0;
  return RowFloats(shape) * sizeof(float) + quantized + rounded + sizeof(uint32_t) + sizeof(AttentionTask) +
         sizeof(DecoderCell) + (shape.inputs == 0 ? 0 : shape.inputs * sizeof(float*) + sizeof(DeltaTask));
}

void SparseRowMemory::Reserve(size_t rows, const AttentionShape& shape, size_t num_positions) {
  tasks.reserve(rows);
  alpha.reserve(rows * shape.heads);
  was_dense.reserve(rows * shape.kv_heads);
  audits.reserve(rows);
  selected.reserve(rows);
  positions.resize(std::max(positions.size(), std::min(rows, kWindowRows) * shape.kv_heads * num_positions));
  sums.reserve(shape.kv_heads);
}

Result<StepBuffers> StepBuffers::Create(const StepShape& shape, size_t max_rows, Isa isa) {
  StepBuffers b;
  TIDEMILL_TRY(memory, AlignedBuffer::Create(RowFloats(shape) * max_rows * sizeof(float)));
  b.memory_ = std::move(memory);
  float* next = b.memory_.As<float>().data();
  ForEachMatrix(b, shape, [&](Matrix<float>& matrix, size_t width) {
    matrix = Matrix<float>(next, max_rows, width, Stride(width));
    next += max_rows * Stride(width);
  });
  for (const std::vector<size_t>& branch : shape.regions) {
    std::vector<std::span<float>>& regions = b.regions_.emplace_back();
    for (const size_t floats : branch) {
      regions.emplace_back(next, floats * max_rows);
      next += floats * max_rows;
    }
  }
  if (shape.quantized_weights) {
    TIDEMILL_TRY(quantized,
                 QuantizedBuffer::Create(shape.source_rows * max_rows, shape.source_width, isa, HasBiased(shape, isa)));
    b.quantized_ = std::move(quantized);
  }
  if (HasBFloat16(shape, isa)) {
    TIDEMILL_TRY(rounded, BFloat16Buffer::Create(shape.source_rows * max_rows, shape.source_width));
    b.bfloat16_ = std::move(rounded);
  }
  b.positions.resize(max_rows);
  b.output_cells.reserve(max_rows);
  b.attention_tasks.reserve(max_rows);
  b.inputs.resize(shape.inputs * max_rows);
  b.delta_tasks.reserve(shape.inputs == 0 ? 0 : max_rows);
  const size_t max_products = std::max(kMaxMatMulTasks, shape.products);
  b.products_.reserve(max_products);
  b.product_rows_.reserve(max_products);
  b.ranges_.reserve(max_products);
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
  const size_t end = first_row + rows;
  for (const RowRange& range : ranges_) {
    if (first_row >= range.first && end <= range.first + range.count) return;  // one that others read
    TIDEMILL_DCHECK(end <= range.first || first_row >= range.first + range.count);
  }
  if (!ranges_.empty() && ranges_.back().first + ranges_.back().count == first_row) {
    ranges_.back().count += rows;
  } else {
    ranges_.push_back({first_row, rows});
  }
}

// Where the other forms of the rows that the products read will be.
void StepBuffers::PlaceForms(ExecutionContext& ctx) {
  if (products_.empty()) return;
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
  forms_first_ = begin;
}

void StepBuffers::FillForms(ExecutionContext& alone, size_t first, size_t count) {
  const ConstMatrix<float> rows = source_.Rows(first, count);
  const size_t at = first - forms_first_;
  if (wants_int8_) quantized_.QuantizeRows(alone, rows, at);
  if (wants_bfloat16_) BFloat16Buffer::RoundRows(alone, rows, bfloat16_rows_.Rows(at, count));
}

void StepBuffers::MultiplyAndClear(ExecutionContext& ctx) {
  counts.products += products_.empty() ? 0U : 1U;
  for (const MatMulTask& task : products_) counts.product_rows += task.x.rows;
  for (size_t done = 0; done < products_.size(); done += kMaxMatMulTasks)
    MatMul(ctx, std::span(products_).subspan(done, std::min(kMaxMatMulTasks, products_.size() - done)));
  products_.clear();
  product_rows_.clear();
  ranges_.clear();
}

}  // namespace tidemill
