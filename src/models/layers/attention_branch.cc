#include <algorithm>

#include "base/check.h"
#include "kernels/append_kv.h"
#include "kernels/attention.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "models/layers/branches.h"
#include "state/kv_cache.h"

namespace tidemill {
namespace {

KvLayer& KvOf(const SequenceRows& rows, size_t layer) {
  LayerState& state = rows.state->layer(layer);
  TIDEMILL_DCHECK(state.kind() == StateKind::kKvCache);
  return static_cast<KvLayer&>(state);
}

// Writes the rows' keys and values, then lets each query row look at its own sequence.
void AttendCell(ExecutionContext& ctx, StepBuffers& b, const DecoderCell& c) {
  const AttentionLayer& layer = c.layer->attention;
  const AttentionShape shape = layer.shape(KvOf(c.cell.sequences.front(), c.cell.layer).dtype());
  b.attention_tasks.clear();
  for (const SequenceRows& rows : c.cell.sequences) {
    KvLayer& kv = KvOf(rows, c.cell.layer);
    const KvLayer::StepRows out = kv.View();
    AppendKv(ctx, b.k.Rows(rows.first_row, rows.num_rows), layer.head_dim, shape.kv_dtype, out.head_stride, out.k);
    AppendKv(ctx, b.v.Rows(rows.first_row, rows.num_rows), layer.head_dim, shape.kv_dtype, out.head_stride, out.v);
    b.attention_tasks.push_back({.context = kv.Context(rows.num_rows),
                                 .first_position = rows.state->length(),
                                 .visibility = Visibility::kCausal,
                                 .q = b.q.Rows(rows.first_row, rows.num_rows),
                                 .out = b.attended.Rows(rows.first_row, rows.num_rows)});
  }
  Attention(ctx, shape, b.attention_tasks);
}

// Norms by head and rope, on the queries and keys of one cell.
void PlaceHeads(ExecutionContext& ctx, StepBuffers& b, const DecoderCell& c) {
  const AttentionLayer& layer = c.layer->attention;
  const Matrix<float> q = b.q.Rows(c.cell.first_row, c.cell.num_rows), k = b.k.Rows(c.cell.first_row, c.cell.num_rows);
  if (layer.q_norm.present()) RmsNormHeads(ctx, q, layer.head_dim, layer.q_norm.weight, layer.q_norm.eps);
  if (layer.k_norm.present()) RmsNormHeads(ctx, k, layer.head_dim, layer.k_norm.weight, layer.k_norm.eps);
  if (layer.rope == AttentionLayer::kNoRope) return;
  const StepBuffers::RopeRows& rope = b.rope[layer.rope];
  const Matrix<float> cos = rope.cos.Rows(c.cell.first_row, c.cell.num_rows);
  const Matrix<float> sin = rope.sin.Rows(c.cell.first_row, c.cell.num_rows);
  ApplyRope(ctx, cos, sin, layer.head_dim, q);
  ApplyRope(ctx, cos, sin, layer.head_dim, k);
}

}  // namespace

void RunAttention(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells) {
  b.BeginProducts(b.normed);
  for (const DecoderCell& c : cells) {
    const AttentionLayer& layer = c.layer->attention;
    b.AddProduct(ctx, layer.q, c.cell.first_row, c.cell.num_rows, b.q, false);
    b.AddProduct(ctx, layer.k, c.cell.first_row, c.cell.num_rows, b.k, false);
    b.AddProduct(ctx, layer.v, c.cell.first_row, c.cell.num_rows, b.v, false);
  }
  b.RunProducts(ctx, InputNorm{b, cells, &DecoderLayer::attention_norm});
  for (const DecoderCell& c : cells) {
    PlaceHeads(ctx, b, c);
    AttendCell(ctx, b, c);
  }
}

size_t AttentionScratchBytes(const AttentionLayer& layer) {
  size_t bytes = AttentionScratchBytes(layer.shape(DType::kF32));
  for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.o})
    bytes = std::max(bytes, MatMulScratchBytes(linear->weight));
  return bytes;
}

}  // namespace tidemill
