// A transformer decoder layer: an attention branch and a feed-forward branch around the residual stream. Norms, biases, gates, windows
// and the branches' order are options; a family adds no code.
//
//   sequential  x <- x + An'(attention(An(x)));      x <- x + Fn'(ffn(Fn(x)))          arXiv:2302.13971; An', Fn': Gemma 3
//   parallel    x <- x + attention(An(x)) + ffn(Fn(x))                                 arXiv:2204.06745
//   post-norm   x <- An(x + attention(x));           x <- Fn(x + ffn(x))               arXiv:1706.03762, OPT-350M
//   with tokens x <- x + attention([t ; An(x)]);     x <- x + ffn(Fn(x))               arXiv:2503.01840; t: in StepBuffers::paired
//
// Each matrix operation is one group over cells of one form.
#ifndef TIDEMILL_MODELS_LAYERS_DECODER_LAYER_H_
#define TIDEMILL_MODELS_LAYERS_DECODER_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/execution_context.h"
#include "kernels/expert_routing.h"
#include "kernels/row_blocks.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/step_buffers.h"
#include "state/cell.h"

namespace tidemill {

struct AttentionLayer {
  static constexpr size_t kNoRope = SIZE_MAX;

  Linear q = {};                  // [heads * head_dim, hidden], or 2 * hidden if the layer reads tokens
  Linear k = {}, v = {};          // [kv_heads * head_dim, as q]
  Linear o = {};                  // [hidden, heads * head_dim]
  Norm q_norm = {}, k_norm = {};  // of each head, [head_dim]; RMS or none
  size_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;     // of the scores
  float soft_cap = 0;  // of the scores; 0: none
  size_t window = 0;   // positions that a row sees, itself included; 0: all
  size_t rope = 0;     // which of the model's rope tables; kNoRope: positions come with the embedding

  uint64_t bytes() const;
  AttentionShape shape(DType kv_dtype) const;
};

// down(f(gate x) * up x), or down(f(up x)) without a gate.
struct Mlp {
  Activation activation = Activation::kSilu;
  Linear gate = {};  // [ffn, hidden] or not present
  Linear up = {};    // [ffn, hidden]
  Linear down = {};  // [hidden, ffn]

  uint64_t bytes() const { return gate.bytes() + up.bytes() + down.bytes(); }
  // Calls f(linear) for each that is there.
  template <typename F>
  void ForEachLinear(const F& f) const {
    for (const Linear* linear : {&gate, &up, &down}) {
      if (linear->present()) f(*linear);
    }
  }
};

// Each row goes through the `per_token` experts of the highest router probability, weighted by it.       arXiv:2101.03961
struct MixtureOfExperts {
  Linear router = {};             // [experts, hidden]
  std::vector<Mlp> experts = {};  // none: the layer has a plain Mlp. All of one shape, without biases
  size_t per_token = 0;
  Normalise normalise = Normalise::kOverChosen;

  bool present() const { return !experts.empty(); }
  uint64_t bytes() const;
};

enum class Residual : uint8_t { kSequential, kParallel, kPostNorm };

struct DecoderLayer {
  Residual residual = Residual::kSequential;
  bool reads_tokens = false;              // "with tokens"; sequential only
  Norm attention_norm, mlp_norm;          // An, Fn
  Norm attention_out_norm, mlp_out_norm;  // An', Fn'; sequential only
  AttentionLayer attention;
  Mlp mlp;                   // unless `mixture` is present
  MixtureOfExperts mixture;  // sequential only

  uint64_t bytes() const;
  // Calls f(linear) for each that every row goes through: all but the experts'.
  template <typename F>
  void ForEachLinear(const F& f) const {
    for (const Linear* linear : {&attention.q, &attention.k, &attention.v, &attention.o}) {
      if (linear->present()) f(*linear);
    }
    mlp.ForEachLinear(f);
    if (mixture.router.present()) f(mixture.router);
  }
  // Of its matrix products for `rows` rows; rows * per_token spread evenly over experts.
  Cost ProductCost(size_t rows, Isa isa) const;
  // A row's work beside products and attention.
  std::vector<RowWork> RowWorks() const;
  // Loops over threads of a step's products and attention.
  size_t Loops() const { return mixture.present() ? 6 : 5; }
};

struct DecoderCell {
  const DecoderLayer* layer = nullptr;
  Cell cell;
};

// Runs cells of any layers, none of which needs another's result: x of their rows is read and updated, rope holds the rows' angles. The
// states have reserved the rows and keep them uncommitted. Cells of one form that stand side by side run as one. Allocates nothing after
// the first steps.
void RunDecoderCells(ExecutionContext& ctx, StepBuffers& buffers, std::span<const DecoderCell> cells);

// Scratch of a thread for this layer.
size_t DecoderLayerScratchBytes(const DecoderLayer& layer);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_DECODER_LAYER_H_
