#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::matmul_test {
namespace {

using testing::Arithmetic;
using testing::kAllTypes;
using testing::LevelsHere;
using testing::RandomFloats;
using testing::RandomWeight;
using testing::SameBits;
using testing::SameHash;
using testing::TestContext;
using testing::WholeBlocks;

std::string Label(Isa isa, DType dtype, size_t rows, size_t outputs, size_t cols) {
  return std::string(IsaName(isa)) + " " + std::string(InfoOf(dtype).name) + " rows " + std::to_string(rows) +
         " outputs " + std::to_string(outputs) + " cols " + std::to_string(cols);
}

// Whether the level's kernels have other ways to the sums, which read QuantizedRows::biased and which processors choose by what they do faster:
// here every one runs with and without it, and in three tests as tuned for another processor, too.
bool HasBiasedForm(DType dtype, Isa isa) {
  return dtype == DType::kQ8_0 && isa >= Isa::kAvx2 && isa < Isa::kAvx512Vnni;
}

std::vector<std::pair<Isa, Tuning>> LevelsAndTunings() {
  std::vector<std::pair<Isa, Tuning>> all;
  for (const Isa isa : LevelsHere()) {
    for (const Tuning tuning : testing::TuningsOf(isa)) all.emplace_back(isa, tuning);
  }
  return all;
}

// One product at one level, `biased` or not.
std::vector<float> MultiplyInOneForm(TestContext& context, const WeightMatrix& weight, ConstMatrix<float> x,
                                     std::vector<float> y, bool accumulate, size_t guard, bool biased) {
  constexpr float kGuard = -12345.5F;
  const size_t stride = weight.rows() + guard;
  if (y.empty()) y.assign(x.rows * weight.rows(), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> guarded(x.rows * stride, kGuard);
  for (size_t r = 0; r < x.rows; ++r) {
    std::copy_n(y.data() + r * weight.rows(), weight.rows(), guarded.data() + r * stride);
  }
  const ActivationForm form = FormFor(weight.dtype(), (*context).isa());
  auto quantized = QuantizedBuffer::Create(x.rows, weight.quantized() ? x.cols : 0, (*context).isa(), biased).value();
  auto bfloat16 = BFloat16Buffer::Create(x.rows, x.cols).value();
  MatMulTask task{.weight = &weight,
                  .x = {},
                  .y = Matrix<float>(guarded.data(), x.rows, weight.rows(), stride),
                  .accumulate = accumulate};
  if (form == ActivationForm::kInt8) {
    task.quantized = quantized.Quantize(*context, x);
    EXPECT_EQ(task.quantized.biased != nullptr, biased && x.rows >= kMinBiasedRows);
  } else if (form == ActivationForm::kBFloat16) {
    task.bfloat16 = bfloat16.Round(*context, x);
  } else {
    task.x = x;
  }
  MatMul(*context, {&task, 1});
  for (size_t r = 0; r < x.rows; ++r) {
    std::copy_n(guarded.data() + r * stride, weight.rows(), y.data() + r * weight.rows());
    for (size_t i = weight.rows(); i < stride; ++i)
      EXPECT_EQ(guarded[r * stride + i], kGuard) << "wrote past row " << r;
  }
  return y;
}

// One product at one level, whose forms give the same bits. `guard` columns of y beyond the outputs must stay as they were.
std::vector<float> Multiply(TestContext& context, const WeightMatrix& weight, ConstMatrix<float> x,
                            const std::vector<float>& y = {}, bool accumulate = false, size_t guard = 0) {
  std::vector<float> result = MultiplyInOneForm(context, weight, x, y, accumulate, guard, false);
  if (HasBiasedForm(weight.dtype(), (*context).isa())) {
    EXPECT_TRUE(SameBits(result, MultiplyInOneForm(context, weight, x, y, accumulate, guard, true)))
        << Label((*context).isa(), weight.dtype(), x.rows, weight.rows(), weight.cols()) << " biased";
  }
  return result;
}

WeightMatrix Packed(TestContext& context, const WeightSource& source, bool as_f32 = false) {
  return WeightMatrix::Pack(source, as_f32, context.threads(), {}).value();
}

struct Shape {
  size_t rows, outputs, cols;
};

TEST(MatMul, EveryLevel_StaysWithinToleranceOfReference) {
  for (const DType dtype : kAllTypes) {
    for (Shape s : {Shape{1, 16, 32}, Shape{3, 33, 64}, Shape{7, 100, 576}, Shape{2, 17, 2048}}) {
      s.cols = WholeBlocks(dtype, s.cols);
      const RandomWeight random(dtype, s.outputs, s.cols, 1);
      const std::vector<float> x = RandomFloats(2, s.rows * s.cols, 3);
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa);
        const WeightMatrix weight = Packed(context, random.source);
        const ConstMatrix<float> x_matrix(x.data(), s.rows, s.cols);
        const std::vector<float> y = Multiply(context, weight, x_matrix);

        std::vector<float> expected(y.size());
        auto buffer = QuantizedBuffer::Create(s.rows, s.cols, isa).value();
        const QuantizedRows q = weight.quantized() ? buffer.Quantize(*context, x_matrix) : QuantizedRows();
        auto rounded = BFloat16Buffer::Create(s.rows, s.cols).value();
        const bool rounds = FormFor(dtype, isa) == ActivationForm::kBFloat16;
        const MatMulTask task{.weight = &weight,
                              .x = x_matrix,
                              .quantized = q,
                              .bfloat16 = rounds ? rounded.Round(*context, x_matrix) : ConstMatrix<uint16_t>(),
                              .y = Matrix<float>(expected.data(), s.rows, s.outputs),
                              .accumulate = false};
        reference::MatMul({&task, 1});
        std::vector<double> magnitude(y.size());
        std::vector<float> w(s.cols);
        for (size_t n = 0; n < s.outputs; ++n) {
          weight.CopyRow(n, w);
          for (size_t i = 0; i < s.rows * s.cols; ++i) {
            const double xi = weight.quantized() ? static_cast<double>(q.d[i / kQuantBlock]) * q.q[i]
                              : rounds ? static_cast<double>(BFloat16ToFloat(task.bfloat16.row(i / s.cols)[i % s.cols]))
                                       : static_cast<double>(x[i]);
            // Formulas with a minimum add d * q and m apart, so that their terms do not cancel first: |d * q| <= |w| + |m|.
            const double minimum = static_cast<double>(testing::RandomMinimum(dtype));
            const double terms = std::fabs(static_cast<double>(w[i % s.cols])) + 2 * minimum;
            magnitude[i / s.cols * s.outputs + n] += std::fabs(xi) * terms;
          }
        }
        EXPECT_TRUE(testing::Within(expected, y, [&](size_t i) { return MatMulTolerance(s.cols) * magnitude[i]; }))
            << Label(isa, dtype, s.rows, s.outputs, s.cols);
      }
    }
  }
}

