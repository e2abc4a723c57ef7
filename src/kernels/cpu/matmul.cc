#include "kernels/matmul.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/isa.h"
#include "kernels/cpu/matmul_levels.h"
#if defined(__x86_64__)
#include "kernels/cpu/matmul_avx2.h"
#include "kernels/cpu/matmul_bf16.h"
#include "kernels/cpu/matmul_vnni.h"
#endif
#include "kernels/panel_packing.h"

namespace tidemill {
namespace {

// A chunk is a multiple of so many panels: with several rows of fewer, which share a small matrix more evenly.
constexpr size_t ChunkStep(size_t rows) { return rows <= 2 ? kGroupPanels : 2; }
// Chunks per thread: enough that a thread which lost its core for a moment leaves its share to the others.
constexpr size_t kChunksPerThread = 8;
// Multiply-adds of a kernel's call: an abandoned product ends within milliseconds, and calls take no time beside them.
constexpr size_t kCallProducts = size_t{1} << 27;

// Panels of one call.
size_t CallPanels(const MatMulTask& task) {
  if (!task.weight->packed()) return kGroupPanels;
  const size_t of_panel = kPanelRows * task.weight->cols() * task.y.rows;
  return std::max<size_t>(1, kCallProducts / of_panel / kGroupPanels) * kGroupPanels;
}

MatMulKernel PickKernel(const WeightMatrix& weight, Isa isa) {
#if defined(__x86_64__)
  if (FormFor(weight.dtype(), isa) == ActivationForm::kBFloat16) return bf16::MatMul;
#endif
  if (!weight.quantized()) return PickFloatMatMul(weight.dtype(), isa);
  const PanelType type = PanelTypeOf(weight.dtype());
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Vnni) return vnni::PickMatMul(type);
  if (isa >= Isa::kAvx2) return avx2::PickMatMul(type);
#endif
  return PickInt16MatMul(type);
}

// Of one row and one output: the product of scales and its MulAdd; a minimum's MulAdd; Q6_K's two halves times their scales.
double FlopsOfABlock(DType dtype) {
  if (dtype == DType::kQ6_K) return 3 + 3;
  return kPanelLayouts[static_cast<size_t>(PanelTypeOf(dtype))].minimum ? 3 + 2 : 3;
}

// Whether the task has its rows in the form that the kernel reads.
[[maybe_unused]] bool HasRows(const MatMulTask& task, Isa isa) {
  const auto fits = [&](const auto& x) { return x.rows == task.y.rows && x.cols == task.weight->cols(); };
  switch (FormFor(task.weight->dtype(), isa)) {
    case ActivationForm::kInt8: return fits(task.quantized);
    case ActivationForm::kBFloat16: return fits(task.bfloat16);
    case ActivationForm::kF32: break;
  }
  return fits(task.x);
}

// Of two panels whose quants the VNNI level may unpack to bytes, whatever the processor, since who sizes scratch does not know it; 0: theirs are
// bytes. A mapped weight's scratch is full of panels.
size_t ExpandedBytes(const WeightMatrix& weight) {
  if (!weight.quantized() || !weight.packed() || weight.cols() > kMaxExpandedCols) return 0;
  if (kPanelLayouts[static_cast<size_t>(PanelTypeOf(weight.dtype()))].quant_bytes == kExpandedBlock) return 0;
  return 2 * weight.cols() / kQuantBlock * kExpandedBlock;
}

MatMulPanels Arguments(const ExecutionContext& ctx, const MatMulTask& task) {
  const QuantizedRows& q = task.quantized;
  const WeightMatrix& w = *task.weight;
  return {.panels = nullptr,
          .panel_bytes = w.panel_bytes(),
          .num_panels = 0,
          .cols = w.cols(),
          .x = task.x.data,
          .x_stride = task.x.stride,
          .bfloat16 = task.bfloat16.data,
          .bfloat16_stride = task.bfloat16.stride,
          .q = q.q,
          .pairs = q.pairs,
          .d = q.d,
          .sum = q.sum,
          .half_sums = q.half_sums,
          .biased = q.biased,
          .biased_row = q.biased_row,
          .rows = task.y.rows,
          .y = task.y.data,
          .y_stride = task.y.stride,
          .outputs = w.rows(),
          .accumulate = task.accumulate,
          .expanded = nullptr,
          .zen3 = ctx.tuning() == Tuning::kZen3,
          .zen5 = ctx.tuning() == Tuning::kZen5,
          .intel = ctx.tuning() == Tuning::kIntel,
          .one_thread = ctx.threads().num_threads() == 1};
}

// Runs panels [first, first + count) of one task in thread `thread`.
void RunPanels(ExecutionContext& ctx, MatMulKernel kernel, const MatMulTask& task, size_t first, size_t count,
               size_t thread) {
  const std::span<std::byte> scratch = ctx.scratch(thread);
  MatMulPanels args = Arguments(ctx, task);
  if (args.rows == 0) return;
  const size_t step = CallPanels(task);
  if (const size_t bytes = ExpandedBytes(*task.weight); bytes != 0) {
    TIDEMILL_CHECK(bytes <= scratch.size());
    args.expanded = reinterpret_cast<unsigned char*>(scratch.data());
  }
  for (size_t done = 0; done < count && !ctx.Stops(); done += step) {
    const size_t panels = std::min(step, count - done);
    const size_t output = (first + done) * kPanelRows;
    MatMulPanels part = args;
    part.panels = reinterpret_cast<const unsigned char*>(task.weight->Panels(first + done, panels, scratch));
    part.num_panels = panels;
    part.y = args.y + output;
    part.outputs = args.outputs - output;
    kernel(part);
  }
}

}  // namespace

