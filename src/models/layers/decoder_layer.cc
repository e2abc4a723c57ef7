#include "models/layers/decoder_layer.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "models/layers/branch_cells.h"

namespace tidemill {

size_t DecoderLayer::num_states() const {
  size_t count = 0;
  for (const LayerBranch& b : branches) count += b.branch->num_states();
  return count;
}

uint64_t DecoderLayer::bytes() const {
  uint64_t bytes = 0;
  for (const LayerBranch& b : branches) bytes += b.norm.bytes() + b.out_norm.bytes() + b.branch->other_bytes();
  ForEachWeight([&bytes](const WeightUse& use) { bytes += use.linear.bytes(); });
  return bytes;
}

bool DecoderLayer::IsOfOutputs(size_t branch) const {
  const auto remembers = [](const LayerBranch& b) { return b.branch->num_states() != 0; };
  const auto first = branches.begin() + static_cast<std::ptrdiff_t>(branch);
  return residual == Residual::kParallel ? !remembers(*first) : std::none_of(first, branches.end(), remembers);
}

void DecoderLayer::ForEachWeight(const Branch::WeightVisitor& visit) const {
  for (size_t i = 0; i < branches.size(); ++i) {
    const bool all_of_outputs = IsOfOutputs(i);
    branches[i].branch->ForEachWeight([&](WeightUse use) {
      use.of_outputs = use.of_outputs || all_of_outputs;
      visit(use);
    });
  }
}

Cost DecoderLayer::ProductCost(size_t rows, Isa isa, size_t memory_rows, size_t outputs) const {
  Cost cost;
  ForEachWeight([&](const WeightUse& use) {
    const size_t own = use.of_memory_rows ? memory_rows : use.of_outputs ? std::min(rows, outputs) : rows;
    const size_t slots = own * use.per_token, busy = std::min(slots, use.experts);
    if (use.expert < busy) cost += MatMulCost(use.linear.weight, DivideRoundUp(slots, busy), isa);
  });
  return cost;
}

BranchWork DecoderLayer::Work(DType kv_dtype) const {
  BranchWork work;
  for (const LayerBranch& b : branches) b.branch->AddWork(kv_dtype, &work);
  for (const LayerBranch& b : branches) {  // normed; added
    const size_t cols = b.out_norm.weight.size();
    if (b.out_norm.present()) work.rows.push_back({.cols = cols, .elements = 2 * cols});
  }
  ForEachWeight([&work](const WeightUse& use) {
    const size_t cols = use.linear.weight.rows();
    if (use.experts == 1 && !use.linear.bias.empty()) work.rows.push_back({.cols = cols, .elements = cols});
  });
  return work;
}

namespace {

using DecoderCells = std::span<const DecoderCell>;

bool AreOfOneForm(const DecoderLayer& a, const DecoderLayer& b) {
  return &a == &b || (a.residual == b.residual &&
                      std::equal(a.branches.begin(), a.branches.end(), b.branches.begin(), b.branches.end(),
                                 [](const auto& x, const auto& y) { return x.branch->RunsWith(*y.branch); }));
}

// x += the branch's norm of what it wrote into b.normed, where it has one; then the norm of the sum, where it comes there.
void NormOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) {
  const auto normed_after = [&](const DecoderCell& c) {
    return cells.at(c).out_norm.present() || c.layer->residual == Residual::kPostNorm;
  };
  if (std::none_of(cells.cells.begin(), cells.cells.end(), normed_after)) return;
  ForCellBlocks(ctx, cells.cells, b.x.cols,
                [&](ExecutionContext& alone, const DecoderCell& c, size_t first, size_t count) {
                  const LayerBranch& at = cells.at(c);
                  const Matrix<float> x = b.x.Rows(first, count), result = b.normed.Rows(first, count);
                  if (at.out_norm.present()) {
                    RunNorm(alone, at.out_norm, result, result);
                    AddRows(alone, result, x);
                  }
                  if (c.layer->residual == Residual::kPostNorm) RunNorm(alone, at.norm, x, x);
                });
}

// The rows whose result is read: each run of rows that lie side by side is a cell.
DecoderCells OutputsOf(StepBuffers& b, DecoderCells cells) {
  if (std::all_of(cells.begin(), cells.end(), [](const DecoderCell& c) { return c.cell.outputs.empty(); }))
    return cells;
  b.output_cells.clear();
  for (const DecoderCell& c : cells) {
    if (c.cell.outputs.empty()) b.output_cells.push_back(c);
    const std::span<const SequenceRows> outputs = c.cell.outputs;
    for (size_t begin = 0, end = 0; begin < outputs.size(); begin = end) {
      size_t next = outputs[begin].first_row;
      while (end < outputs.size() && outputs[end].num_rows != 0 && outputs[end].first_row == next)
        next += outputs[end++].num_rows;
      if (end == begin) {
        ++end;  // a sequence without any
        continue;
      }
      DecoderCell& part = b.output_cells.emplace_back(c);
      part.cell.first_row = outputs[begin].first_row;
      part.cell.num_rows = next - part.cell.first_row;
      part.cell.sequences = outputs.subspan(begin, end - begin);
      part.cell.outputs = {};
    }
  }
  return b.output_cells;
}

void RunCellsOfOneForm(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells) {
  const DecoderLayer& layer = *cells.front().layer;
  const DecoderCells outputs = OutputsOf(b, cells);
  const auto branch = [&layer](size_t i) -> const Branch& { return *layer.branches[i].branch; };
  if (layer.residual == Residual::kParallel) {  // all branches read x before any writes it
    for (size_t i = 0; i < layer.branches.size(); ++i) {
      const bool has_all = !layer.IsOfOutputs(i);
      if (has_all || !outputs.empty()) branch(i).Compute(ctx, b, {has_all ? cells : outputs, i, outputs});
    }
    for (size_t i = 0; i < layer.branches.size() && !outputs.empty(); ++i)
      branch(i).AddOutput(ctx, b, {outputs, i, outputs});
    return;
  }
  for (size_t i = 0; i < layer.branches.size(); ++i) {
    const bool is_last = i + 1 == layer.branches.size() || layer.IsOfOutputs(i + 1);  // nobody behind it needs all rows
    const DecoderCells in = layer.IsOfOutputs(i) ? outputs : cells, out = is_last ? outputs : cells;
    if (!in.empty()) branch(i).Compute(ctx, b, {in, i, out});
    if (out.empty()) continue;
    branch(i).AddOutput(ctx, b, {out, i, out});
    NormOutput(ctx, b, {out, i, out});
  }
}

}  // namespace

void RunDecoderCells(ExecutionContext& ctx, StepBuffers& b, std::span<DecoderCell> cells) {
  for (size_t begin = 0, end = 0; begin < cells.size(); begin = end) {
    for (size_t i = end; i < cells.size(); ++i) {
      if (AreOfOneForm(*cells[begin].layer, *cells[i].layer)) std::swap(cells[end++], cells[i]);
    }
    RunCellsOfOneForm(ctx, b, cells.subspan(begin, end - begin));
  }
}

}  // namespace tidemill