TEST(MatMul, EveryLevel_GivesTheBitsOfTheFormula) {
  uint64_t seed = 10;
  for (const DType dtype : kAllTypes) {
    const size_t block = InfoOf(dtype).block_elements;
    std::vector<Shape> shapes = {{1, 1, 32},   {2, 15, 64},   {3, 16, 96},  {4, 17, 32},  {5, 33, 160},
                                 {6, 47, 64},  {7, 48, 32},   {8, 65, 64},  {13, 80, 96}, {1, 129, 576},
                                 {2, 64, 576}, {35, 50, 192}, {85, 20, 320}};
    for (Shape& s : shapes) s.cols = WholeBlocks(dtype, s.cols);
    if (dtype == DType::kQ6_K) shapes.push_back({33, 33, 16640});  // more columns than are unpacked ahead of many rows
    if (block == 256) shapes.push_back({3, 20, 1280});  // panels whose scales do not end on a whole cache line
    if (block == 1) shapes.insert(shapes.end(), {{1, 16, 1}, {3, 17, 7}, {5, 31, 15}, {2, 16, 17}, {9, 40, 33}});
    for (const Shape s : shapes) {
      const RandomWeight random(dtype, s.outputs, s.cols, ++seed);
      const std::vector<float> x = RandomFloats(++seed, s.rows * s.cols, 4);
      const ConstMatrix<float> x_matrix(x.data(), s.rows, s.cols);
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa);
        const std::vector<float> expected = testing::MatMul(Arithmetic::Of(isa), random.source, x_matrix);
        EXPECT_TRUE(SameBits(expected, Multiply(context, Packed(context, random.source), x_matrix, {}, false, 3)))
            << Label(isa, dtype, s.rows, s.outputs, s.cols) << " packed";
        EXPECT_TRUE(
            SameBits(expected, Multiply(context, WeightMatrix::Map(random.source, false), x_matrix, {}, false, 3)))
            << Label(isa, dtype, s.rows, s.outputs, s.cols) << " mapped";
      }
    }
  }
}

