#include <algorithm>

#include "base/check.h"
#include "kernels/append_kv.h"
#include "kernels/attention.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "models/layers/branches.h"
#include "state/kv_layer.h"

namespace tidemill {
namespace {

KvLayer& KvOf(const SequenceRows& rows, size_t layer) {
  LayerState& state = rows.state->layer(layer);
  TIDEMILL_DCHECK(state.kind() == StateKind::kKv);
  return static_cast<KvLayer&>(state);
}

// What the last commits left to do in this layer: in the thread pool where that is worth waking it. Of a sequence's chunks the first one
// does it.
void SettleCell(ExecutionContext& ctx, const Cell& cell) {
  constexpr uint64_t kFewestBytes = uint64_t{1} << 16;
  size_t parts = 0;
  uint64_t bytes = 0;
  const auto for_each = [&cell](const auto& f) {
    for (const SequenceRows& rows : cell.sequences) {
      if (rows.slot == 0) f(rows.state->layer(cell.layer));
    }
  };
  for_each([&](LayerState& state) {
    parts += state.num_settle_parts();
    bytes += state.settle_bytes();
  });
  if (parts == 0) return;
  if (bytes < kFewestBytes) return for_each([](LayerState& state) { state.Settle(); });
  ctx.threads().ParallelFor(parts, [&](size_t part, size_t) {
    size_t first = 0;  // of the state's parts
    for_each([&](LayerState& state) {
      const size_t count = state.num_settle_parts();
      if (part >= first && part < first + count) state.SettlePart(part - first);
      first += count;
    });
  });
  for_each([](LayerState& state) {
    if (state.num_settle_parts() != 0) state.EndSettle();
  });
}

// Lets each query row look at its own sequence.
void AttendCell(ExecutionContext& ctx, StepBuffers& b, const DecoderCell& c) {
  const AttentionLayer& layer = c.layer->attention;
  const AttentionShape shape = layer.shape(KvOf(c.cell.sequences.front(), c.cell.layer).dtype());
  b.attention_tasks.clear();
  for (const SequenceRows& rows : c.cell.sequences) {
    KvLayer& kv = KvOf(rows, c.cell.layer);
    b.attention_tasks.push_back({.context = kv.Context(rows.last_slot()),
                                 .first_position = rows.first_position(),
                                 .visibility = Visibility::kCausal,
                                 .q = b.q.Rows(rows.first_row, rows.num_rows),
                                 .out = b.attended.Rows(rows.first_row, rows.num_rows),
                                 .parents = rows.parents});
  }
  Attention(ctx, shape, b.attention_tasks);
}

// Of rows [first, first + count) of one cell: norms by head and rope on queries and keys, then keys and values into the states.
void PlaceRows(ExecutionContext& alone, StepBuffers& b, const DecoderCell& c, size_t first, size_t count) {
  const AttentionLayer& layer = c.layer->attention;
  const Matrix<float> q = b.q.Rows(first, count), k = b.k.Rows(first, count);
  if (layer.q_norm.present()) RmsNormHeads(alone, q, layer.head_dim, layer.q_norm.weight, layer.q_norm.eps);
  if (layer.k_norm.present()) RmsNormHeads(alone, k, layer.head_dim, layer.k_norm.weight, layer.k_norm.eps);
  if (layer.rope != AttentionLayer::kNoRope) {
    const StepBuffers::RopeRows& rope = b.rope[layer.rope];
    const Matrix<float> cos = rope.cos.Rows(first, count), sin = rope.sin.Rows(first, count);
    ApplyRope(alone, cos, sin, layer.head_dim, q);
    ApplyRope(alone, cos, sin, layer.head_dim, k);
  }
  for (const SequenceRows& rows : c.cell.sequences) {
    const size_t begin = std::max(first, rows.first_row), end = std::min(first + count, rows.first_row + rows.num_rows);
    if (begin >= end) continue;
    KvLayer& kv = KvOf(rows, c.cell.layer);
    const KvLayer::StepRows out = kv.View();
    const size_t at = kv.shape().RowBytes(kv.dtype()) * (rows.slot + begin - rows.first_row);
    AppendKv(alone, b.k.Rows(begin, end - begin), layer.head_dim, kv.dtype(), out.head_stride, out.k + at);
    AppendKv(alone, b.v.Rows(begin, end - begin), layer.head_dim, kv.dtype(), out.head_stride, out.v + at);
  }
}

}  // namespace

void RunAttention(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells) {
  const bool reads_tokens = cells.front().layer->reads_tokens;
  b.BeginProducts(reads_tokens ? b.paired : b.normed);
  for (const DecoderCell& c : cells) {
    const AttentionLayer& layer = c.layer->attention;
    b.AddProduct(ctx, layer.q, c.cell.first_row, c.cell.num_rows, b.q, false);
    b.AddProduct(ctx, layer.k, c.cell.first_row, c.cell.num_rows, b.k, false);
    b.AddProduct(ctx, layer.v, c.cell.first_row, c.cell.num_rows, b.v, false);
  }
  const Matrix<float> normed = reads_tokens ? b.paired.Cols(b.x.cols, b.x.cols) : b.normed;
  b.RunProducts(ctx, InputNorm{b, cells, &DecoderLayer::attention_norm, normed});
  for (const DecoderCell& c : cells) {
    SettleCell(ctx, c.cell);
    const size_t width = b.q.cols + b.k.cols + b.v.cols;
    ForRowBlocks(ctx, c.cell.num_rows, width, [&](ExecutionContext& alone, size_t first, size_t count) {
      PlaceRows(alone, b, c, c.cell.first_row + first, count);
    });
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
