#include "models/layers/mixture_branch.h"

#include <algorithm>
#include <span>

#include "kernels/activation.h"
#include "kernels/elementwise.h"
#include "models/layers/branch_cells.h"

namespace tidemill {
// A row's ids and weights lie behind each other, so that a cell's order is one list.
std::vector<BufferRegion> MixtureBranch::Regions() const {
  const size_t k = mixture_.per_token;
  std::vector<BufferRegion> regions = {
      {num_experts()}, {hidden(), k}, {hidden(), k}, {ffn(), k}, {ffn(), k}, {k}, {k}, {k}, {k}, {num_experts() + 1}};
  if (shared_ffn() != 0) regions.insert(regions.end(), {{shared_ffn()}, {shared_ffn()}, {1}});
  return regions;
}

MixtureBranch::SharedRows MixtureBranch::SharedRowsOf(const StepBuffers& b, const BranchCells& cells) const {
  return {cells.Region<float>(b, kSharedGate, {shared_ffn()}), cells.Region<float>(b, kSharedUp, {shared_ffn()}),
          cells.Region<float>(b, kSharedWeight, {1})};
}

MixtureBranch::Rows MixtureBranch::RowsOf(const StepBuffers& b, const BranchCells& cells, const Cell& cell) const {
  const size_t k = mixture_.per_token, first = cell.first_row, rows = cell.num_rows;
  const auto slots = [&](Region index, size_t width) {
    return cells.Region<float>(b, index, {width, k}).Rows(first * k, rows * k);
  };
  const auto ids = [&](Region index) {
    return Matrix<uint32_t>(cells.Region<uint32_t>(b, index, {k}).row(first), rows, k);
  };
  return {
      .in = slots(kIn, hidden()),
      .out = slots(kOut, hidden()),
      .gate = slots(kGate, ffn()),
      .up = slots(kUp, ffn()),
      .weights = cells.Region<float>(b, kWeights, {k}).Rows(first, rows),
      .groups = {.order = {ids(kOrder).data, rows * k},
                 .offsets = {cells.Region<uint32_t>(b, kOffsets, {num_experts() + 1}).row(first), num_experts() + 1},
                 .slots = ids(kSlots)}};
}

void MixtureBranch::ForEachWeight(const WeightVisitor& visit) const {
  visit({mixture_.router});
  mixture_.shared.ForEachLinear([&](const Linear& linear) { visit({linear}); });
  if (mixture_.shared_gate.present()) visit({mixture_.shared_gate});
  for (size_t i = 0; i < num_experts(); ++i) {
    mixture_.experts[i].ForEachLinear([&](const Linear& linear) {
      visit({.linear = linear, .expert = i, .experts = num_experts(), .per_token = mixture_.per_token});
    });
  }
}

void MixtureBranch::AddWork(DType, BranchWork* work) const {
  const size_t gathered = mixture_.per_token * hidden(), activated = mixture_.per_token * ffn();
  work->rows.push_back({.cols = hidden(), .elements = hidden()});      // normed and quantised
  work->rows.push_back({.cols = gathered, .elements = 2 * gathered});  // gathered and quantised; added up
  work->rows.push_back({.cols = activated, .elements = activated});    // activated and quantised, for down
  work->loops += 3;
  if (shared_ffn() == 0) return;
  work->rows.push_back({.cols = shared_ffn(), .elements = 2 * shared_ffn()});  // activated, weighted and quantised
  work->loops += 1;
}

bool MixtureBranch::RunsWith(const Branch& other) const {
  const auto* m = dynamic_cast<const MixtureBranch*>(&other);
  return m != nullptr && m->num_experts() == num_experts() && m->ffn() == ffn() && m->shared_ffn() == shared_ffn() &&
         m->mixture_.per_token == mixture_.per_token;
}

// The rows are copied once for each of their experts, sorted by expert, so that an expert's rows follow each other: one group of
// products over all experts. What comes back is added to a row in ascending order of expert, whoever else is in the step.
void MixtureBranch::Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  const Matrix<float> logits = cells.Region<float>(b, kLogits, {num_experts()});
  b.BeginProducts(b.normed);
  for (const DecoderCell& c : cells.cells) {
    const MixtureOfExperts& mixture = cells.As<MixtureBranch>(c).mixture_;
    const auto add = [&](const Linear& linear, Matrix<float> y) {
      b.AddProduct(ctx, linear, c.cell.first_row, c.cell.num_rows, y, false);
    };
    add(mixture.router, logits);
    if (shared_ffn() == 0) continue;
    const SharedRows shared = SharedRowsOf(b, cells);
    add(mixture.shared.gate, shared.gate);
    add(mixture.shared.up, shared.up);
    add(mixture.shared_gate, shared.weight);
  }
  b.RunProducts(ctx, InputNorm{b, cells});
  for (const DecoderCell& c : cells.cells) {
    const auto& branch = cells.As<MixtureBranch>(c);
    const size_t first = c.cell.first_row, rows = c.cell.num_rows;
    const Rows e = RowsOf(b, cells, c.cell);
    const Matrix<uint32_t> chosen = cells.Region<uint32_t>(b, kChosen, {mixture_.per_token}).Rows(first, rows);
    RouteTokens(ctx, logits.Rows(first, rows), branch.mixture_.normalise, chosen, e.weights);
    GroupByExpert(chosen, e.groups);
    GatherRows(ctx, b.normed.Rows(first, rows), e.groups.order, e.in);
    branch.RunExperts(ctx, b, e);
  }
}

