#include "models/layers/decoder_layer.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "models/layers/branches.h"

namespace tidemill {
namespace {

// x += the branch's norm of what it wrote into b.normed, where it has one; then the norm of the sum, where it comes there.
void NormOutput(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells, Norm DecoderLayer::*norm,
                Norm DecoderLayer::*out_norm) {
  for (const DecoderCell& c : cells) {
    const Matrix<float> x = b.x.Rows(c.cell.first_row, c.cell.num_rows);
    if ((c.layer->*out_norm).present()) {
      const Matrix<float> branch = b.normed.Rows(c.cell.first_row, c.cell.num_rows);
      RunNorm(ctx, c.layer->*out_norm, branch, branch);
      AddRows(ctx, branch, x);
    }
    if (c.layer->residual == Residual::kPostNorm) RunNorm(ctx, c.layer->*norm, x, x);
  }
}

// The branch's last product, of `source`: onto x, or into b.normed where a norm follows.
template <typename LinearOf, typename Make>
void AddOutput(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells, ConstMatrix<float> source, const Make& make,
               Norm DecoderLayer::*out_norm, LinearOf linear_of) {
  b.BeginProducts(source);
  for (const DecoderCell& c : cells) {
    const bool normed = (c.layer->*out_norm).present();
    b.AddProduct(ctx, linear_of(*c.layer), c.cell.first_row, c.cell.num_rows, normed ? b.normed : b.x, !normed);
  }
  b.RunProducts(ctx, make);
}

const Linear& OutputOf(const DecoderLayer& layer) { return layer.attention.o; }
const Linear& DownOf(const DecoderLayer& layer) { return layer.mlp.down; }

}  // namespace

void InputNorm::operator()(ExecutionContext& alone, size_t first, size_t count) const {
  const Norm plain;  // y = x; allocates nothing
  ForCellRows(cells, first, count, [&](const DecoderCell& c, size_t row, size_t rows) {
    const bool after = c.layer->residual == Residual::kPostNorm;
    RunNorm(alone, after ? plain : c.layer->*norm, b.x.Rows(row, rows), out.Rows(row, rows));
  });
}

uint64_t AttentionLayer::bytes() const {
  return q.bytes() + k.bytes() + v.bytes() + o.bytes() + q_norm.bytes() + k_norm.bytes();
}

AttentionShape AttentionLayer::shape(DType kv_dtype) const {
  AttentionShape shape;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.scale = scale;
  shape.kv_dtype = kv_dtype;
  shape.soft_cap = soft_cap;
  shape.window = window;
  return shape;
}

uint64_t MixtureOfExperts::bytes() const {
  uint64_t bytes = router.bytes();
  for (const Mlp& expert : experts) bytes += expert.bytes();
  return bytes;
}

uint64_t DecoderLayer::bytes() const {
  uint64_t bytes = attention.bytes() + mlp.bytes() + mixture.bytes();
  for (const Norm* norm : {&attention_norm, &mlp_norm, &attention_out_norm, &mlp_out_norm}) bytes += norm->bytes();
  return bytes;
}

Cost DecoderLayer::ProductCost(size_t rows, Isa isa) const {
  Cost cost;
  const auto add = [&](size_t linear_rows) {
    return [&cost, linear_rows, isa](const Linear& linear) { cost += MatMulCost(linear.weight, linear_rows, isa); };
  };
  ForEachLinear(add(rows));
  const size_t slots = rows * mixture.per_token, busy = std::min(slots, mixture.experts.size());
  for (size_t i = 0; i < busy; ++i) mixture.experts[i].ForEachLinear(add((slots + busy - 1) / busy));
  return cost;
}

std::vector<RowWork> DecoderLayer::RowWorks() const {
  std::vector<RowWork> works;
  const auto add = [&works](size_t cols, size_t times = 1) {
    works.push_back({.cols = cols, .elements = times * cols});
  };
  const size_t hidden = attention.o.weight.rows(), q_dim = attention.q.weight.rows(),
               kv_dim = attention.k.weight.rows() + attention.v.weight.rows();
  add(attention.q.weight.cols());                           // normed and quantised, for q, k and v
  add(q_dim + kv_dim, attention.q_norm.present() ? 2 : 1);  // rotated and stored; normed by head
  add(q_dim);                                               // quantised, for o
  add(hidden);                                              // normed and quantised, for the feed-forward layer
  if (mixture.present()) {
    add(mixture.per_token * hidden, 2);                                 // gathered and quantised; added up
    add(mixture.per_token * mixture.experts.front().up.weight.rows());  // activated and quantised, for down
  } else {
    add(mlp.up.weight.rows());
  }
  for (const Norm* norm : {&attention_out_norm, &mlp_out_norm}) {
    if (norm->present()) add(hidden, 2);  // normed; added
  }
  ForEachLinear([&add](const Linear& linear) {
    if (!linear.bias.empty()) add(linear.weight.rows());
  });
  return works;
}

namespace {

bool AreOfOneForm(const DecoderLayer& a, const DecoderLayer& b) {
  return a.residual == b.residual && a.reads_tokens == b.reads_tokens && a.mixture.present() == b.mixture.present();
}

void RunCellsOfOneForm(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells) {
  const Residual residual = cells.front().layer->residual;
  RunAttention(ctx, b, cells);
  if (residual == Residual::kParallel) {  // both branches read x before either writes it
    RunMlp(ctx, b, cells);
    AddOutput(ctx, b, cells, b.attended, AsItIs, &DecoderLayer::attention_out_norm, OutputOf);
    AddOutput(ctx, b, cells, b.gate, GateRows{b, cells}, &DecoderLayer::mlp_out_norm, DownOf);
    return;
  }
  AddOutput(ctx, b, cells, b.attended, AsItIs, &DecoderLayer::attention_out_norm, OutputOf);
  NormOutput(ctx, b, cells, &DecoderLayer::attention_norm, &DecoderLayer::attention_out_norm);
  if (cells.front().layer->mixture.present()) {
    for (const DecoderCell& c : cells) RunMixture(ctx, b, c);
  } else {
    RunMlp(ctx, b, cells);
    AddOutput(ctx, b, cells, b.gate, GateRows{b, cells}, &DecoderLayer::mlp_out_norm, DownOf);
  }
  NormOutput(ctx, b, cells, &DecoderLayer::mlp_norm, &DecoderLayer::mlp_out_norm);
}

}  // namespace

void RunDecoderCells(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells) {
  for (size_t begin = 0, end = 0; begin < cells.size(); begin = end) {
    while (end < cells.size() && AreOfOneForm(*cells[begin].layer, *cells[end].layer)) ++end;
    RunCellsOfOneForm(ctx, b, cells.subspan(begin, end - begin));
  }
}

size_t DecoderLayerScratchBytes(const DecoderLayer& layer) {
  size_t bytes = std::max(AttentionScratchBytes(layer.attention), MixtureScratchBytes(layer.mixture));
  for (const Linear* linear : {&layer.mlp.gate, &layer.mlp.up, &layer.mlp.down})
    bytes = std::max(bytes, MatMulScratchBytes(linear->weight));
  return bytes;
}

}  // namespace tidemill