TEST(MatMul, DequantisedWeights_GiveTheBitsOfTheFormula) {
  for (const DType dtype : kAllTypes) {
    const size_t cols = WholeBlocks(dtype, 96);
    const RandomWeight random(dtype, 35, cols, 30);
    const std::vector<float> x = RandomFloats(31, 5 * cols, 4);
    const ConstMatrix<float> x_matrix(x.data(), 5, cols);
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const std::vector<float> expected = testing::MatMul(Arithmetic::Of(isa), random.source, x_matrix, true);
      EXPECT_TRUE(SameBits(expected, Multiply(context, Packed(context, random.source, true), x_matrix)))
          << InfoOf(dtype).name;
      EXPECT_TRUE(SameBits(expected, Multiply(context, WeightMatrix::Map(random.source, true), x_matrix)))
          << InfoOf(dtype).name;
    }
  }
}

TEST(MatMul, InterleavedRows_ComeOutInTheirUsualOrder) {
  for (const DType dtype : kAllTypes) {
    const size_t cols = WholeBlocks(dtype, 64);
    RandomWeight random(dtype, 80, cols, 32);
    random.source.order.interleaved_head_dim = 40;
    const std::vector<float> x = RandomFloats(33, 3 * cols);
    const ConstMatrix<float> x_matrix(x.data(), 3, cols);
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const std::vector<float> expected = testing::MatMul(Arithmetic::Of(isa), random.source, x_matrix);
      EXPECT_TRUE(SameBits(expected, Multiply(context, Packed(context, random.source), x_matrix)))
          << InfoOf(dtype).name;
      EXPECT_TRUE(SameBits(expected, Multiply(context, WeightMatrix::Map(random.source, false), x_matrix)))
          << InfoOf(dtype).name;
    }
  }
}

TEST(MatMul, RowsInGroupsOfAnySize_GiveTheBitsOfRowsAlone) {
  constexpr size_t kRows = 40, kOutputs = 83;
  for (const DType dtype : kAllTypes) {
    const size_t cols = WholeBlocks(dtype, 128);
    const RandomWeight random(dtype, kOutputs, cols, 40);
    const std::vector<float> x = RandomFloats(41, kRows * cols);
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const WeightMatrix weight = Packed(context, random.source);
      std::vector<float> alone;
      for (size_t r = 0; r < kRows; ++r) {
        const std::vector<float> y = Multiply(context, weight, {x.data() + r * cols, 1, cols});
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (size_t rows = 2; rows <= kRows; rows += rows < 14 ? 1 : 13) {
        for (const size_t first : {size_t{0}, kRows - rows}) {
          const std::vector<float> y = Multiply(context, weight, {x.data() + first * cols, rows, cols});
          EXPECT_TRUE(SameBits(std::span(alone).subspan(first * kOutputs, rows * kOutputs), y))
              << Label(isa, dtype, rows, kOutputs, cols) << " from row " << first;
        }
      }
    }
  }
}

