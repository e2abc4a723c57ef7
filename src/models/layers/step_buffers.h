// All that a step of a decoder stack writes besides the state: allocated once, for the most rows of a step.
#ifndef TIDEMILL_MODELS_LAYERS_STEP_BUFFERS_H_
#define TIDEMILL_MODELS_LAYERS_STEP_BUFFERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/activations.h"
#include "kernels/associative_memory.h"
#include "kernels/attention.h"
#include "kernels/delta_rule.h"
#include "kernels/matmul.h"
#include "kernels/row_blocks.h"
#include "kernels/sparse_attention.h"
#include "models/layers/decoder_cell.h"
#include "models/layers/linear.h"
#include "tensor/matrix.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr size_t kMaxRopeTables = 2;

// Memory that a branch asks for: for each row of a step `per_row` rows of `width` elements of four bytes.
struct BufferRegion {
  size_t width = 0;
  size_t per_row = 1;
};

// What a stack's steps need, the maximum over its layers.
struct StepShape {
  size_t hidden = 0;
  std::array<size_t, kMaxRopeTables> rotary_dims = {};
  bool bfloat16_weights = false, quantized_weights = false;  // some weight is
  bool q8_0_weights = false;                                 // some weight is
  size_t source_width = 0;                                   // of what products read
  size_t source_rows = 1;                                    // for each row of a step
  size_t products = 0;                                       // of one group, beyond kMaxMatMulTasks
  bool paired = false;                                       // has StepBuffers::paired
  size_t inputs = 0;                                         // StepBuffers::inputs of a row
  // [branch of a layer][region] floats for each row. Branches at one place in their layers share them.
  std::vector<std::vector<size_t>> regions = {};

  void AddWeight(const WeightMatrix& weight);
  void AddRegions(size_t branch, const std::vector<BufferRegion>& wanted);
};

// Of sparse rows of a cell (models/layers/sparse_rows.h).
struct SparseRowMemory {
  static constexpr size_t kWindowRows = 16;  // rows of windows that run side by side

  // Room for a cell's rows of this shape, each of which reads at most so many given positions: such cells allocate nothing then. Throws
  // std::bad_alloc.
  void Reserve(size_t rows, const AttentionShape& shape, size_t num_positions);

  std::vector<SparseTask> tasks;
  std::vector<float> alpha;         // [rows, heads]
  std::vector<uint8_t> was_dense;   // [rows, kv_heads]
  std::vector<SparseAudit> audits;  // [rows]
  std::vector<SelectedTask> selected;
  std::vector<uint32_t> positions;     // of `selected`, one after another; larger only for one row that needs it
  std::vector<std::span<float>> sums;  // [kv_heads]
};

// What steps have run so far. For tests.
struct StepCounts {
  uint64_t products = 0, product_rows = 0;      // groups; the rows of their products
  uint64_t attentions = 0, attention_rows = 0;  // calls; their query rows
};

// For products whose source is already filled.
inline void AsItIs(ExecutionContext&, size_t, size_t) {}

class StepBuffers {
 public:
  static Result<StepBuffers> Create(const StepShape& shape, size_t max_rows, Isa isa);
  // Bytes of one row.
  static size_t RowBytes(const StepShape& shape, Isa isa);

  size_t max_rows() const { return x.rows; }

  Matrix<float> x;                  // [rows, hidden] the residual stream
  Matrix<float> normed;             // [rows, hidden] a branch's input, and its output if a norm follows
  Matrix<float> paired;             // [rows, 2 * hidden] a draft head's tokens, and its other input; or no rows
  std::vector<uint32_t> positions;  // [rows]

  // Cosines and sines of the rows' positions by the model's rope tables.
  struct RopeRows {
    Matrix<float> cos, sin;  // [rows, rotary_dim / 2]
  };
  std::array<RopeRows, kMaxRopeTables> rope;

  // Region `index` of the layers' branch number `branch`, for all rows of the step. Its content lasts while one call's cells run.
  template <typename T>
  Matrix<T> Region(size_t branch, size_t index, BufferRegion region) const {
    static_assert(sizeof(T) == sizeof(float));
    TIDEMILL_DCHECK(region.per_row * Stride(region.width) * max_rows() <= regions_[branch][index].size());
    T* data = reinterpret_cast<T*>(regions_[branch][index].data());
    return Matrix<T>(data, max_rows() * region.per_row, region.width, Stride(region.width));
  }

  // Products of rows of one `source`, run as one group; y is written (or added to) at the same rows. A bias is in y before the product.
  // RunProducts reads those rows of the source and converts them to each form that the group's weights need. make(alone, first, count) fills rows
  // [first, first + count) of it just before.
  void BeginProducts(ConstMatrix<float> source) { source_ = source; }
  void AddProduct(ExecutionContext& ctx, const Linear& linear, size_t first_row, size_t rows, Matrix<float> y,
                  bool accumulate);
  void AddProduct(const WeightMatrix& weight, size_t first_row, size_t rows, Matrix<float> y, bool accumulate);
  void RunProducts(ExecutionContext& ctx) { RunProducts(ctx, AsItIs); }
  template <typename Make>
  void RunProducts(ExecutionContext& ctx, const Make& make) {
    PlaceForms(ctx);
    ForRangeBlocks(
        ctx, ranges_.size(), [this](size_t i) { return ranges_[i].count; }, source_.cols,
        [&](ExecutionContext& alone, size_t i, size_t first, size_t count) {
          make(alone, ranges_[i].first + first, count);
          FillForms(alone, ranges_[i].first + first, count);
        });
    MultiplyAndClear(ctx);
  }

  StepCounts counts;
  std::vector<DecoderCell> output_cells;  // scratch of RunDecoderCells

  std::vector<AttentionTask> attention_tasks;  // scratch of the attention branch
  SparseRowMemory sparse;                      // the same; grows with the first steps that need it
  std::vector<DeltaTask> delta_tasks;          // scratch of the delta branch
  std::vector<MemoryReadTask> memory_reads;    // scratch of the memory branches, which grows with their first steps
  std::vector<MemoryWriteTask> memory_writes;
  std::vector<const float*> inputs;  // [rows * inputs of a row] of a convolution: scratch of the delta branch

 private:
  // Of a row: an odd number of cache lines, since rows a power of two apart would share the sets of the L1 cache.
  static size_t Stride(size_t width) { return RoundUp<size_t>(width, 16) | 16; }
  friend struct StepShape;
  static size_t RowFloats(const StepShape& shape);
  template <typename Buffers, typename Place>
  static void ForEachMatrix(Buffers& b, const StepShape& s, Place place);

  struct RowRange {
    size_t first, count;
  };
  void PlaceForms(ExecutionContext& ctx);
  void FillForms(ExecutionContext& alone, size_t first, size_t count);
  void MultiplyAndClear(ExecutionContext& ctx);

  ConstMatrix<float> source_;
  bool wants_int8_ = false, wants_biased_ = false, wants_bfloat16_ = false;  // some product of the group
  std::vector<MatMulTask> products_;
  std::vector<size_t> product_rows_;  // the first row of each
  std::vector<RowRange> ranges_;      // that they read, without overlap
  size_t forms_first_ = 0;            // the row that the other forms begin with
  BFloat16Buffer bfloat16_;
  Matrix<uint16_t> bfloat16_rows_;
  QuantizedBuffer quantized_;
  AlignedBuffer memory_;
  std::vector<std::vector<std::span<float>>> regions_;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_STEP_BUFFERS_H_
