#include "models/layers/decoder_layer.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/activation.h"
#include "kernels/append_kv.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "state/kv_cache.h"

namespace tidemill {
namespace {

using Cells = std::span<const DecoderCell>;

size_t FirstRow(Cells cells) { return cells.front().cell.first_row; }
size_t NumRows(Cells cells) { return cells.back().cell.first_row + cells.back().cell.num_rows - FirstRow(cells); }

AttentionShape ShapeOf(const AttentionLayer& layer, DType kv_dtype) {
  AttentionShape shape;
  shape.heads = layer.heads;
  shape.kv_heads = layer.kv_heads;
  shape.head_dim = layer.head_dim;
  shape.scale = layer.scale;
  shape.kv_dtype = kv_dtype;
  return shape;
}

KvLayer& KvOf(const SequenceRows& rows, size_t layer) {
  LayerState& state = rows.state->layer(layer);
  TIDEMILL_DCHECK(state.kind() == StateKind::kKvCache);
  return static_cast<KvLayer&>(state);
}

// Writes the rows' keys and values, then lets each query row look at its own sequence.
void AttendCell(ExecutionContext& ctx, StepBuffers& b, const DecoderCell& c) {
  const AttentionLayer& layer = c.layer->attention;
  const AttentionShape shape = ShapeOf(layer, KvOf(c.cell.sequences.front(), c.cell.layer).dtype());
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

void RunAttention(ExecutionContext& ctx, StepBuffers& b, Cells cells) {
  const size_t first = FirstRow(cells), rows = NumRows(cells);
  bool quantized_in = false, quantized_out = false;
  for (const DecoderCell& c : cells) {
    const AttentionLayer& layer = c.layer->attention;
    RmsNorm(ctx, b.x.Rows(c.cell.first_row, c.cell.num_rows), layer.norm, c.layer->norm_eps,
            b.normed.Rows(c.cell.first_row, c.cell.num_rows));
    quantized_in = quantized_in || layer.q.quantized() || layer.k.quantized() || layer.v.quantized();
    quantized_out = quantized_out || layer.o.quantized();
  }
  const auto normed = b.Prepare(ctx, b.normed, first, rows, quantized_in);
  for (const DecoderCell& c : cells) {
    const AttentionLayer& layer = c.layer->attention;
    b.AddProduct(layer.q, normed, c.cell.first_row, c.cell.num_rows, b.q, false);
    b.AddProduct(layer.k, normed, c.cell.first_row, c.cell.num_rows, b.k, false);
    b.AddProduct(layer.v, normed, c.cell.first_row, c.cell.num_rows, b.v, false);
  }
  b.RunProducts(ctx);
  const size_t head_dim = cells.front().layer->attention.head_dim;
  ApplyRope(ctx, b.cos.Rows(first, rows), b.sin.Rows(first, rows), head_dim, b.q.Rows(first, rows));
  ApplyRope(ctx, b.cos.Rows(first, rows), b.sin.Rows(first, rows), head_dim, b.k.Rows(first, rows));
  for (const DecoderCell& c : cells) AttendCell(ctx, b, c);
  const auto attended = b.Prepare(ctx, b.attended, first, rows, quantized_out);
  for (const DecoderCell& c : cells)
    b.AddProduct(c.layer->attention.o, attended, c.cell.first_row, c.cell.num_rows, b.x, true);
  b.RunProducts(ctx);
}

void RunMlp(ExecutionContext& ctx, StepBuffers& b, Cells cells) {
  const size_t first = FirstRow(cells), rows = NumRows(cells);
  bool quantized_in = false, quantized_out = false;
  for (const DecoderCell& c : cells) {
    const GatedMlp& mlp = c.layer->mlp;
    RmsNorm(ctx, b.x.Rows(c.cell.first_row, c.cell.num_rows), mlp.norm, c.layer->norm_eps,
            b.normed.Rows(c.cell.first_row, c.cell.num_rows));
    quantized_in = quantized_in || mlp.gate.quantized() || mlp.up.quantized();
    quantized_out = quantized_out || mlp.down.quantized();
  }
  const auto normed = b.Prepare(ctx, b.normed, first, rows, quantized_in);
  for (const DecoderCell& c : cells) {
    b.AddProduct(c.layer->mlp.gate, normed, c.cell.first_row, c.cell.num_rows, b.gate, false);
    b.AddProduct(c.layer->mlp.up, normed, c.cell.first_row, c.cell.num_rows, b.up, false);
  }
  b.RunProducts(ctx);
  GatedActivate(ctx, Activation::kSilu, b.gate.Rows(first, rows), b.up.Rows(first, rows), b.gate.Rows(first, rows));
  const auto gated = b.Prepare(ctx, b.gate, first, rows, quantized_out);
  for (const DecoderCell& c : cells)
    b.AddProduct(c.layer->mlp.down, gated, c.cell.first_row, c.cell.num_rows, b.x, true);
  b.RunProducts(ctx);
}

}  // namespace

void RunDecoderCells(ExecutionContext& ctx, StepBuffers& buffers, std::span<const DecoderCell> cells) {
  if (cells.empty()) return;
  RunAttention(ctx, buffers, cells);
  RunMlp(ctx, buffers, cells);
}

size_t DecoderLayerScratchBytes(const DecoderLayer& layer) {
  size_t bytes = AttentionScratchBytes(ShapeOf(layer.attention, DType::kF32));
  for (const WeightMatrix* weight : layer.matrices()) bytes = std::max(bytes, MatMulScratchBytes(*weight));
  return bytes;
}

}  // namespace tidemill
