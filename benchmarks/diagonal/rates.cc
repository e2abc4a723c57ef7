// Rates of one call against the number of layers whose rows it has, as a diagonal makes it: Figs. 4 and 5 of arXiv:2506.05229.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/diagonal/loaded_model.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/testing/seeded_inputs.h"
#include "models/layers/step_buffers.h"

namespace tidemill::diagonal {
namespace {

template <typename Run>
double MedianSeconds(size_t rounds, const Run& run) {
  run();
  std::vector<double> seconds;
  for (size_t i = 0; i < rounds; ++i) {
    const double begin = Now();
    run();
    seconds.push_back(Now() - begin);
  }
  return Median(std::move(seconds));
}

void PrintRate(const LoadedModel& loaded, const char* operation, size_t group, size_t rows, double seconds,
               double flops) {
  nlohmann::ordered_json line = loaded.Line("rates");
  line.update(
      {{"operation", operation}, {"group", group}, {"rows", rows}, {"seconds", seconds}, {"flops", flops / seconds}});
  Print(line);
}

// The largest weight of a layer that all rows go through.
const WeightMatrix& LargestOf(const DecoderLayer& layer) {
  const WeightMatrix* largest = nullptr;
  layer.ForEachWeight([&largest](const WeightUse& use) {
    const WeightMatrix& weight = use.linear.weight;
    if (use.experts == 1 && (largest == nullptr || weight.rows() * weight.cols() > largest->rows() * largest->cols()))
      largest = &weight;
  });
  if (largest == nullptr) Refuse("rates: expected a linear layer in every decoder layer");
  return *largest;
}

void MatMulRates(const LoadedModel& loaded, const Options& options, size_t rows) {
  const std::vector<DecoderLayer>& layers = loaded.model->layers;
  const WeightMatrix& first = LargestOf(layers.front());
  StepShape shape{.hidden = first.cols()};
  shape.AddWeight(first);
  auto buffers = StepBuffers::Create(shape, rows * layers.size(), loaded.ctx->isa());
  if (!buffers.ok()) Refuse("rates: " + buffers.error().message());
  const std::vector<float> x = testing::RandomFloats(1, buffers->x.cols * rows * layers.size());
  std::vector<float> y(first.rows() * rows * layers.size());
  const ConstMatrix<float> source(x.data(), rows * layers.size(), first.cols());
  const Matrix<float> out(y.data(), rows * layers.size(), first.rows());
  for (size_t group = 1; group <= layers.size();
       group = group < layers.size() ? std::min(2 * group, layers.size()) : group + 1) {
    const double seconds = MedianSeconds(options.rounds, [&] {
      buffers->BeginProducts(source);
      for (size_t i = 0; i < group; ++i) buffers->AddProduct(LargestOf(layers[i]), i * rows, rows, out, false);
      buffers->RunProducts(*loaded.ctx);
    });
    const double flops = 2 * static_cast<double>(group * rows) * static_cast<double>(first.rows() * first.cols());
    PrintRate(loaded, "matmul", group, rows, seconds, flops);
  }
}

void AttentionRates(const LoadedModel& loaded, const Options& options, size_t rows) {
  const std::optional<AttentionShape> found = loaded.model->attention_shapes(DType::kF16).front();
  if (!found.has_value()) Refuse("rates: expected attention in the first layer");
  const AttentionShape& shape = *found;
  const size_t layers = loaded.model->layers.size(), width = shape.heads * shape.head_dim,
               kv_bytes = RowBytes(DType::kF16, shape.kv_heads * rows * shape.head_dim);
  const std::vector<float> q = testing::RandomFloats(1, layers * rows * width);
  std::vector<float> out(q.size());
  std::vector<std::byte> kv(2 * layers * kv_bytes);  // zeros
  std::vector<KvSpan> spans(layers);
  std::vector<AttentionTask> tasks;
  for (size_t i = 0; i < layers; ++i) {
    spans[i] = {.k = kv.data() + 2 * i * kv_bytes,
                .v = kv.data() + (2 * i + 1) * kv_bytes,
                .head_stride = rows * shape.head_dim,
                .rows = rows};
    tasks.push_back({.context = std::span(spans).subspan(i, 1),
                     .q = {q.data() + i * rows * width, rows, width},
                     .out = {out.data() + i * rows * width, rows, width}});
  }
  const double flops = AttentionCost(shape, rows, rows * (rows + 1) / 2, rows).flops;
  for (size_t group = 1; group <= layers; group = group < layers ? std::min(2 * group, layers) : group + 1) {
    const double seconds =
        MedianSeconds(options.rounds, [&] { Attention(*loaded.ctx, shape, std::span(tasks).first(group)); });
    PrintRate(loaded, "attention", group, rows, seconds, static_cast<double>(group) * flops);
  }
}

}  // namespace

int RunRates(const Options& options) {
  const LoadedModel loaded = Load(options);
  const SegmentShape& segments = loaded.model->segments.shape;
  const size_t rows = options.rows != 0                  ? options.rows
                      : loaded.model->segments.present() ? segments.segment_tokens + segments.memory_rows
                                                         : 512;
  MatMulRates(loaded, options, rows);
  AttentionRates(loaded, options, rows);
  return 0;
}

}  // namespace tidemill::diagonal
