#include <memory>
#include <string>
#include <vector>

#include "benchmarks/kernels/measure.h"
#include "kernels/matmul.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::benchmarks {
namespace {

struct Shape {
  DType dtype;
  size_t outputs, cols, rows;
};

std::string Name(const Shape& s) {
  return "MatMul/dtype:" + std::string(InfoOf(s.dtype).name) + "/out:" + std::to_string(s.outputs) +
         "/in:" + std::to_string(s.cols) + "/rows:" + std::to_string(s.rows);
}

void Run(benchmark::State& state, const Shape& s) {
  OneThread one;
  const testing::RandomWeight random(s.dtype, s.outputs, s.cols, 1);
  // Many rows work from the cache once a panel is there; few rows stream the weights.
  const bool cold = s.rows <= 16;
  const size_t copies = cold ? std::max<size_t>(2, kColdBytes / random.bytes.size()) : 1;
  BufferArena arena;
  std::vector<WeightMatrix> weights;
  for (size_t i = 0; i < copies; ++i) {
    weights.push_back(WeightMatrix::Pack(random.source, false, *one.threads, {}, &arena).value());
  }
  const size_t stride = s.cols | 16;  // as rows stand in a step's buffers
  const std::vector<float> x = testing::RandomFloats(2, s.rows * stride);
  auto buffer = QuantizedBuffer::Create(s.rows, s.cols, Level(), WantsBiased(s.dtype, Level())).value();
  std::vector<float> y(s.rows * s.outputs);
  MatMulTask task{.weight = nullptr,
                  .x = ConstMatrix<float>(x.data(), s.rows, s.cols, stride),
                  .y = Matrix<float>(y.data(), s.rows, s.outputs),
                  .accumulate = false};
  const ActivationForm form = FormFor(s.dtype, Level());
  if (form == ActivationForm::kInt8) task.quantized = buffer.Quantize(one.context, task.x);
  auto rounded = BFloat16Buffer::Create(s.rows, s.cols).value();
  if (form == ActivationForm::kBFloat16) task.bfloat16 = rounded.Round(one.context, task.x);
  size_t next = 0;
  for (auto _ : state) {
    task.weight = &weights[next];
    MatMul(one.context, {&task, 1});
    benchmark::ClobberMemory();
    next = next + 1 == copies ? 0 : next + 1;
  }
  Report(state, MatMulCost(weights[0], s.rows, Level()), cold);
}

const bool kRegistered = [] {
  std::vector<Shape> shapes;
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0}) {
    for (const auto& [outputs, cols] : {std::pair<size_t, size_t>{1536, 576}, {576, 576}, {49152, 576}, {2048, 8192}}) {
      for (const size_t rows : {1, 8, 512}) {
        if (outputs == 49152 && rows == 512) continue;  // logits are for few rows
        shapes.push_back({dtype, outputs, cols, rows});
      }
    }
  }
  for (const DType dtype :
       {DType::kQ8_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    for (const size_t rows : {1, 2, 4, 8, 32, 512}) shapes.push_back({dtype, 8960, 1536, rows});
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const size_t rows : {1, 8, 512}) shapes.push_back({dtype, 1536, 576, rows});
    for (const size_t rows : {1, 2, 4, 8, 32, 512}) shapes.push_back({dtype, 8192, 2048, rows});
  }
  for (const Shape& s : shapes) {
    Configure(benchmark::RegisterBenchmark(Name(s).c_str(), [s](benchmark::State& state) { Run(state, s); }));
  }
  return true;
}();

}  // namespace
}  // namespace tidemill::benchmarks
