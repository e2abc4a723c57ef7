#include "models/layers/mlp_branch.h"

#include "models/layers/branch_cells.h"

namespace tidemill {
MlpBranch::Buffers MlpBranch::BuffersOf(const StepBuffers& b, const BranchCells& cells) const {
  return {cells.Region<float>(b, kGate, {ffn()}), cells.Region<float>(b, kUp, {ffn()})};
}

void MlpBranch::ForEachWeight(const WeightVisitor& visit) const {
  mlp_.ForEachLinear([&](const Linear& linear) { visit({linear}); });
}

void MlpBranch::AddWork(DType, BranchWork* work) const {
  const size_t hidden = mlp_.up.weight.cols();
  work->rows.push_back({.cols = hidden, .elements = hidden});  // normed and quantised
  work->rows.push_back({.cols = ffn(), .elements = ffn()});    // activated and quantised
  work->loops += 2;
}

bool MlpBranch::RunsWith(const Branch& other) const {
  const auto* mlp = dynamic_cast<const MlpBranch*>(&other);
  return mlp != nullptr && mlp->ffn() == ffn();
}

void MlpBranch::Compute(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  const Buffers own = BuffersOf(b, cells);
  b.BeginProducts(b.normed);
  for (const DecoderCell& c : cells.cells) {
    const Mlp& mlp = cells.As<MlpBranch>(c).mlp_;
    if (mlp.gate.present()) b.AddProduct(ctx, mlp.gate, c.cell.first_row, c.cell.num_rows, own.gate, false);
    b.AddProduct(ctx, mlp.up, c.cell.first_row, c.cell.num_rows, own.up, false);
  }
  b.RunProducts(ctx, InputNorm{b, cells});
}

void MlpBranch::AddOutput(ExecutionContext& ctx, StepBuffers& b, const BranchCells& cells) const {
  const Buffers own = BuffersOf(b, cells);
  const auto activate = [&](ExecutionContext& alone, size_t first, size_t count) {
    ForCellRows(cells.cells, first, count, [&](const DecoderCell& c, size_t row, size_t rows) {
      const Mlp& mlp = cells.As<MlpBranch>(c).mlp_;
      const Matrix<float> gate = own.gate.Rows(row, rows), up = own.up.Rows(row, rows);
      if (mlp.gate.present()) {
        GatedActivate(alone, mlp.activation, gate, up, gate);
      } else {
        Activate(alone, mlp.activation, up, gate);
      }
    });
  };
  AddProductOutput(ctx, b, cells, own.gate, activate,
                   [&](const DecoderCell& c) -> const Linear& { return cells.As<MlpBranch>(c).mlp_.down; });
}

}  // namespace tidemill
