// A pre-norm transformer decoder layer: attention, then a gated feed-forward, each added to the residual stream.
//   x <- x + O attention(rope(Q n(x)), rope(K n(x)), V n(x));   x <- x + D (silu(G n(x)) * U n(x));   n: RMS norm
// arXiv:2302.13971. The layer runs a list of cells at once: each operation is one group over all of them.
#ifndef TIDEMILL_MODELS_LAYERS_DECODER_LAYER_H_
#define TIDEMILL_MODELS_LAYERS_DECODER_LAYER_H_

#include <array>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/execution_context.h"
#include "kernels/weight_matrix.h"
#include "models/layers/step_buffers.h"
#include "state/cell.h"

namespace tidemill {

struct AttentionLayer {
  std::vector<float> norm;  // [hidden]
  WeightMatrix q;           // [heads * head_dim, hidden]
  WeightMatrix k, v;        // [kv_heads * head_dim, hidden]
  WeightMatrix o;           // [hidden, heads * head_dim]
  size_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
};

struct GatedMlp {
  std::vector<float> norm;  // [hidden]
  WeightMatrix gate, up;    // [ffn, hidden]
  WeightMatrix down;        // [hidden, ffn]
};

struct DecoderLayer {
  float norm_eps = 0;
  AttentionLayer attention;
  GatedMlp mlp;

  // Every matrix: what sizes, costs and scratch are summed over.
  std::array<const WeightMatrix*, 7> matrices() const {
    return {&attention.q, &attention.k, &attention.v, &attention.o, &mlp.gate, &mlp.up, &mlp.down};
  }
};

struct DecoderCell {
  const DecoderLayer* layer = nullptr;
  Cell cell;
};

// Runs the cells, whose rows follow each other in `buffers`: x is read and updated, cos and sin hold the rows' angles. The states have
// room for the rows (Reserve) and keep them uncommitted. Steady state allocates nothing.
void RunDecoderCells(ExecutionContext& ctx, StepBuffers& buffers, std::span<const DecoderCell> cells);

// Scratch a thread needs for this layer.
size_t DecoderLayerScratchBytes(const DecoderLayer& layer);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_DECODER_LAYER_H_
