#include "models/layers/attention_branch.h"

#include <algorithm>
#include <memory>
#include <string>

#include "kernels/activation.h"
#include "kernels/append_kv.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "models/layers/branch_cells.h"
#include "models/layers/sparse_rows.h"
#include "state/kv_layer.h"
#include "state/segment_kv_layer.h"
#include "state/sparse_kv_layer.h"

namespace tidemill {
namespace {

KvLayer& KvOf(const SequenceRows& rows, size_t state) { return BranchCells::StateOf<KvLayer>(rows, state); }

// Of layers, whose shapes have neither sinks nor bias.
bool AreEqual(const AttentionShape& a, const AttentionShape& b) {
  return a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim && a.scale == b.scale &&
         a.kv_dtype == b.kv_dtype && a.soft_cap == b.soft_cap && a.window == b.window;
}

bool HasSparse(const Cell& cell, size_t state) {
  return std::any_of(cell.sequences.begin(), cell.sequences.end(),
                     [state](const SequenceRows& rows) { return NeedsSparse(KvOf(rows, state), rows); });
}

void AddTasks(StepBuffers& b, ConstMatrix<float> q, Matrix<float> out, const Cell& cell, size_t state) {
  for (const SequenceRows& rows : cell.sequences) {
    KvLayer& kv = KvOf(rows, state);
    const size_t dense = NumDenseRows(kv, rows);
    if (dense == 0) continue;
    b.attention_tasks.push_back({.context = kv.Context(rows.slot + dense),
                                 .first_position = kv.PositionOf(rows.slot),
                                 .visibility = rows.visibility,
                                 .q = q.Rows(rows.first_row, dense),
                                 .out = out.Rows(rows.first_row, dense),
                                 .parents = rows.parents.empty() ? rows.parents : rows.parents.first(dense)});
  }
}

}  // namespace

void AttentionBranch::AddStates(const StateOptions& options, SequenceState::Layers* layers) const {
  const KvOptions kv{.dtype = options.kv_dtype,
                     .growth = options.growth,
                     .max_length = options.max_length,
                     .pages = options.pages,
                     .ledger = options.ledger};
  const KvLayerShape rows{.kv_heads = layer_.kv_heads, .head_dim = layer_.head_dim, .window = layer_.window};
  if (options.segments) {
    layers->push_back(std::make_unique<SegmentKvLayer>(rows, kv, *options.segments, options.last_segment));
  } else if (options.own_sparse) {
    const SparseLayer& sparse = *options.own_sparse;
    layers->push_back(std::make_unique<SparseKvLayer>(rows, kv, sparse.form, sparse.columns));
  } else {
    layers->push_back(std::make_unique<KvLayer>(rows, kv));
  }
}

// The elements of a block share a scale, and a row of one head is whole blocks.
Result<void> AttentionBranch::CheckKvType(DType kv_dtype) const {
  const size_t block = InfoOf(kv_dtype).block_elements;
  if (layer_.head_dim % block == 0) return {};
  return Error(ErrorCode::kUnsupported, "expected a head_dim that is a multiple of " + std::to_string(block) +
                                            ", found " + std::to_string(layer_.head_dim));
}

std::vector<BufferRegion> AttentionBranch::Regions() const {
  std::vector<BufferRegion> regions = {{q_dim()}, {kv_dim()}, {kv_dim()}, {q_dim()}};
  if (layer_.gate.present()) regions.push_back({gate_dim()});
  return regions;
}

AttentionBranch::Buffers AttentionBranch::BuffersOf(const StepBuffers& b, const BranchCells& cells) const {
  const auto region = [&](Region index, size_t width) { return cells.Region<float>(b, index, {width}); };
  Buffers own{region(kQ, q_dim()), region(kK, kv_dim()), region(kV, kv_dim()), region(kAttended, q_dim()), {}};
  if (layer_.gate.present()) own.gate = region(kGate, gate_dim());
  return own;
}

void AttentionBranch::ForEachWeight(const WeightVisitor& visit) const {
  for (const Linear* linear : {&layer_.q, &layer_.k, &layer_.v, &layer_.gate, &layer_.o}) {
    const bool stored = linear == &layer_.k || linear == &layer_.v;
    if (linear->present()) visit({.linear = *linear, .of_outputs = !stored});
  }
}

void AttentionBranch::AddWork(DType kv_dtype, BranchWork* work) const {
  work->attention.push_back(shape(kv_dtype));
  const auto add = [work](size_t cols, size_t times = 1) {
    work->rows.push_back({.cols = cols, .elements = times * cols});
  };
  add(layer_.q.weight.cols());                                   // normed and quantised, for q, k and v
  add(q_dim() + 2 * kv_dim(), layer_.q_norm.present() ? 2 : 1);  // rotated and stored; normed by head
  add(q_dim(), layer_.gate.present() ? 2 : 1);                   // quantised, for o; gated
  work->loops += 3;
  const KvLayerShape rows{.kv_heads = layer_.kv_heads, .head_dim = layer_.head_dim};
  if (layer_.window == 0) work->state_row_bytes += rows.PositionBytes(kv_dtype);
}

AttentionShape AttentionBranch::shape(DType kv_dtype) const {
  AttentionShape shape;
  shape.heads = layer_.heads;
  shape.kv_heads = layer_.kv_heads;
  shape.head_dim = layer_.head_dim;
  shape.scale = layer_.scale;
  shape.kv_dtype = kv_dtype;
  shape.soft_cap = layer_.soft_cap;
  shape.window = layer_.window;
  return shape;
}

bool AttentionBranch::RunsWith(const Branch& other) const {
  const auto* a = dynamic_cast<const AttentionBranch*>(&other);
  return a != nullptr && a->q_dim() == q_dim() && a->kv_dim() == kv_dim() && a->gate_dim() == gate_dim() &&
         a->layer_.reads_tokens == layer_.reads_tokens;
}

void AttentionBranch::PlaceQueries(ExecutionContext& alone, const StepBuffers& b, const Buffers& own, size_t first,
                                   size_t count) const {
  NormAndTurn(alone, b, layer_.q_norm, first, own.q.Rows(first, count));
}

// Of rows from `first` on: norms by head and rope.
void AttentionBranch::NormAndTurn(ExecutionContext& alone, const StepBuffers& b, const Norm& norm, size_t first,
                                  Matrix<float> rows) const {
  const size_t head_dim = layer_.head_dim;
  if (norm.present()) RmsNormHeads(alone, rows, head_dim, norm.weight, norm.eps);
  if (layer_.rope == AttentionLayer::kNoRope) return;
  const StepBuffers::RopeRows& rope = b.rope[layer_.rope];
  ApplyRope(alone, rope.cos.Rows(first, rows.rows), rope.sin.Rows(first, rows.rows), head_dim, rows);
}

// Keys and values of rows [first, first + count) of one cell into the states.
void AttentionBranch::PlaceRows(ExecutionContext& alone, const StepBuffers& b, const Buffers& own, const Cell& cell,
                                size_t state, size_t first, size_t count) const {
  NormAndTurn(alone, b, layer_.k_norm, first, own.k.Rows(first, count));
  const size_t head_dim = layer_.head_dim;
  ForSequenceRows(cell, first, count, [&](const SequenceRows& rows, size_t begin, size_t num) {
    KvLayer& kv = KvOf(rows, state);
    const KvLayer::StepRows out = kv.View();
    const size_t at = kv.shape().RowBytes(kv.dtype()) * (rows.slot + begin - rows.first_row);
    AppendKv(alone, own.k.Rows(begin, num), head_dim, kv.dtype(), out.head_stride, out.k + at);
    AppendKv(alone, own.v.Rows(begin, num), head_dim, kv.dtype(), out.head_stride, out.v + at);
  });
}

// Lets each dense query row look at its own sequence: one operation for all cells of one shape.
void AttentionBranch::AttendDense(ExecutionContext& ctx, StepBuffers& b, const Buffers& own, const BranchCells& cells) {
  const auto shape_of = [&](const DecoderCell& c) {
    return cells.As<AttentionBranch>(c).shape(KvOf(c.cell.sequences.front(), cells.first_state(c)).dtype());
  };
  for (const DecoderCell& lead : cells.cells) {
    const AttentionShape shape = shape_of(lead);
    const auto is_mate = [&](const DecoderCell& c) { return AreEqual(shape_of(c), shape); };
    if (std::any_of(cells.cells.data(), &lead, is_mate)) continue;  // attended with that one
    b.attention_tasks.clear();
    for (const DecoderCell& c : cells.cells.subspan(static_cast<size_t>(&lead - cells.cells.data()))) {
      if (is_mate(c)) AddTasks(b, own.q, own.attended, c.cell, cells.first_state(c));
    }
    if (b.attention_tasks.empty()) continue;
    ++b.counts.attentions;
    for (const AttentionTask& task : b.attention_tasks) b.counts.attention_rows += task.q.rows;
    Attention(ctx, shape, b.attention_tasks);
  }
}

// Rows that ask. Sparse rows may leave sums of weights in the state, and are counted: then all of them do.
std::span<const DecoderCell> AttentionBranch::QueriesOf(const BranchCells& cells) {
  const auto is_sparse = [&](const DecoderCell& c) { return HasSparse(c.cell, cells.first_state(c)); };
  return std::any_of(cells.cells.begin(), cells.cells.end(), is_sparse) ? cells.cells : cells.outputs;
}

void AttentionBranch::AttendSparse(ExecutionContext& ctx, StepBuffers& b, const Buffers& own, const Cell& cell,
                                   size_t state) const {
  if (!HasSparse(cell, state)) return;
  const DType dtype = KvOf(cell.sequences.front(), state).dtype();
  AttendSparseRows(ctx, shape(dtype), cell, state, own.q, own.attended, b.sparse);
}

void AttentionBranch::Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  const Buffers own = BuffersOf(b, cells);
  b.BeginProducts(layer_.reads_tokens ? b.paired : b.normed);
  for (const DecoderCell& c : cells.cells) {
    const AttentionLayer& layer = cells.As<AttentionBranch>(c).layer_;
    b.AddProduct(ctx, layer.k, c.cell.first_row, c.cell.num_rows, own.k, false);
    b.AddProduct(ctx, layer.v, c.cell.first_row, c.cell.num_rows, own.v, false);
  }
  const BranchCells queries{QueriesOf(cells), cells.position};
  for (const DecoderCell& c : queries.cells) {
    const AttentionLayer& layer = cells.As<AttentionBranch>(c).layer_;
    b.AddProduct(ctx, layer.q, c.cell.first_row, c.cell.num_rows, own.q, false);
    if (layer.gate.present()) b.AddProduct(ctx, layer.gate, c.cell.first_row, c.cell.num_rows, own.gate, false);
  }
  const Matrix<float> normed = layer_.reads_tokens ? b.paired.Cols(b.x.cols, b.x.cols) : b.normed;
  b.RunProducts(ctx, InputNorm{b, cells, normed});
  for (const DecoderCell& c : cells.cells) SettleStates(ctx, cells, c);
  ForCellBlocks(ctx, cells.cells, q_dim() + 2 * kv_dim(),
                [&](ExecutionContext& alone, const DecoderCell& c, size_t first, size_t count) {
                  cells.As<AttentionBranch>(c).PlaceRows(alone, b, own, c.cell, cells.first_state(c), first, count);
                  ForCellRows(queries.cells, first, count, [&](const DecoderCell& of, size_t row, size_t rows) {
                    cells.As<AttentionBranch>(of).PlaceQueries(alone, b, own, row, rows);
                  });
                });
  AttendDense(ctx, b, own, queries);
  for (const DecoderCell& c : queries.cells)
    cells.As<AttentionBranch>(c).AttendSparse(ctx, b, own, c.cell, cells.first_state(c));
}

void AttentionBranch::AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  const Buffers own = BuffersOf(b, cells);
  const auto gate = [&](ExecutionContext& alone, size_t first, size_t count) {
    if (!layer_.gate.present()) return;
    const Matrix<float> attended = own.attended.Rows(first, count);
    GatedActivate(alone, Activation::kSigmoid, own.gate.Rows(first, count), attended, attended);
  };
  AddProductOutput(ctx, b, cells, own.attended, gate,
                   [&](const DecoderCell& c) -> const Linear& { return cells.As<AttentionBranch>(c).layer_.o; });
}

}  // namespace tidemill
