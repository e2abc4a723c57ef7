#include "models/layers/delta_branch.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/activation.h"
#include "kernels/delta_inputs.h"
#include "kernels/rms_norm.h"
#include "kernels/short_convolution.h"
#include "models/layers/branch_cells.h"

namespace tidemill {
namespace {

LinearLayer& LinearOf(const SequenceRows& rows, size_t state) { return BranchCells::StateOf<LinearLayer>(rows, state); }

}  // namespace

LinearShape DeltaBranch::shape(const DeltaClass& form) const {
  return {.delta = {.key_heads = layer_.key_heads,
                    .value_heads = layer_.value_heads,
                    .key_dim = layer_.key_dim,
                    .value_dim = layer_.value_dim,
                    .tiled = layer_.tiled,
                    .form = form},
          .channels = layer_.channels(),
          .conv_width = layer_.conv_width};
}

void DeltaBranch::AddStates(const StateOptions& options, SequenceState::Layers* layers) const {
  layers->push_back(std::make_unique<LinearLayer>(
      shape(options.linear),
      LinearOptions{.isa = options.isa, .rollback_rows = 2 * options.draft_rows, .ledger = options.ledger}));
}

std::vector<BufferRegion> DeltaBranch::Regions() const {
  return {{layer_.channels()},  {layer_.channels()},  {value_width()},
          {layer_.value_heads}, {layer_.value_heads}, {value_width()}};
}

DeltaBranch::Buffers DeltaBranch::BuffersOf(const StepBuffers& b, const BranchCells& cells) const {
  const auto region = [&](Region index, size_t width) { return cells.Region<float>(b, index, {width}); };
  return {.projected = region(kProjected, layer_.channels()),
          .convolved = region(kConvolved, layer_.channels()),
          .z = region(kZ, value_width()),
          .y = region(kY, value_width()),
          .beta = region(kBeta, layer_.value_heads),
          .g = region(kG, layer_.value_heads)};
}

void DeltaBranch::ForEachWeight(const WeightVisitor& visit) const {
  for (const Linear* linear : {&layer_.qkv, &layer_.z, &layer_.b, &layer_.a, &layer_.out})
    visit({.linear = *linear, .of_outputs = linear == &layer_.z || linear == &layer_.out});
}

uint64_t DeltaBranch::other_bytes() const {
  return (layer_.conv.size() + layer_.decay.size() + layer_.dt_bias.size()) * sizeof(float) + layer_.norm.bytes();
}

void DeltaBranch::AddWork(DType, BranchWork* work) const {
  const size_t hidden = layer_.qkv.weight.cols(), channels = layer_.channels();
  work->rows.push_back({.cols = hidden, .elements = hidden});                    // normed and quantised
  work->rows.push_back({.cols = channels, .elements = 2 * channels});            // convolved; normed by head
  work->rows.push_back({.cols = value_width(), .elements = 2 * value_width()});  // normed by head; gated and quantised
  work->loops += 4;
}

bool DeltaBranch::RunsWith(const Branch& other) const {
  const auto* d = dynamic_cast<const DeltaBranch*>(&other);
  return d != nullptr && d->shape({}) == shape({});
}

// Convolution, norms by head and gates of rows [first, first + rows).
void DeltaBranch::MakeInputs(ExecutionContext& ctx, StepBuffers& b, const Buffers& own, size_t first,
                             size_t rows) const {
  const ConstMatrix<float> weights(layer_.conv.data(), layer_.conv_width, layer_.channels());
  const float scale = 1 / std::sqrt(static_cast<float>(layer_.key_dim));
  ForRowBlocks(ctx, rows, 4 * layer_.channels(), [&](ExecutionContext& alone, size_t at, size_t count) {
    const Matrix<float> out = own.convolved.Rows(first + at, count);
    ShortConvolution(alone, std::span(b.inputs).subspan((first + at) * layer_.conv_width, count * layer_.conv_width),
                     weights, out);
    L2NormHeads(alone, out.Cols(0, key_width()), layer_.key_dim, scale);
    L2NormHeads(alone, out.Cols(key_width(), key_width()), layer_.key_dim, 1);
    const Matrix<float> beta = own.beta.Rows(first + at, count), g = own.g.Rows(first + at, count);
    DeltaGates(alone, beta, g, layer_.decay, layer_.dt_bias, beta, g);
  });
}

// The rows of different sequences, whose states are of one class.
void DeltaBranch::Remember(ExecutionContext& ctx, StepBuffers& b, const Buffers& own,
                           std::span<const SequenceRows> sequences, size_t state) const {
  const size_t first = sequences.front().first_row, end = sequences.back().first_row + sequences.back().num_rows;
  for (const SequenceRows& rows : sequences) {
    LinearOf(rows, state)
        .ConvInputs(rows.slot, own.projected.Rows(rows.first_row, rows.num_rows), rows.parents,
                    std::span(b.inputs).subspan(rows.first_row * layer_.conv_width, rows.num_rows * layer_.conv_width));
  }
  MakeInputs(ctx, b, own, first, end - first);
  b.delta_tasks.clear();
  for (const SequenceRows& rows : sequences) {
    const size_t row = rows.first_row, num = rows.num_rows;
    const Matrix<float> convolved = own.convolved.Rows(row, num);
    DeltaTask task = LinearOf(rows, state).Task(rows.slot, num);
    task.q = convolved.Cols(0, key_width());
    task.k = convolved.Cols(key_width(), key_width());
    task.v = convolved.Cols(2 * key_width(), value_width());
    task.beta = own.beta.Rows(row, num);
    task.g = own.g.Rows(row, num);
    task.y = own.y.Rows(row, num);
    task.parents = rows.parents;
    b.delta_tasks.push_back(task);
  }
  DeltaRule(ctx, LinearOf(sequences.front(), state).shape().delta, b.delta_tasks);
  for (const SequenceRows& rows : sequences)
    LinearOf(rows, state).EndRows(rows.slot, own.projected.Rows(rows.first_row, rows.num_rows));
}

void DeltaBranch::Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  const Buffers own = BuffersOf(b, cells);
  b.BeginProducts(b.normed);
  for (const DecoderCell& c : cells.cells) {
    const DeltaLayer& layer = cells.As<DeltaBranch>(c).layer_;
    b.AddProduct(ctx, layer.qkv, c.cell.first_row, c.cell.num_rows, own.projected, false);
    b.AddProduct(ctx, layer.b, c.cell.first_row, c.cell.num_rows, own.beta, false);
    b.AddProduct(ctx, layer.a, c.cell.first_row, c.cell.num_rows, own.g, false);
  }
  for (const DecoderCell& c : cells.outputs)
    b.AddProduct(ctx, cells.As<DeltaBranch>(c).layer_.z, c.cell.first_row, c.cell.num_rows, own.z, false);
  b.RunProducts(ctx, InputNorm{b, cells});
  for (const DecoderCell& c : cells.cells) {
    const auto& branch = cells.As<DeltaBranch>(c);
    const size_t state = cells.first_state(c);
    SettleStates(ctx, cells, c);
    // Chunks of one sequence follow each other, and a call is for one class.
    const std::span<const SequenceRows> all = c.cell.sequences;
    for (size_t begin = 0, end = 1; begin < all.size(); begin = end++) {
      const DeltaClass& form = LinearOf(all[begin], state).shape().delta.form;
      const auto fits = [&](const SequenceRows& next) {
        return LinearOf(next, state).shape().delta.form == form &&
               std::none_of(all.begin() + static_cast<std::ptrdiff_t>(begin),
                            all.begin() + static_cast<std::ptrdiff_t>(end),
                            [&](const SequenceRows& before) { return before.state == next.state; });
      };
      while (end < all.size() && fits(all[end])) ++end;
      branch.Remember(ctx, b, own, all.subspan(begin, end - begin), state);
    }
  }
}

void DeltaBranch::AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  const Buffers own = BuffersOf(b, cells);
  const auto gate = [&](ExecutionContext& alone, size_t first, size_t count) {
    ForCellRows(cells.cells, first, count, [&](const DecoderCell& c, size_t row, size_t rows) {
      const DeltaLayer& layer = cells.As<DeltaBranch>(c).layer_;
      const Matrix<float> y = own.y.Rows(row, rows);
      RmsNormHeads(alone, y, layer.value_dim, layer.norm.weight, layer.norm.eps);
      GatedActivate(alone, Activation::kSilu, own.z.Rows(row, rows), y, y);
    });
  };
  AddProductOutput(ctx, b, cells, own.y, gate,
                   [&](const DecoderCell& c) -> const Linear& { return cells.As<DeltaBranch>(c).layer_.out; });
}

}  // namespace tidemill
