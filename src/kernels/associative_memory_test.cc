#include "kernels/associative_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"
#include "tensor/half.h"

namespace tidemill::associative_memory_test {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::SameBits;
using testing::TestContext;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const MemoryShape kShapes[] = {
    {.hidden = 40, .key_dim = 6, .nu = 3},   {.hidden = 64, .key_dim = 32, .nu = 3, .correction = false},
    {.hidden = 1, .key_dim = 1, .nu = 1},    {.hidden = 17, .key_dim = 3, .nu = 6},
    {.hidden = 300, .key_dim = 16, .nu = 2}, {.hidden = 530, .key_dim = 64, .nu = 3},
};

std::vector<float> Features(ConstMatrix<float> x, size_t nu) {
  std::vector<float> f(x.rows * 2 * nu * x.cols);
  reference::DpfpFeatures(x, nu, {f.data(), x.rows, 2 * nu * x.cols});
  return f;
}

// Some rows, features of random vectors, and a memory that a few rows have written.
struct Inputs {
  MemoryShape shape;
  size_t rows;
  std::vector<float> x, f, v, b;
  std::vector<double> memory;     // exact
  std::vector<std::byte> stored;  // rounded to the shape's type, as is `memory` then

  Inputs(const MemoryShape& s, size_t n, uint64_t seed) : shape(s), rows(n) {
    testing::Random random(seed);
    const auto draw = [&random](size_t count, float amax) {
      std::vector<float> values(count);
      for (float& value : values) value = random.Uniform(amax);
      return values;
    };
    x = draw(n * s.hidden, 2);
    v = draw(n * s.hidden, 1);
    b = draw(n, 3);
    const std::vector<float> q = draw(n * s.key_dim, 1);
    f = Features({q.data(), n, s.key_dim}, s.nu);
    const std::vector<float> keys = draw(5 * s.key_dim, 1), values = draw(5 * s.hidden, 1), betas = draw(5, 2),
                             written = Features({keys.data(), 5, s.key_dim}, s.nu);
    memory.resize(s.elements());
    reference::MemoryWrite(s, nullptr, {written.data(), 5, s.features()}, {betas.data(), 5, 1},
                           {values.data(), 5, s.hidden}, memory.data());
    stored.resize(s.bytes());
    for (size_t i = 0; i < memory.size(); ++i) Store(memory[i], i);
  }

  void Store(double value, size_t i) {
    const auto rounded = static_cast<float>(value);
    if (shape.dtype == DType::kBF16) {
      const uint16_t bits = FloatToBFloat16(rounded);
      std::memcpy(stored.data() + 2 * i, &bits, 2);
      memory[i] = static_cast<double>(BFloat16ToFloat(bits));
    } else {
      std::memcpy(stored.data() + 4 * i, &rounded, 4);
      memory[i] = static_cast<double>(rounded);
    }
  }
  ConstMatrix<float> features() const { return {f.data(), rows, shape.features()}; }

