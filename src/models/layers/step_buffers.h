// All that a step of a decoder stack writes besides the state: allocated once, for the most rows of a step.
#ifndef TIDEMILL_MODELS_LAYERS_STEP_BUFFERS_H_
#define TIDEMILL_MODELS_LAYERS_STEP_BUFFERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/activations.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/row_blocks.h"
#include "models/layers/linear.h"
#include "tensor/matrix.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr size_t kMaxRopeTables = 2;

// The maximum of each over the stack's layers.
struct StepShape {
  size_t hidden = 0;
  size_t q_dim = 0;   // heads * head_dim
  size_t kv_dim = 0;  // kv_heads * head_dim
  size_t ffn = 0;     // of plain feed-forward layers
  std::array<size_t, kMaxRopeTables> rotary_dims = {};
  size_t experts = 0, experts_per_token = 0, expert_ffn = 0;  // of mixtures
  bool bfloat16_weights = false, quantized_weights = false;   // some weight is
  bool q8_0_weights = false;                                  // some weight is
  bool paired = false;                                        // has StepBuffers::paired
  size_t feature_width = 0;                                   // of the target's features
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
  Matrix<float> q;                  // [rows, q_dim]
  Matrix<float> k, v;               // [rows, kv_dim]
  Matrix<float> attended;           // [rows, q_dim]
  Matrix<float> gate, up;           // [rows, ffn]
  std::vector<uint32_t> positions;  // [rows]

  // Cosines and sines of the rows' positions by the model's rope tables.
  struct RopeRows {
    Matrix<float> cos, sin;  // [rows, rotary_dim / 2]
  };
  std::array<RopeRows, kMaxRopeTables> rope;

  // Of one cell's mixture of experts. A slot is one (row, expert) pair.
  struct ExpertRows {
    Matrix<float> logits;                 // [rows, experts]
    Matrix<float> in, out;                // [rows * experts_per_token, hidden]
    Matrix<float> gate, up;               // [rows * experts_per_token, expert_ffn]
    std::vector<float> weights;           // [rows * experts_per_token]
    std::vector<uint32_t> chosen, slots;  // [rows * experts_per_token]
    std::vector<uint32_t> order;          // [rows * experts_per_token]
    std::vector<uint32_t> offsets;        // [experts + 1]
  };
  ExpertRows experts;

  // Products of rows of one `source`, run as one group; y is written (or added to) at the same rows. A bias is in y before the product.
  // RunProducts reads the source and converts it to each form that the group's weights need. make(alone, first, count) fills rows
  // [first, first + count) of it just before.
  void BeginProducts(ConstMatrix<float> source) { source_ = source; }
  void AddProduct(ExecutionContext& ctx, const Linear& linear, size_t first_row, size_t rows, Matrix<float> y,
                  bool accumulate);
  void AddProduct(const WeightMatrix& weight, size_t first_row, size_t rows, Matrix<float> y, bool accumulate);
  void RunProducts(ExecutionContext& ctx) { RunProducts(ctx, AsItIs); }
  template <typename Make>
  void RunProducts(ExecutionContext& ctx, const Make& make) {
    const RowRange rows = PlaceForms(ctx);
    ForRowBlocks(ctx, rows.count, source_.cols, [&](ExecutionContext& alone, size_t first, size_t count) {
      make(alone, rows.first + first, count);
      FillForms(alone, rows.first, first, count);
    });
    MultiplyAndClear(ctx);
  }

  std::vector<AttentionTask> attention_tasks;  // scratch of the attention branch

 private:
  struct RowRange {
    size_t first, count;
  };
  RowRange PlaceForms(ExecutionContext& ctx);
  void FillForms(ExecutionContext& alone, size_t begin, size_t first, size_t count);
  void MultiplyAndClear(ExecutionContext& ctx);

  ConstMatrix<float> source_;
  bool wants_int8_ = false, wants_biased_ = false, wants_bfloat16_ = false;  // some product of the group
  std::vector<MatMulTask> products_;
  std::vector<size_t> product_rows_;  // the first row of each
  BFloat16Buffer bfloat16_;
  Matrix<uint16_t> bfloat16_rows_;
  QuantizedBuffer quantized_;
  AlignedBuffer memory_;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_STEP_BUFFERS_H_