void MixtureBranch::RunExperts(ExecutionContext& ctx, StepBuffers& b, const Rows& e) const {
  const auto for_each_expert = [&](ConstMatrix<float> source, const auto& make, auto body) {
    b.BeginProducts(source);
    for (size_t i = 0; i < num_experts(); ++i) {
      const size_t begin = e.groups.offsets[i], count = e.groups.offsets[i + 1] - begin;
      if (count != 0) body(mixture_.experts[i], begin, count);
    }
    b.RunProducts(ctx, make);
  };
  for_each_expert(e.in, AsItIs, [&](const Mlp& expert, size_t begin, size_t count) {
    b.AddProduct(ctx, expert.gate, begin, count, e.gate, false);
    b.AddProduct(ctx, expert.up, begin, count, e.up, false);
  });
  const auto activate = [&](ExecutionContext& alone, size_t row, size_t count) {
    GatedActivate(alone, mixture_.experts.front().activation, e.gate.Rows(row, count), e.up.Rows(row, count),
                  e.gate.Rows(row, count));
  };
  for_each_expert(e.gate, activate, [&](const Mlp& expert, size_t begin, size_t count) {
    b.AddProduct(ctx, expert.down, begin, count, e.out, false);
  });
}

// The weight is in the last product's input, so that this adds to the rest like any product.
void MixtureBranch::AddShared(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  const SharedRows shared = SharedRowsOf(b, cells);
  const auto activate = [&](ExecutionContext& alone, size_t first, size_t count) {
    const Matrix<float> gate = shared.gate.Rows(first, count), weight = shared.weight.Rows(first, count);
    GatedActivate(alone, mixture_.shared.activation, gate, shared.up.Rows(first, count), gate);
    Activate(alone, Activation::kSigmoid, weight, weight);
    for (size_t r = 0; r < count; ++r) ScaleRows(alone, *weight.row(r), gate.Rows(r, 1));
  };
  b.BeginProducts(shared.gate);
  for (const DecoderCell& c : cells.cells) {
    const Matrix<float> y = cells.at(c).out_norm.present() ? b.normed : b.x;
    b.AddProduct(ctx, cells.As<MixtureBranch>(c).mixture_.shared.down, c.cell.first_row, c.cell.num_rows, y, true);
  }
  b.RunProducts(ctx, activate);
}

void MixtureBranch::AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  for (const DecoderCell& c : cells.cells) {
    const Rows e = RowsOf(b, cells, c.cell);
    const bool normed = cells.at(c).out_norm.present();
    const Matrix<float> y = (normed ? b.normed : b.x).Rows(c.cell.first_row, c.cell.num_rows);
    for (size_t r = 0; normed && r < y.rows; ++r) std::fill_n(y.row(r), y.cols, 0.0f);
    ScatterAddExperts(ctx, e.out, e.groups.slots, e.weights, y);
  }
  if (shared_ffn() != 0) AddShared(ctx, b, cells);
}

}  // namespace tidemill
