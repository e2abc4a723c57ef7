// The two branches of decoder layers, over lists of cells; decoder_layer.cc puts them around the residual stream.
#ifndef TIDEMILL_MODELS_LAYERS_BRANCHES_H_
#define TIDEMILL_MODELS_LAYERS_BRANCHES_H_

#include <algorithm>
#include <span>

#include "models/layers/decoder_layer.h"

namespace tidemill {

using DecoderCells = std::span<const DecoderCell>;

// A branch's input, made just before its products read it: out = norm of b.x, or b.x itself if the norm follows the sum.
struct InputNorm {
  StepBuffers& b;
  DecoderCells cells;
  Norm DecoderLayer::*norm;
  Matrix<float> out = b.normed;

  void operator()(ExecutionContext& alone, size_t first, size_t count) const;
};

// The input of `down`: b.gate = f(b.gate) * b.up, or f(b.up) without a gate.
struct GateRows {
  StepBuffers& b;
  DecoderCells cells;

  void operator()(ExecutionContext& alone, size_t first, size_t count) const;
};

// From b.x to b.attended, all but the output product: norm; q, k, v; norms by head; rope; keys and values into the states; attention.
void RunAttention(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells);

// From b.x to b.gate and b.up, before the activation.
void RunMlp(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells);

// From b.x, the whole branch: the mixture's sum is added to b.x, or replaces b.normed if the layer has an mlp_out_norm.
void RunMixture(ExecutionContext& ctx, StepBuffers& b, const DecoderCell& cell);

// Calls f(cell, first, count) for the parts of rows [first, first + count) of each cell.
template <typename F>
void ForCellRows(DecoderCells cells, size_t first, size_t count, const F& f) {
  for (const DecoderCell& c : cells) {
    const size_t begin = std::max(first, c.cell.first_row),
                 end = std::min(first + count, c.cell.first_row + c.cell.num_rows);
    if (begin < end) f(c, begin, end - begin);
  }
}

size_t AttentionScratchBytes(const AttentionLayer& layer);
size_t MixtureScratchBytes(const MixtureOfExperts& mixture);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_BRANCHES_H_