// Slices begin anywhere in a tile of biased rows, and are sliced again.
TEST(MatMul, SlicesOfBiasedRows_GiveTheBitsOfRowsAlone) {
  constexpr size_t kRows = 47, kOutputs = 83, kCols = 288;  // more blocks than are unpacked at once
  const RandomWeight random(DType::kQ8_0, kOutputs, kCols, 42);
  const std::vector<float> x = RandomFloats(43, kRows * kCols);
  const ConstMatrix<float> x_matrix(x.data(), kRows, kCols);
  for (const auto& [isa, tuning] : LevelsAndTunings()) {
    if (!HasBiasedForm(DType::kQ8_0, isa)) continue;
    TestContext context(isa, 1, tuning);
    const WeightMatrix weight = Packed(context, random.source);
    const std::vector<float> all = MultiplyInOneForm(context, weight, x_matrix, {}, false, 0, false);
    auto buffer = QuantizedBuffer::Create(kRows, kCols, isa, true).value();
    const QuantizedRows quantized = buffer.Quantize(*context, x_matrix);
    ASSERT_NE(quantized.biased, nullptr);
    for (size_t first = 0; first < 9; ++first) {
      const QuantizedRows rest = quantized.Rows(first / 2, kRows - first / 2);
      for (const size_t rows : {size_t{1}, size_t{3}, size_t{4}, size_t{11}, size_t{12}, size_t{13}, size_t{15},
                                size_t{22}, kRows - first}) {
        std::vector<float> y(rows * kOutputs);
        const MatMulTask task{.weight = &weight,
                              .x = {},
                              .quantized = rest.Rows(first - first / 2, rows),
                              .y = Matrix<float>(y.data(), rows, kOutputs)};
        EXPECT_EQ(task.quantized.biased_row, first % kBiasedTileRows);
        MatMul(*context, {&task, 1});
        EXPECT_TRUE(SameBits(std::span(all).subspan(first * kOutputs, rows * kOutputs), y))
            << Label(isa, DType::kQ8_0, rows, kOutputs, kCols) << " from row " << first << " tuned as "
            << testing::TuningName(tuning);
      }
    }
  }
}

TEST(MatMul, AnyNumberOfThreads_GivesTheSameBits) {
  for (const DType dtype : kAllTypes) {
    const size_t cols = WholeBlocks(dtype, 64);
    const RandomWeight random(dtype, 700, cols, 50);
    const std::vector<float> x = RandomFloats(51, 5 * cols);
    const ConstMatrix<float> x_matrix(x.data(), 5, cols);
    for (const Isa isa : LevelsHere()) {
      TestContext one(isa);
      const std::vector<float> expected = Multiply(one, Packed(one, random.source), x_matrix);
      for (const size_t threads : {2, 3}) {
        TestContext context(isa, threads);
        EXPECT_TRUE(SameBits(expected, Multiply(context, Packed(context, random.source), x_matrix)))
            << threads << " threads";
        EXPECT_TRUE(SameBits(expected, Multiply(context, WeightMatrix::Map(random.source, false), x_matrix)))
            << threads;
      }
    }
  }
}

TEST(MatMul, AnyTuning_GivesTheSameBits) {
  for (const DType dtype : kAllTypes) {
    // Odd numbers of panels; from 33 rows on blocks are unpacked once for all of them.
    std::vector<Shape> shapes;
    for (const size_t rows : {1, 2, 3, 9, 14, 33, 35}) shapes.push_back({rows, 133, WholeBlocks(dtype, 96)});
    shapes.push_back({35, 37, WholeBlocks(dtype, 2112)});  // a block's first sums are made twice
    if (dtype == DType::kQ8_0)
      shapes.push_back({140, 133, 96});  // biased blocks of more rows than one unpacked block has
    for (const auto& [rows, outputs, cols] : shapes) {
      const RandomWeight random(dtype, outputs, cols, 55);
      const std::vector<float> x = RandomFloats(56, rows * cols, 4);
      const ConstMatrix<float> x_matrix(x.data(), rows, cols);
      for (const Isa isa : LevelsHere()) {
        const std::vector<float> expected = testing::MatMul(Arithmetic::Of(isa), random.source, x_matrix);
        for (const Tuning tuning : testing::TuningsOf(isa)) {
          TestContext context(isa, 1, tuning);
          EXPECT_TRUE(SameBits(expected, Multiply(context, Packed(context, random.source), x_matrix, {}, false, 3)))
              << Label(isa, dtype, rows, outputs, cols) << " tuned as " << testing::TuningName(tuning);
        }
      }
    }
  }
}

