#include <algorithm>

#include "kernels/activation.h"
#include "kernels/expert_routing.h"
#include "models/layers/branches.h"

namespace tidemill {

void GateRows::operator()(ExecutionContext& alone, size_t first, size_t count) const {
  ForCellRows(cells, first, count, [&](const DecoderCell& c, size_t row, size_t rows) {
    const Mlp& mlp = c.layer->mlp;
    const Matrix<float> gate = b.gate.Rows(row, rows), up = b.up.Rows(row, rows);
    if (mlp.gate.present()) {
      GatedActivate(alone, mlp.activation, gate, up, gate);
    } else {
      Activate(alone, mlp.activation, up, gate);
    }
  });
}

void RunMlp(ExecutionContext& ctx, StepBuffers& b, DecoderCells cells) {
  b.BeginProducts(b.normed);
  for (const DecoderCell& c : cells) {
    const Mlp& mlp = c.layer->mlp;
    if (mlp.gate.present()) b.AddProduct(ctx, mlp.gate, c.cell.first_row, c.cell.num_rows, b.gate, false);
    b.AddProduct(ctx, mlp.up, c.cell.first_row, c.cell.num_rows, b.up, false);
  }
  b.RunProducts(ctx, InputNorm{b, cells, &DecoderLayer::mlp_norm});
}

// The rows are copied once for each of their experts, sorted by expert, so that an expert's rows follow each other: one group of
// products over all experts. What comes back is added to a row in ascending order of expert, whoever else is in the step.
void RunMixture(ExecutionContext& ctx, StepBuffers& b, const DecoderCell& c) {
  const MixtureOfExperts& mixture = c.layer->mixture;
  const size_t first = c.cell.first_row, rows = c.cell.num_rows;
  const Matrix<float> normed = b.normed.Rows(first, rows);
  b.BeginProducts(b.normed);
  b.AddProduct(ctx, mixture.router, first, rows, b.experts.logits, false);
  b.RunProducts(ctx, InputNorm{b, {&c, 1}, &DecoderLayer::mlp_norm});
  StepBuffers::ExpertRows& e = b.experts;
  const size_t slots = rows * mixture.per_token;
  const Matrix<uint32_t> chosen(e.chosen.data(), rows, mixture.per_token);
  const Matrix<float> weights(e.weights.data(), rows, mixture.per_token);
  const ExpertGroups groups{.order = std::span(e.order).first(slots),
                            .offsets = std::span(e.offsets).first(mixture.experts.size() + 1),
                            .slots = Matrix<uint32_t>(e.slots.data(), rows, mixture.per_token)};
  RouteTokens(ctx, e.logits.Rows(first, rows), mixture.normalise, chosen, weights);
  GroupByExpert(chosen, groups);
  GatherRows(ctx, normed, groups.order, e.in.Rows(0, slots));
  const Mlp& shape = mixture.experts.front();
  b.BeginProducts(e.in);
  const auto for_each_expert = [&](const auto& make, auto body) {
    for (size_t i = 0; i < mixture.experts.size(); ++i) {
      const size_t begin = groups.offsets[i], count = groups.offsets[i + 1] - begin;
      if (count != 0) body(mixture.experts[i], begin, count);
    }
    b.RunProducts(ctx, make);
  };
  for_each_expert(AsItIs, [&](const Mlp& expert, size_t begin, size_t count) {
    b.AddProduct(ctx, expert.gate, begin, count, e.gate, false);
    b.AddProduct(ctx, expert.up, begin, count, e.up, false);
  });
  const auto activate = [&](ExecutionContext& alone, size_t row, size_t count) {
    GatedActivate(alone, shape.activation, e.gate.Rows(row, count), e.up.Rows(row, count), e.gate.Rows(row, count));
  };
  b.BeginProducts(e.gate);
  for_each_expert(activate, [&](const Mlp& expert, size_t begin, size_t count) {
    b.AddProduct(ctx, expert.down, begin, count, e.out, false);
  });
  const bool normalised_after = c.layer->mlp_out_norm.present();
  Matrix<float> y = normalised_after ? normed : b.x.Rows(first, rows);
  if (normalised_after) {
    for (size_t r = 0; r < rows; ++r) std::fill_n(y.row(r), y.cols, 0.0f);
  }
  ScatterAddExperts(ctx, e.out.Rows(0, slots), groups.slots, weights, y);
}

size_t MixtureScratchBytes(const MixtureOfExperts& mixture) {
  size_t bytes = MatMulScratchBytes(mixture.router.weight);
  for (const Mlp& expert : mixture.experts) {
    for (const Linear* linear : {&expert.gate, &expert.up, &expert.down})
      bytes = std::max(bytes, MatMulScratchBytes(linear->weight));
  }
  return bytes;
}

}  // namespace tidemill
