// Everything a step of a decoder stack writes besides the state: allocated once, for the most rows a step may have.
#ifndef TIDEMILL_MODELS_LAYERS_STEP_BUFFERS_H_
#define TIDEMILL_MODELS_LAYERS_STEP_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/activations.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "tensor/matrix.h"
#include "tidemill/result.h"

namespace tidemill {

struct StepShape {
  size_t hidden = 0;
  size_t q_dim = 0;   // heads * head_dim
  size_t kv_dim = 0;  // kv_heads * head_dim
  size_t ffn = 0;
  size_t rotary_dim = 0;
};

class StepBuffers {
 public:
  static Result<StepBuffers> Create(const StepShape& shape, size_t max_rows, Isa isa);
  // Bytes that one row takes.
  static size_t RowBytes(const StepShape& shape, Isa isa);

  size_t max_rows() const { return x.rows; }

  Matrix<float> x;                  // [rows, hidden] the residual stream
  Matrix<float> normed;             // [rows, hidden]
  Matrix<float> q;                  // [rows, q_dim]
  Matrix<float> k, v;               // [rows, kv_dim]
  Matrix<float> attended;           // [rows, q_dim]
  Matrix<float> gate, up;           // [rows, ffn]
  Matrix<float> cos, sin;           // [rows, rotary_dim / 2] of the rows' positions
  std::vector<uint32_t> positions;  // [rows]

  // Activations in the form that each weight wants: rows [first, first + count) of `source`, quantised as well if `quantized`.
  // Replaces what the last call prepared.
  struct Prepared {
    ConstMatrix<float> f32;
    QuantizedRows quantized;
    size_t first_row = 0;
  };
  Prepared Prepare(ExecutionContext& ctx, ConstMatrix<float> source, size_t first, size_t count, bool quantized);

  // Products to be run as one group.
  void AddProduct(const WeightMatrix& weight, const Prepared& input, size_t first_row, size_t rows, Matrix<float> y,
                  bool accumulate);
  void RunProducts(ExecutionContext& ctx);

  std::vector<AttentionTask> attention_tasks;  // scratch of the attention layer

 private:
  std::vector<MatMulTask> products_;
  QuantizedBuffer quantized_;
  AlignedBuffer memory_;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_STEP_BUFFERS_H_