  std::vector<float> Read(TestContext& context, size_t first, size_t count) const {
    std::vector<float> y(x.begin() + static_cast<std::ptrdiff_t>(first * shape.hidden),
                         x.begin() + static_cast<std::ptrdiff_t>((first + count) * shape.hidden));
    const MemoryReadTask task{
        .memory = stored.data(), .f = features().Rows(first, count), .x = {y.data(), count, shape.hidden}};
    MemoryRead(*context, shape, {&task, 1});
    return y;
  }
  // The new memory as f32, from the old one or none.
  std::vector<float> Write(TestContext& context, bool first, bool in_place = false) const {
    std::vector<float> u = v;
    std::vector<std::byte> out = stored;
    if (!in_place) std::fill(out.begin(), out.end(), std::byte{0xFF});
    const MemoryWriteTask task{.memory = first      ? nullptr
                                         : in_place ? out.data()
                                                    : stored.data(),
                               .out = out.data(),
                               .k = features(),
                               .b = {b.data(), rows, 1},
                               .v = {u.data(), rows, shape.hidden}};
    MemoryWrite(*context, shape, {&task, 1});
    return Values(out);
  }
  std::vector<float> Values(const std::vector<std::byte>& bytes) const {
    std::vector<float> values(shape.elements());
    if (shape.dtype == DType::kF32) {
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      values[i] = BFloat16ToFloat(bits);
    }
    return values;
  }
};

// --- The header's formulas in scalar steps ---

float Dot(Arithmetic math, const float* a, const float* b, size_t n) {
  float sums[16] = {};
  for (size_t p = 0; p < n; ++p) sums[p % 16] = math.MulAdd(a[p], b[p], sums[p % 16]);
  return testing::TreeSum16(sums);
}

float Column(Arithmetic math, const float* f, const float* a, size_t features, size_t hidden, size_t c) {
  float acc = 0;
  for (size_t p = 0; p < features; ++p) acc = math.MulAdd(f[p], a[p * hidden + c], acc);
  return acc;
}

std::vector<float> ReadFormula(Arithmetic math, const Inputs& in) {
  const size_t features = in.shape.features(), hidden = in.shape.hidden;
  const std::vector<float> memory = in.Values(in.stored);
  std::vector<float> y = in.x;
  for (size_t t = 0; t < in.rows; ++t) {
    const float* const f = in.features().row(t);
    const float divisor = Dot(math, f, memory.data() + features * hidden, features) + kMemoryEpsilon;
    for (size_t c = 0; c < hidden; ++c)
      y[t * hidden + c] += Column(math, f, memory.data(), features, hidden, c) / divisor;
  }
  return y;
}

std::vector<float> WriteFormula(Arithmetic math, const Inputs& in, bool first) {
  const size_t features = in.shape.features(), hidden = in.shape.hidden;
  const std::vector<float> old = first ? std::vector<float>(in.shape.elements()) : in.Values(in.stored);
  const float* const z = old.data() + features * hidden;
  std::vector<float> next = old;
  for (size_t t = 0; t < in.rows; ++t) {
    const float* const k = in.features().row(t);
    const float divisor = Dot(math, k, z, features) + kMemoryEpsilon, beta = math.Sigmoid(in.b[t]);
    float gamma = 1;
    if (!first && in.shape.correction)
      gamma = std::clamp(1 - divisor / (Dot(math, k, k, features) + kMemoryEpsilon), 0.0F, 1.0F);
    for (size_t c = 0; c < hidden; ++c) {
      const float v = in.v[t * hidden + c];
      const float u = beta * (first ? v : v - Column(math, k, old.data(), features, hidden, c) / divisor);
      for (size_t p = 0; p < features; ++p) next[p * hidden + c] = math.MulAdd(k[p], u, next[p * hidden + c]);
    }
    for (size_t p = 0; p < features; ++p) next[features * hidden + p] += gamma * k[p];
  }
  for (float& value : next) {
    if (in.shape.dtype == DType::kBF16) value = BFloat16ToFloat(FloatToBFloat16(value));
  }
  return next;
}

// --- Tests ---

TEST(DpfpFeatures, TwoElements_ByHand) {
  const std::vector<float> x = {2, -3};  // c = [2, 0, 0, 3]
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> f(12, kNan);
    DpfpFeatures(*context, {x.data(), 1, 2}, 3, {f.data(), 1, 12});
    // By 1: c[i] c[i - 1]; by 2: c[i] c[i - 2]; by 3: c[i] c[i - 3].
    EXPECT_EQ(f, (std::vector<float>{6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6}));
  }
}

TEST(DpfpFeatures, AnySize_GivesTheBitsOfTheReference) {
  for (const auto& [n, nu] : {std::pair<size_t, size_t>(1, 2), {3, 6}, {6, 3}, {32, 3}, {64, 3}, {512, 5}}) {
    const std::vector<float> x = testing::RandomFloats(n, 7 * n);
    std::vector<float> expected(7 * 2 * nu * n), f(expected.size(), kNan);
    reference::DpfpFeatures({x.data(), 7, n}, nu, {expected.data(), 7, 2 * nu * n});
    TestContext context(DetectIsa(), 2);
    DpfpFeatures(*context, {x.data(), 7, n}, nu, {f.data(), 7, 2 * nu * n});
    EXPECT_TRUE(SameBits(expected, f)) << n;
  }
}