TEST(MatMul, ManyRows_UnpackWhereItPays_WithinTheirScratch) {
  constexpr size_t kRows = 33, kGuard = 64;
  const auto pool = ThreadPool::Create(1).value();
  for (const DType dtype : kAllTypes) {
    const size_t cols = WholeBlocks(dtype, 96);
    const RandomWeight random(dtype, 48, cols, 57);
    const WeightMatrix weight = WeightMatrix::Pack(random.source, false, *pool, {}).value();
    if (!weight.quantized()) continue;
    const bool many_bits =
        dtype == DType::kQ5_0 || dtype == DType::kQ5_1 || dtype == DType::kQ5_K || dtype == DType::kQ6_K;
    const std::vector<float> x = RandomFloats(58, kRows * cols);
    for (const auto& [isa, tuning] : LevelsAndTunings()) {
      auto context = ExecutionContext::Create(isa, pool.get(), MatMulScratchBytes(weight) + kGuard, tuning).value();
      auto quantized = QuantizedBuffer::Create(kRows, cols, isa, false).value();
      std::vector<float> y(kRows * weight.rows());
      const MatMulTask task{.weight = &weight,
                            .x = {},
                            .quantized = quantized.Quantize(context, ConstMatrix<float>(x.data(), kRows, cols)),
                            .y = Matrix<float>(y.data(), kRows, weight.rows())};
      const std::span<std::byte> scratch = context.scratch(0);
      std::memset(scratch.data(), 0x5A, scratch.size());
      MatMul(context, {&task, 1});
      const auto untouched = [](std::span<const std::byte> bytes) {
        return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0x5A}; });
      };
      const std::string label = Label(isa, dtype, kRows, 48, cols) + " tuned as " + testing::TuningName(tuning);
      EXPECT_TRUE(untouched(scratch.last(kGuard))) << label;
      const bool pays = isa >= Isa::kAvx512Vnni && (many_bits || (tuning == Tuning::kIntel && dtype != DType::kQ8_0));
      EXPECT_EQ(!untouched(scratch.first(scratch.size() - kGuard)), pays) << label;
    }
  }
}

TEST(MatMul, Accumulating_AddsOnceAtTheEnd) {
  for (const DType dtype : kAllTypes) {
    const size_t cols = WholeBlocks(dtype, 64);
    for (const size_t rows : {1, 2, 6, 13, 34}) {
      const RandomWeight random(dtype, 51, cols, 60);
      const std::vector<float> x = RandomFloats(61, rows * cols), before = RandomFloats(62, rows * 51, 9);
      const ConstMatrix<float> x_matrix(x.data(), rows, cols);
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa);
        std::vector<float> expected = testing::MatMul(Arithmetic::Of(isa), random.source, x_matrix);
        for (size_t i = 0; i < expected.size(); ++i) expected[i] = before[i] + expected[i];
        EXPECT_TRUE(SameBits(expected, Multiply(context, Packed(context, random.source), x_matrix, before, true, 2)))
            << Label(isa, dtype, rows, 51, cols);
      }
    }
  }
}

