// The two branches of decoder layers, over lists of cells; decoder_layer.cc puts them around the residual stream.
#ifndef TIDEMILL_MODELS_LAYERS_BRANCHES_H_
#define TIDEMILL_MODELS_LAYERS_BRANCHES_H_

#include <span>

#include "models/layers/decoder_layer.h"

namespace tidemill {

using DecoderCells = std::span<const DecoderCell>;

inline size_t FirstRow(DecoderCells cells) { return cells.front().cell.first_row; }
inline size_t NumRows(DecoderCells cells) {
  return cells.back().cell.first_row + cells.back().cell.num_rows - FirstRow(cells);
}

// From b.normed to b.attended, all but the output product: q, k, v; norms by head; rope; keys and values into the states; attention.
void RunAttention(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells);

// From b.normed to b.gate, all but the output product.
void RunMlp(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells);

// From b.normed, the whole branch: the mixture's sum is added to b.x, or replaces b.normed where the cell's layer has an mlp_out_norm.
void RunMixture(ExecutionContext& ctx, StepBuffers& b, const DecoderCell& cell);

size_t AttentionScratchBytes(const AttentionLayer& layer);
size_t MixtureScratchBytes(const MixtureOfExperts& mixture);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_BRANCHES_H_