void MatMul(ExecutionContext& ctx, std::span<const MatMulTask> tasks) {
  TIDEMILL_CHECK(tasks.size() <= kMaxMatMulTasks);
  size_t panels = 0;
  for (const MatMulTask& task : tasks) panels += task.weight->num_panels();
  const size_t share = std::max<size_t>(1, panels / (ctx.threads().num_threads() * kChunksPerThread));
  const auto chunk_panels = [share](const MatMulTask& task) { return RoundUp(share, ChunkStep(task.y.rows)); };
  std::array<uint32_t, kMaxMatMulTasks + 1> first_chunk;  // of each task
  std::array<MatMulKernel, kMaxMatMulTasks> kernels;
  first_chunk[0] = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    TIDEMILL_DCHECK(HasRows(tasks[i], ctx.isa()) && tasks[i].y.cols == tasks[i].weight->rows());
    const size_t chunks = DivideRoundUp(tasks[i].weight->num_panels(), chunk_panels(tasks[i]));
    first_chunk[i + 1] = first_chunk[i] + static_cast<uint32_t>(chunks);
    kernels[i] = PickKernel(*tasks[i].weight, ctx.isa());
  }
  ctx.ParallelFor(first_chunk[tasks.size()], [&](size_t chunk, size_t thread) {
    const uint32_t* begin = first_chunk.data();
    const auto i = static_cast<size_t>(std::upper_bound(begin, begin + tasks.size() + 1, chunk) - begin - 1);
    const size_t first = (chunk - first_chunk[i]) * chunk_panels(tasks[i]);
    const size_t count = std::min(chunk_panels(tasks[i]), tasks[i].weight->num_panels() - first);
    RunPanels(ctx, kernels[i], tasks[i], first, count, thread);
  });
}

size_t MatMulScratchBytes(const WeightMatrix& weight) {
  return weight.packed() ? ExpandedBytes(weight) : kGroupPanels * weight.panel_bytes() + weight.cols() * sizeof(float);
}

Cost MatMulCost(const WeightMatrix& weight, size_t rows, Isa isa) {
  const auto r = static_cast<double>(rows), n = static_cast<double>(weight.rows()),
             k = static_cast<double>(weight.cols());
  const double ops = 2 * r * n * k;
  Cost cost;
  cost.bytes = static_cast<double>(weight.packed_bytes()) + 4 * r * n;
  if (weight.quantized()) {
    const double blocks = k / static_cast<double>(kQuantBlock);
    cost.bytes += r * (k + 12 * blocks);
    cost.int8_ops = ops;
    cost.flops = r * n * blocks * FlopsOfABlock(weight.dtype());
  } else if (FormFor(weight.dtype(), isa) == ActivationForm::kBFloat16) {
    cost.bytes += 2 * r * k;
    cost.bfloat16_ops = ops;
  } else {
    cost.bytes += 4 * r * k;
    cost.flops = ops;
  }
  return cost;
}

}  // namespace tidemill
