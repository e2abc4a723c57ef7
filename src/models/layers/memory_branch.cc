#include "models/layers/memory_branch.h"

#include "models/layers/branch_cells.h"

namespace tidemill {
namespace {

// The one state of the layer.
SegmentKvLayer& SegmentOf(const DecoderCell& c, const SequenceRows& rows) {
  return BranchCells::StateOf<SegmentKvLayer>(rows, c.first_state);
}

// out = phi(in) of the rows of sequences that `has` picks, of all cells in one loop.
template <typename Has>
void MakeFeatures(ExecutionContext& ctx, const BranchCells& cells, size_t nu, ConstMatrix<float> in, Matrix<float> out,
                  const Has& has) {
  ForCellBlocks(ctx, cells.cells, 4 * out.cols,
                [&](ExecutionContext& alone, const DecoderCell& c, size_t first, size_t count) {
                  ForSequenceRows(c.cell, first, count, [&](const SequenceRows& rows, size_t begin, size_t num) {
                    if (has(c, rows)) DpfpFeatures(alone, in.Rows(begin, num), nu, out.Rows(begin, num));
                  });
                });
}

}  // namespace

void MemoryReadBranch::AddWork(DType, BranchWork* work) const {
  work->rows.push_back({.cols = shape_.features(), .elements = shape_.features()});
  work->loops += 3;
}

bool MemoryReadBranch::RunsWith(const Branch& other) const {
  const auto* read = dynamic_cast<const MemoryReadBranch*>(&other);
  return read != nullptr && read->shape_ == shape_;
}

void MemoryReadBranch::Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  const auto q = cells.Region<float>(b, kQ, {shape_.key_dim}),
             f = cells.Region<float>(b, kFeatures, {shape_.features()});
  b.memory_reads.clear();
  b.BeginProducts(b.x);
  for (const DecoderCell& c : cells.cells) {
    for (const SequenceRows& rows : c.cell.sequences) {
      const std::byte* const memory = SegmentOf(c, rows).memory();
      if (memory == nullptr) continue;
      b.AddProduct(ctx, cells.As<MemoryReadBranch>(c).q_, rows.first_row, rows.num_rows, q, false);
      b.memory_reads.push_back(
          {.memory = memory, .f = f.Rows(rows.first_row, rows.num_rows), .x = b.x.Rows(rows.first_row, rows.num_rows)});
    }
  }
  if (b.memory_reads.empty()) return;
  b.RunProducts(ctx);
  MakeFeatures(ctx, cells, shape_.nu, q, f,
               [](const DecoderCell& c, const SequenceRows& rows) { return SegmentOf(c, rows).memory() != nullptr; });
}

void MemoryReadBranch::AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells&) const {
  MemoryRead(ctx, shape_, b.memory_reads);
}

void MemoryWriteBranch::ForEachWeight(const WeightVisitor& visit) const {
  for (const Linear* linear : {&k_, &v_, &b_}) visit({.linear = *linear, .of_memory_rows = true});
}

bool MemoryWriteBranch::RunsWith(const Branch& other) const {
  const auto* write = dynamic_cast<const MemoryWriteBranch*>(&other);
  return write != nullptr && write->shape_ == shape_;
}

void MemoryWriteBranch::Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  const auto k = cells.Region<float>(b, kK, {shape_.key_dim}),
             f = cells.Region<float>(b, kFeatures, {shape_.features()}),
             v = cells.Region<float>(b, kV, {shape_.hidden}), beta = cells.Region<float>(b, kB, {1});
  const auto for_each = [&](const auto& visit) {
    for (const DecoderCell& c : cells.cells) {
      for (const SequenceRows& rows : c.cell.sequences) {
        if (rows.ends_segment) visit(c, rows);
      }
    }
  };
  b.memory_writes.clear();
  b.BeginProducts(b.x);
  for_each([&](const DecoderCell& c, const SequenceRows& rows) {
    const auto& branch = cells.As<MemoryWriteBranch>(c);
    const size_t first = rows.first_row, num = rows.num_rows;
    b.AddProduct(ctx, branch.k_, first, num, k, false);
    b.AddProduct(ctx, branch.v_, first, num, v, false);
    b.AddProduct(ctx, branch.b_, first, num, beta, false);
    SegmentKvLayer& state = SegmentOf(c, rows);
    b.memory_writes.push_back({.memory = state.memory(),
                               .out = state.next_memory(),
                               .k = f.Rows(first, num),
                               .b = beta.Rows(first, num),
                               .v = v.Rows(first, num)});
  });
  if (b.memory_writes.empty()) return;
  b.RunProducts(ctx);
  MakeFeatures(ctx, cells, shape_.nu, k, f,
               [](const DecoderCell&, const SequenceRows& rows) { return rows.ends_segment; });
  MemoryWrite(ctx, shape_, b.memory_writes);
  for_each([&](const DecoderCell& c, const SequenceRows& rows) { SegmentOf(c, rows).EndSegment(rows.slot); });
}

}  // namespace tidemill
