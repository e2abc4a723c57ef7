// The operations between the products: everything that works row by row.
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/kernels/measure.h"
#include "kernels/activation.h"
#include "kernels/activations.h"
#include "kernels/rms_norm.h"
#include "kernels/short_convolution.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::benchmarks {
namespace {

// For Q8_0 weights.
void QuantizeRows(benchmark::State& state, size_t rows, size_t cols) {
  OneThread one;
  const std::vector<float> x = testing::RandomFloats(1, rows * cols);
  const bool biased = WantsBiased(DType::kQ8_0, Level()) && rows >= kMinBiasedRows;
  auto buffer = QuantizedBuffer::Create(rows, cols, Level(), biased).value();
  for (auto _ : state) {
    buffer.Quantize(one.context, {x.data(), rows, cols});
    benchmark::ClobberMemory();
  }
  Report(state, QuantizeCost(rows, cols, Level(), biased), false);
}

constexpr std::pair<Activation, const char*> kKinds[] = {{Activation::kSilu, "silu"},
                                                         {Activation::kGeluTanh, "gelu_tanh"},
                                                         {Activation::kGeluErf, "gelu_erf"},
                                                         {Activation::kRelu, "relu"},
                                                         {Activation::kSigmoid, "sigmoid"}};

void Norm(benchmark::State& state, size_t rows, size_t cols) {
  OneThread one;
  const std::vector<float> x = testing::RandomFloats(1, rows * cols), w = testing::RandomFloats(2, cols);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    RmsNorm(one.context, {x.data(), rows, cols}, w, 1e-5F, {y.data(), rows, cols});
    benchmark::ClobberMemory();
  }
  Report(state, RmsNormCost(rows, cols), false);
}

void Gate(benchmark::State& state, Activation kind, size_t rows, size_t cols) {
  OneThread one;
  const std::vector<float> gate = testing::RandomFloats(1, rows * cols, 5), up = testing::RandomFloats(2, rows * cols);
  std::vector<float> y(gate.size());
  for (auto _ : state) {
    GatedActivate(one.context, kind, {gate.data(), rows, cols}, {up.data(), rows, cols}, {y.data(), rows, cols});
    benchmark::ClobberMemory();
  }
  Report(state, GatedActivationCost(kind, rows, cols), false);
}

// Of one sequence, whose first row has `width` - 1 predecessors already.
void Convolve(benchmark::State& state, size_t rows, size_t width, size_t channels) {
  OneThread one;
  const std::vector<float> x = testing::RandomFloats(1, (rows + width - 1) * channels, 5),
                           w = testing::RandomFloats(2, width * channels);
  std::vector<const float*> inputs;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < width; ++i) inputs.push_back(x.data() + (r + i) * channels);
  }
  std::vector<float> y(rows * channels);
  for (auto _ : state) {
    ShortConvolution(one.context, inputs, {w.data(), width, channels}, {y.data(), rows, channels});
    benchmark::ClobberMemory();
  }
  Report(state, ShortConvolutionCost(rows, width, channels), false);
}

// Embedding rows, in no order.
void CopyRows(benchmark::State& state, DType dtype, bool packed) {
  constexpr size_t kRows = 4096, kCols = 576;
  OneThread one;
  const testing::RandomWeight random(dtype, kRows, kCols, 1);
  const WeightMatrix weight = packed ? WeightMatrix::Pack(random.source, false, *one.threads, {}).value()
                                     : WeightMatrix::Map(random.source, false);
  std::vector<float> out(kCols);
  size_t row = 0;
  for (auto _ : state) {
    weight.CopyRow(row, out);
    benchmark::ClobberMemory();
    row = (row + 1009) % kRows;
  }
  Report(state,
         {.bytes = static_cast<double>(RowBytes(dtype, kCols)) + 4.0 * kCols, .flops = 2.0 * kCols, .int8_ops = 0},
         false);
}

const bool kRegistered = [] {
  const auto add = [](const std::string& name, auto run) {
    Configure(benchmark::RegisterBenchmark(name.c_str(), run));
  };
  for (const size_t rows : {1, 512}) {
    const std::string tokens = "/tokens:" + std::to_string(rows);
    add("Quantize" + tokens + "/cols:576", [=](benchmark::State& state) { QuantizeRows(state, rows, 576); });
    add("RmsNorm" + tokens + "/hidden:576", [=](benchmark::State& state) { Norm(state, rows, 576); });
    add("ShortConvolution" + tokens + "/width:4/channels:8192",
        [=](benchmark::State& state) { Convolve(state, rows, 4, 8192); });
    for (const auto& [kind, name] : kKinds) {
      add("GatedActivate/" + std::string(name) + tokens + "/ffn:1536",
          [=, kind = kind](benchmark::State& state) { Gate(state, kind, rows, 1536); });
    }
  }
  for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    for (const bool packed : {true, false}) {
      add("CopyRow/dtype:" + std::string(InfoOf(dtype).name) + (packed ? "/packed" : "/mapped") + "/cols:576",
          [=](benchmark::State& state) { CopyRows(state, dtype, packed); });
    }
  }
  return true;
}();

}  // namespace
}  // namespace tidemill::benchmarks