// Kernels that take several panels of one row together, at the begin of a chunk and behind it, and what is left over.
TEST(MatMul, OneRow_OfAnyNumberOfPanels_GivesTheBitsOfTheFormula) {
  for (const DType dtype : kAllTypes) {
    const size_t cols = WholeBlocks(dtype, 64);
    for (const size_t outputs : {15, 31, 47, 64, 83, 1611}) {
      const RandomWeight random(dtype, outputs, cols, 63);
      const std::vector<float> x = RandomFloats(64, cols), before = RandomFloats(65, outputs, 9);
      const ConstMatrix<float> x_matrix(x.data(), 1, cols);
      for (const auto& [isa, tuning] : LevelsAndTunings()) {
        TestContext context(isa, 1, tuning);
        std::vector<float> expected = testing::MatMul(Arithmetic::Of(isa), random.source, x_matrix);
        EXPECT_TRUE(SameBits(expected, Multiply(context, Packed(context, random.source), x_matrix, {}, false, 2)))
            << Label(isa, dtype, 1, outputs, cols) << " tuned as " << testing::TuningName(tuning);
        for (size_t i = 0; i < outputs; ++i) expected[i] = before[i] + expected[i];
        EXPECT_TRUE(SameBits(expected, Multiply(context, Packed(context, random.source), x_matrix, before, true, 2)))
            << Label(isa, dtype, 1, outputs, cols) << " added, tuned as " << testing::TuningName(tuning);
      }
    }
  }
}

TEST(MatMul, GroupOfTasks_GivesTheBitsOfEachAlone) {
  constexpr size_t kTasks = 60;
  for (const Isa isa : LevelsHere()) {
    for (const size_t threads : {1, 3}) {
      TestContext context(isa, threads);
      std::vector<std::unique_ptr<RandomWeight>> sources;
      std::vector<WeightMatrix> weights;
      std::vector<std::vector<float>> inputs, expected, outputs;
      std::vector<QuantizedBuffer> buffers;
      std::vector<BFloat16Buffer> bfloat16;
      std::vector<MatMulTask> tasks;
      for (size_t i = 0; i < kTasks; ++i) {
        const DType dtype = kAllTypes[i % kAllTypes.size()];
        const size_t rows = i % 5, outs = 1 + i * 7 % 90;  // some have no rows
        const size_t cols = WholeBlocks(dtype, 32) * (1 + i % 3);
        sources.push_back(std::make_unique<RandomWeight>(dtype, outs, cols, 70 + i));
        weights.push_back(i % 4 == 0 ? WeightMatrix::Map(sources[i]->source, false)
                                     : Packed(context, sources[i]->source));
        inputs.push_back(RandomFloats(170 + i, rows * cols));
        expected.push_back(testing::MatMul(Arithmetic::Of(isa), sources[i]->source, {inputs[i].data(), rows, cols}));
        outputs.emplace_back(rows * outs);
        buffers.push_back(QuantizedBuffer::Create(rows, cols, isa).value());
        bfloat16.push_back(BFloat16Buffer::Create(rows, cols).value());
      }
      for (size_t i = 0; i < kTasks; ++i) {
        const ConstMatrix<float> x(inputs[i].data(), i % 5, weights[i].cols());
        MatMulTask task{.weight = &weights[i],
                        .x = x,
                        .y = Matrix<float>(outputs[i].data(), x.rows, weights[i].rows()),
                        .accumulate = false};
        const ActivationForm form = FormFor(weights[i].dtype(), isa);
        if (form == ActivationForm::kInt8) task.quantized = buffers[i].Quantize(*context, x);
        if (form == ActivationForm::kBFloat16) task.bfloat16 = bfloat16[i].Round(*context, x);
        tasks.push_back(task);
      }
      MatMul(*context, tasks);
      for (size_t i = 0; i < kTasks; ++i) {
        EXPECT_TRUE(SameBits(expected[i], outputs[i])) << IsaName(isa) << " task " << i << " threads " << threads;
      }
    }
  }
}

TEST(MatMul, NoTasks_DoNothing) {
  TestContext context(Isa::kBaseline);
  MatMul(*context, {});
}

