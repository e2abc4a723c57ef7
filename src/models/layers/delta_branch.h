// Gated DeltaNet: linear attention whose state forgets by a gate and corrects by the delta rule.                      arXiv:2412.06464
//
//   [q | k | v] = silu(conv(qkv x));  q, k <- l2(q) / sqrt(key_dim), l2(k) by head;  beta = sigmoid(b x);  g = decay softplus(a x + dt_bias)
//   y = the delta rule over q, k, v, beta, g (kernels/delta_rule.h);  result = out(rms(y) by head * silu(z x))
#ifndef TIDEMILL_MODELS_LAYERS_DELTA_BRANCH_H_
#define TIDEMILL_MODELS_LAYERS_DELTA_BRANCH_H_

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/delta_rule.h"
#include "models/layers/branch.h"
#include "models/layers/norm.h"
#include "state/cell.h"
#include "state/linear_layer.h"

namespace tidemill {

struct DeltaLayer {
  Linear qkv = {};                  // [channels(), hidden]: all of q, then k, then v
  Linear z = {};                    // [value_heads * value_dim, hidden]
  Linear b = {}, a = {};            // [value_heads, hidden]
  std::vector<float> conv = {};     // [conv_width, channels()]: the newest input's weights last
  std::vector<float> decay = {};    // [value_heads] below 0: -exp(A_log)
  std::vector<float> dt_bias = {};  // [value_heads]
  Norm norm = {};                   // [value_dim], of each value head
  Linear out = {};                  // [hidden, value_heads * value_dim]
  size_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  // value_heads is a multiple of key_heads
  size_t conv_width = 0;
  bool tiled = false;  // value head h reads key head h % key_heads; else h / (value_heads / key_heads)

  size_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

class DeltaBranch : public Branch {
 public:
  explicit DeltaBranch(DeltaLayer layer) : layer_(std::move(layer)) {}

  size_t num_states() const override { return 1; }
  void AddStates(const StateOptions& options, SequenceState::Layers* layers) const override;
  std::vector<BufferRegion> Regions() const override;
  size_t num_inputs() const override { return layer_.conv_width; }
  std::optional<DeltaShape> delta_shape() const override { return shape({}).delta; }
  void ForEachWeight(const WeightVisitor& visit) const override;
  uint64_t other_bytes() const override;
  size_t ScratchBytes() const override { return DeltaScratchBytes(); }
  void AddWork(DType kv_dtype, BranchWork* work) const override;
  bool RunsWith(const Branch& other) const override;
  void Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;
  void AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const override;

 private:
  enum Region : size_t { kProjected, kConvolved, kZ, kBeta, kG, kY };
  size_t key_width() const { return layer_.key_heads * layer_.key_dim; }
  size_t value_width() const { return layer_.value_heads * layer_.value_dim; }
  LinearShape shape(const DeltaClass& form) const;
  struct Buffers {
    Matrix<float> projected, convolved;  // [rows, channels]
    Matrix<float> z, y;                  // [rows, value_width]
    Matrix<float> beta, g;               // [rows, value_heads]
  };
  Buffers BuffersOf(const StepBuffers& b, const BranchCells& cells) const;
  void MakeInputs(ExecutionContext& ctx, StepBuffers& b, const Buffers& own, size_t first, size_t rows) const;
  void Remember(ExecutionContext& ctx, StepBuffers& b, const Buffers& own, std::span<const SequenceRows> sequences,
                size_t state) const;

  DeltaLayer layer_;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_DELTA_BRANCH_H_