TEST(AssociativeMemory, EveryLevel_MatchesReference) {
  for (const MemoryShape& shape : kShapes) {
    const Inputs in(shape, 19, shape.hidden);
    const size_t features = shape.features(), hidden = shape.hidden;
    std::vector<float> y = in.x;
    reference::MemoryRead(shape, in.memory.data(), in.features(), {y.data(), in.rows, hidden});
    std::vector<double> divisors(in.rows), weighted(in.rows * hidden);  // D_i; sums of |f A| / D
    for (size_t t = 0; t < in.rows; ++t) {
      const float* const f = in.features().row(t);
      divisors[t] = static_cast<double>(kMemoryEpsilon);
      for (size_t p = 0; p < features; ++p) divisors[t] += static_cast<double>(f[p]) * in.memory[features * hidden + p];
      for (size_t c = 0; c < hidden; ++c) {
        for (size_t p = 0; p < features; ++p)
          weighted[t * hidden + c] += std::fabs(static_cast<double>(f[p]) * in.memory[p * hidden + c]) / divisors[t];
      }
    }
    for (const bool first : {false, true}) {
      std::vector<double> exact(shape.elements()), sizes(shape.elements());
      reference::MemoryWrite(shape, first ? nullptr : in.memory.data(), in.features(), {in.b.data(), in.rows, 1},
                             {in.v.data(), in.rows, hidden}, exact.data());
      for (size_t i = 0; i < sizes.size() && !first; ++i) sizes[i] = std::fabs(in.memory[i]);
      for (size_t t = 0; t < in.rows; ++t) {
        const double beta = 1 / (1 + std::exp(-static_cast<double>(in.b[t])));
        for (size_t p = 0; p < features; ++p) {
          const auto k = static_cast<double>(in.features().row(t)[p]);
          for (size_t c = 0; c < hidden; ++c) {
            const double old = first ? 0 : weighted[t * hidden + c];
            sizes[p * hidden + c] += k * beta * (std::fabs(static_cast<double>(in.v[t * hidden + c])) + old);
          }
          sizes[features * hidden + p] += k;
        }
      }
      const std::vector<float> expected(exact.begin(), exact.end());
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa);
        EXPECT_TRUE(testing::Within(expected, in.Write(context, first),
                                    [&](size_t i) {
                                      return MemoryWriteTolerance(features, in.rows) * sizes[i] +
                                             0x1p-24 * std::fabs(exact[i]);
                                    }))
            << IsaName(isa) << " hidden " << hidden << " first " << first;
      }
    }
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      EXPECT_TRUE(testing::Within(y, in.Read(context, 0, in.rows),
                                  [&](size_t i) {
                                    return MemoryReadTolerance(features) * weighted[i] +
                                           0x1p-23 * std::fabs(static_cast<double>(y[i]));
                                  }))
          << IsaName(isa) << " hidden " << hidden;
    }
  }
}

TEST(AssociativeMemory, EveryLevelAndAnyNumberOfThreads_GivesTheBitsOfTheFormula) {
  for (MemoryShape shape : kShapes) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      shape.dtype = dtype;
      for (const size_t rows : {1, 9, 70}) {
        if (rows * shape.elements() > 70 * 5000) continue;  // of plain loops
        const Inputs in(shape, rows, shape.hidden + rows);
        for (const bool fused : {false, true}) {
          const Arithmetic math{fused};
          const std::vector<float> y = ReadFormula(math, in), next = WriteFormula(math, in, false),
                                   begun = WriteFormula(math, in, true);
          for (const Isa isa : LevelsHere()) {
            if (HasFma(isa) != fused) continue;
            for (const size_t threads : {1, 3}) {
              SCOPED_TRACE(std::string(IsaName(isa)) + " hidden " + std::to_string(shape.hidden) + " rows " +
                           std::to_string(rows) + " threads " + std::to_string(threads));
              TestContext context(isa, threads);
              EXPECT_TRUE(SameBits(y, in.Read(context, 0, rows)));
              EXPECT_TRUE(SameBits(next, in.Write(context, false)));
              EXPECT_TRUE(SameBits(next, in.Write(context, false, true)));
              EXPECT_TRUE(SameBits(begun, in.Write(context, true)));
            }
          }
        }
      }
    }
  }
}

// Rows of several tasks in one call, each with a memory of its own.
TEST(AssociativeMemory, TasksTogether_GiveTheBitsOfTasksAlone) {
  const MemoryShape shape = kShapes[0];
  const Inputs a(shape, 11, 1), b(shape, 3, 2);
  for (const Isa isa : LevelsHere()) {
    TestContext together(isa, 3), alone(isa);
    std::vector<float> x = a.x, y = b.x, u = a.v, w = b.v;
    const MemoryReadTask reads[] = {
        {.memory = a.stored.data(), .f = a.features(), .x = {x.data(), a.rows, shape.hidden}},
        {.memory = b.stored.data(), .f = b.features(), .x = {y.data(), b.rows, shape.hidden}}};
    MemoryRead(*together, shape, reads);
    EXPECT_TRUE(SameBits(a.Read(alone, 0, a.rows), x));
    EXPECT_TRUE(SameBits(b.Read(alone, 0, b.rows), y));
    std::vector<std::byte> of_a(shape.bytes()), of_b(shape.bytes());
    const MemoryWriteTask writes[] = {{.memory = a.stored.data(),
                                       .out = of_a.data(),
                                       .k = a.features(),
                                       .b = {a.b.data(), a.rows, 1},
                                       .v = {u.data(), a.rows, shape.hidden}},
                                      {.memory = nullptr,
                                       .out = of_b.data(),
                                       .k = b.features(),
                                       .b = {b.b.data(), b.rows, 1},
                                       .v = {w.data(), b.rows, shape.hidden}}};
    MemoryWrite(*together, shape, writes);
    EXPECT_TRUE(SameBits(a.Write(alone, false), a.Values(of_a)));
    EXPECT_TRUE(SameBits(b.Write(alone, true), b.Values(of_b)));
  }
}