TEST(MatMul, InfinityInARow_GivesThatRowNaNAndLeavesOthers) {
  for (const DType dtype : kAllTypes) {
    if (!InfoOf(dtype).quantized) continue;
    const size_t cols = WholeBlocks(dtype, 64);
    const RandomWeight random(dtype, 20, cols, 80);
    std::vector<float> x = RandomFloats(81, 3 * cols);
    const std::vector<float> clean = x;
    x[cols + 5] = std::numeric_limits<float>::infinity();
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const WeightMatrix weight = Packed(context, random.source);
      const std::vector<float> expected = Multiply(context, weight, {clean.data(), 3, cols});
      const std::vector<float> y = Multiply(context, weight, {x.data(), 3, cols});
      EXPECT_TRUE(SameBits(std::span(expected).first(20), std::span(y).first(20)));
      EXPECT_TRUE(SameBits(std::span(expected).last(20), std::span(y).last(20)));
      for (size_t n = 20; n < 40; ++n) EXPECT_TRUE(std::isnan(y[n])) << IsaName(isa) << " output " << n;
    }
  }
}

// Extreme halves: the largest, infinity, NaN, subnormals.
TEST(MatMul, HalvesOfEveryKind_AreReadExactly) {
  const uint16_t halves[16] = {0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0x0001, 0x8001, 0x03FF,
                               0x0400, 0x0000, 0x8000, 0x3C00, 0xBC01, 0x7BFE, 0x83FF, 0x5555};
  WeightSource source{
      .dtype = DType::kF16, .rows = 16, .cols = 1, .bytes = std::as_bytes(std::span(halves)), .order = {}};
  const float one = 1;
  std::vector<float> expected;
  for (const uint16_t half : halves) expected.push_back(HalfToFloat(half) + 0.0F);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    EXPECT_TRUE(SameBits(expected, Multiply(context, Packed(context, source), {&one, 1, 1}))) << IsaName(isa);
  }
}

// The largest sums that a block can have are exact: every quant, scale and activation at its extreme.
TEST(MatMul, ExtremeQuants_GiveTheBitsOfTheFormula) {
  for (const DType dtype : kAllTypes) {
    if (!InfoOf(dtype).quantized) continue;
    const size_t cols = WholeBlocks(dtype, 64);
    for (const int fill : {0x00, 0xFF, 0x80, 0x7F}) {
      RandomWeight random(dtype, 16, cols, 82);
      const DTypeInfo info = InfoOf(dtype);
      const size_t first_half = dtype == DType::kQ6_K ? 208 : 0, halves = testing::RandomMinimum(dtype) != 0 ? 4 : 2;
      for (size_t i = 0; i < random.bytes.size(); ++i) {
        const size_t within = i % info.block_bytes;
        if (within < first_half || within >= first_half + halves) random.bytes[i] = static_cast<std::byte>(fill);
      }
      for (const float sign : {1.0F, -1.0F}) {
        constexpr size_t kRows = 15;  // several tiles
        const std::vector<float> x(kRows * cols, sign);
        const ConstMatrix<float> x_matrix(x.data(), kRows, cols);
        for (const Isa isa : LevelsHere()) {
          const std::vector<float> expected = testing::MatMul(Arithmetic::Of(isa), random.source, x_matrix);
          for (const Tuning tuning : testing::TuningsOf(isa)) {
            TestContext context(isa, 1, tuning);
            EXPECT_TRUE(SameBits(expected, Multiply(context, Packed(context, random.source), x_matrix)))
                << Label(isa, dtype, kRows, 16, cols) << " bytes " << fill << " tuned as "
                << testing::TuningName(tuning);
          }
        }
      }
    }
  }
}