// More rows than one loop has room for: a wave of many texts, each of which ends a segment.
TEST(AssociativeMemory, TasksOfMoreRowsThanALoopHas_GiveTheBitsOfTasksAlone) {
  const MemoryShape shape{.hidden = 1, .key_dim = 1, .nu = 1};
  const Inputs in(shape, kMaxMemoryRows / 2 - 1, 4), last(shape, 5, 5);
  TestContext together(DetectIsa(), 2), alone(DetectIsa());
  const Inputs* const inputs[] = {&in, &in, &last, &in, &in, &in};
  std::vector<std::vector<float>> values;
  std::vector<std::vector<std::byte>> outs(std::size(inputs), std::vector<std::byte>(shape.bytes()));
  for (const Inputs* input : inputs) values.push_back(input->v);
  std::vector<MemoryWriteTask> tasks;
  for (size_t i = 0; i < std::size(inputs); ++i) {
    tasks.push_back({.memory = inputs[i]->stored.data(),
                     .out = outs[i].data(),
                     .k = inputs[i]->features(),
                     .b = {inputs[i]->b.data(), inputs[i]->rows, 1},
                     .v = {values[i].data(), inputs[i]->rows, shape.hidden}});
  }
  MemoryWrite(*together, shape, tasks);
  for (size_t i = 0; i < std::size(inputs); ++i)
    EXPECT_TRUE(SameBits(inputs[i]->Write(alone, false), inputs[i]->Values(outs[i]))) << i;
}

TEST(AssociativeMemory, RowsAlone_GiveTheBitsOfRowsTogether) {
  const Inputs in(kShapes[4], 130, 5);
  TestContext together(DetectIsa(), 2), alone(DetectIsa());
  const std::vector<float> y = in.Read(together, 0, in.rows);
  for (size_t t = 0; t < in.rows; ++t)
    ASSERT_TRUE(SameBits(in.Read(alone, t, 1), std::span(y).subspan(t * in.shape.hidden, in.shape.hidden))) << t;
}

// gamma without the clip is negative for keys that are weaker than what stands there, and above 1 for none.
TEST(AssociativeMemory, RepeatedKey_AddsNothingToZ) {
  const MemoryShape shape{.hidden = 8, .key_dim = 4, .nu = 3};
  Inputs in(shape, 1, 3);
  TestContext context(DetectIsa());
  const size_t first_z = shape.features() * shape.hidden;
  for (size_t p = 0; p < shape.features(); ++p) in.Store(2 * static_cast<double>(in.f[p]), first_z + p);
  const std::vector<float> before = in.Values(in.stored), after = in.Write(context, false);
  for (size_t p = first_z; p < shape.elements(); ++p) EXPECT_EQ(after[p], before[p]) << p;
}

TEST(AssociativeMemory, NotFinite_IsSeenWhereverItIs) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    MemoryShape shape = kShapes[0];
    shape.dtype = dtype;
    Inputs in(shape, 1, 4);
    EXPECT_TRUE(IsFinite(shape, in.stored.data()));
    for (const size_t at : {size_t{0}, shape.elements() / 2, shape.elements() - 1}) {
      for (const double value : {static_cast<double>(kNan), HUGE_VAL, -HUGE_VAL}) {
        Inputs spoilt = in;
        spoilt.Store(value, at);
        EXPECT_FALSE(IsFinite(shape, spoilt.stored.data())) << at;
      }
    }
  }
}

TEST(AssociativeMemory, NaN_StaysInItsColumn) {
  Inputs in(kShapes[0], 2, 6);
  in.Store(static_cast<double>(kNan), 5);  // A[0, 5]
  in.f[0] = 1;
  TestContext context(DetectIsa());
  const std::vector<float> y = in.Read(context, 0, 1);
  for (size_t c = 0; c < y.size(); ++c) EXPECT_EQ(std::isnan(y[c]), c == 5) << c;
}

TEST(AssociativeMemory, Cost_CountsTheMemoryOnce) {
  const MemoryShape shape{.hidden = 10, .key_dim = 2, .nu = 3};
  EXPECT_EQ(shape.features(), 12U);
  EXPECT_EQ(shape.bytes(), 4U * 12 * 11);
  EXPECT_EQ(MemoryReadCost(shape, 3).bytes, 4 * (12 * 11 + 3 * (12 + 20)));
  EXPECT_EQ(MemoryWriteCost(shape, 3).bytes, 4 * (2 * 12 * 11 + 3 * (12 + 10 + 1)));
}

}  // namespace
}  // namespace tidemill::associative_memory_test