TEST(MatMul, Cost_CountsEachWeightActivationAndResultOnce) {
  TestContext context(Isa::kBaseline);
  const RandomWeight random(DType::kQ4_1, 32, 64, 90);
  const Cost cost = MatMulCost(Packed(context, random.source), 3, Isa::kBaseline);
  EXPECT_EQ(cost.bytes, 32 * 64 * 20.0 / 32 + 3 * (64 + 2 * 12) + 3 * 32 * 4);
  EXPECT_EQ(cost.int8_ops, 2 * 3 * 32 * 64);
  EXPECT_EQ(cost.flops, 3 * 32 * 2 * 5);
  const auto flops_of_a_block = [&](DType dtype) {
    const RandomWeight weight(dtype, 16, 256, 91);
    return MatMulCost(Packed(context, weight.source), 1, Isa::kBaseline).flops / (16 * 8);
  };
  EXPECT_EQ(flops_of_a_block(DType::kQ5_0), 3);
  EXPECT_EQ(flops_of_a_block(DType::kQ5_1), 5);
  EXPECT_EQ(flops_of_a_block(DType::kQ4_K), 5);
  EXPECT_EQ(flops_of_a_block(DType::kQ6_K), 6);
  const RandomWeight halves(DType::kBF16, 16, 64, 93);
  EXPECT_EQ(MatMulCost(Packed(context, halves.source), 2, Isa::kBaseline).flops, 2 * 2 * 16 * 64);
  const Cost products = MatMulCost(Packed(context, halves.source), 2, Isa::kAvx512Bf16);
  EXPECT_EQ(products.bfloat16_ops, 2 * 2 * 16 * 64);
  EXPECT_EQ(products.bytes, 2 * 16 * 64 + 2 * 2 * 64 + 4 * 2 * 16);
  EXPECT_EQ(products.flops, 0);
  const RandomWeight k_quant(DType::kQ4_K, 16, 256, 92);
  EXPECT_EQ(MatMulCost(Packed(context, k_quant.source), 1, Isa::kBaseline).bytes, 16 * 148 + 256 + 8 * 12 + 16 * 4);
}

// Kept hashes: the bits of this machine are the bits of every other.
TEST(MatMul, EveryLevel_GivesTheKeptHash) {
  struct Kept {
    DType dtype;
    uint64_t fma, baseline, own_products = 0;  // the last where a level has products of the type's own
  };
  const Kept all[] = {
      {DType::kF32, 0x6662F6A9BCABC80C, 0xE70C1047C2231DB6},
      {DType::kF16, 0xD603684F4AE6C95D, 0xC4EAA8B9EEC86D15},
      {DType::kBF16, 0xA1A1C4617F99197D, 0x074E45569DC1D39A, 0x95AA58FE4B203256},
      {DType::kQ8_0, 0x8C78E0B885974FE0, 0x10AA7B5F16CBD293},
      {DType::kQ4_0, 0x54E23D9DED72BF36, 0x0ED2E00E130591DE},
      {DType::kQ4_1, 0xDF8E550274A0B37D, 0x606EE1EFC8C5030F},
      {DType::kQ5_0, 0xDA9FAA8661DEA7FD, 0x2ECBAA9EEB39F104},
      {DType::kQ5_1, 0x9C9463854B966FA7, 0xD4C7C182605A6BD0},
      {DType::kQ4_K, 0xC1303F2429E8D0A7, 0x63B785F29E5BBEC3},
      {DType::kQ5_K, 0xDE1BD1B502DF4B27, 0xA1C0276F95D52DCC},
      {DType::kQ6_K, 0x1386E5DFC22616E3, 0xEC9C04EA52688343},
  };
  for (const Kept& kept : all) {
    const size_t cols = WholeBlocks(kept.dtype, 576);
    const RandomWeight random(kept.dtype, 200, cols, 100);
    const std::vector<float> x = RandomFloats(101, 7 * cols, 2);
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const std::vector<float> y = Multiply(context, Packed(context, random.source), {x.data(), 7, cols});
      const bool own = FormFor(kept.dtype, isa) == ActivationForm::kBFloat16;
      const uint64_t expected = own ? kept.own_products : HasFma(isa) ? kept.fma : kept.baseline;
      EXPECT_TRUE(SameHash(expected, testing::HashOf<float>(y))) << InfoOf(kept.dtype).name << " " << IsaName(isa);
    }
  }
}

}  // namespace
}  // namespace tidemill::matmul_test
