#include "kernels/sparse_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "kernels/testing/compare.h"
#include "kernels/testing/sparse_context.h"
#include "kernels/testing/sparse_formula.h"

namespace tidemill::sparse_attention_test {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::Random;
using testing::SameBits;
using testing::SparseCase;
using testing::SparseContext;
using testing::SparseOutcome;
using testing::SparseRunResult;
using testing::TestContext;

SparseRunResult RunOne(TestContext& context, const SparseContext& inputs, size_t k) {
  SparseRunResult result(inputs.shape(), k);
  SparseTask task = inputs.Task(result.out.data());
  task.result = result.wanted();
  SparseAttention(*context, inputs.shape(), {&task, 1});
  return result;
}

// Where n < k, the places behind the first n of each KV head stay as they are.
std::vector<uint32_t> KeptOf(const SparseRunResult& result) {
  std::vector<uint32_t> kept;
  for (const uint32_t j : result.kept) {
    if (j != UINT32_MAX) kept.push_back(j);
  }
  return kept;
}

void ExpectFormula(const SparseOutcome& expected, const SparseRunResult& result) {
  EXPECT_EQ(expected.kept, KeptOf(result));
  EXPECT_EQ(expected.was_dense, result.was_dense);
  EXPECT_TRUE(SameBits(expected.alpha, result.alpha));
  EXPECT_TRUE(SameBits(expected.out, result.out));
}

// At every level, with one thread and with three.
void ExpectFormulaEverywhere(const SparseCase& c, const SparseContext& inputs) {
  SCOPED_TRACE(c.Name());
  std::vector<float> out(inputs.shape().heads * c.head_dim);
  const SparseTask task = inputs.Task(out.data());
  const SparseOutcome expected[] = {testing::SparseAttention({false}, inputs.shape(), inputs.plain(), task),
                                    testing::SparseAttention({true}, inputs.shape(), inputs.plain(), task)};
  for (const Isa isa : LevelsHere()) {
    SCOPED_TRACE(IsaName(isa));
    for (const size_t threads : {1, 3}) {
      SCOPED_TRACE(threads);
      TestContext context(isa, threads);
      ExpectFormula(expected[Arithmetic::Of(isa).fused ? 1 : 0], RunOne(context, inputs, c.form.k));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// What the other choices of a case are, by its seed.
SparseCase Varied(size_t group, size_t head_dim, DType dtype, size_t positions, uint64_t seed) {
  Random random(seed);
  SparseCase c{.group = group, .kv_heads = 2, .head_dim = head_dim, .kv_dtype = dtype, .positions = positions};
  c.seed = seed;
  c.form = {.kind = random.Below(4) == 0 ? SparseKind::kTopk : SparseKind::kSparq,
            .rule = random.Below(2) == 0 ? SparseRule::kPaper : SparseRule::kEval,
            .reallocate = random.Below(4) != 0,
            .r = 1 + random.Below(random.Below(4) == 0 ? head_dim : 24),
            .k = 1 + random.Below(random.Below(3) == 0 ? positions + 20 : 64)};
  c.form.local = 1 + random.Below(c.form.k);
  if (random.Below(6) == 0) c.form.floor = 0.3F;
  if (random.Below(4) == 0) c.step_rows = 1 + random.Below(std::min<size_t>(positions, 9));
  c.row = random.Below(c.step_rows);
  if (c.step_rows > 1 && random.Below(2) == 0) {
    for (size_t i = 0; i < c.step_rows; ++i) c.parents.push_back(static_cast<int32_t>(random.Below(i + 1)) - 1);
  }
  c.filled = random.Below(c.first_position() / kSumRows + 1) * kSumRows;
  if (random.Below(2) == 0) c.filled = c.first_position() / kSumRows * kSumRows;
  c.columns = random.Below(4) != 0;
  for (size_t i = random.Below(4), at = 0; i > 0; --i) c.cuts.push_back(at += 1 + random.Below(positions));
  if (random.Below(4) == 0) c.transposed = random.Below(positions + 1);
  if (random.Below(5) == 0) c.window = 1 + random.Below(positions);
  if (random.Below(5) == 0) c.soft_cap = 3;
  if (dtype == DType::kF16 && random.Below(4) == 0) {  // whose sums are exact, wherever they begin
    const size_t end = c.first_position() + 1, unseen = c.window != 0 && end > c.window ? end - c.window : 0;
    c.context_begin = random.Below(std::max(unseen, c.first_position()) + 1);
    if (c.context_begin > unseen) c.filled = 0;
  }
  if (random.Below(8) == 0) c.equal_keys = 1 + random.Below(7);
  return c;
}

TEST(SparseAttention, EveryLevel_HasTheBitsOfTheFormula) {
  uint64_t seed = 1;
  for (const size_t positions : {1, 7, 200, 256, 300, 1000}) {
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kQ8_0}) {
      for (const size_t head_dim : {64, 80, 128, 256}) {
        for (const size_t group : {1, 3, 4, 6, 7}) {
          if (head_dim % InfoOf(dtype).block_elements != 0) continue;
          if (positions == 1000 && (group + head_dim / 16) % 3 != 0) continue;
          const SparseCase c = Varied(group, head_dim, dtype, positions, seed++);
          ExpectFormulaEverywhere(c, SparseContext(c));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(SparseAttention, HeadDimensionsThatNoRegisterDivides_HaveTheBitsOfTheFormula) {
  uint64_t seed = 1000;
  for (const size_t head_dim : {1, 5, 40, 72}) {
    for (const DType dtype : {DType::kF16, DType::kF32}) {
      SparseCase c = Varied(3, head_dim, dtype, 270, seed++);
      c.form.r = std::min(c.form.r, head_dim);
      ExpectFormulaEverywhere(c, SparseContext(c));
    }
  }
}

TEST(SparseAttention, Layout_DoesNotChangeBits) {
  for (const DType dtype : {DType::kF16, DType::kF32}) {
    for (const size_t window : {0, 333}) {
      SparseCase c{.group = 3, .head_dim = 80, .kv_dtype = dtype, .positions = 700};
      c.form = {.kind = SparseKind::kSparq, .r = 9, .k = 32, .local = 8};
      c.window = window;
      SparseContext inputs(c);
      for (const Isa isa : LevelsHere()) {
        SCOPED_TRACE(IsaName(isa));
        TestContext context(isa, 3);
        inputs.Relayout(640, true, {}, 0);
        const SparseRunResult first = RunOne(context, inputs, c.form.k);
        const auto same = [&](const char* what) {
          SCOPED_TRACE(what);
          const SparseRunResult other = RunOne(context, inputs, c.form.k);
          EXPECT_EQ(first.kept, other.kept);
          EXPECT_TRUE(SameBits(first.out, other.out));
          EXPECT_TRUE(SameBits(first.alpha, other.alpha));
        };
        inputs.Relayout(512, true, {1, 2, 130, 515, 699}, 0);
        same("columns of fewer positions");
        inputs.Relayout(64, true, {100}, 700);
        same("columns of few positions, and tiles");
        inputs.Relayout(640, false, {300}, 0);
        same("sums alone");
        inputs.Relayout(640, false, {300}, 600);
        same("sums and tiles");
        if (window == 0) {
          inputs.Relayout(0, false, {}, 0);
          same("rows alone");
        }
      }
    }
  }
}

std::vector<float> DenseOf(TestContext& context, const SparseContext& inputs, const SparseTask& task) {
  const size_t cols = inputs.shape().heads * inputs.shape().head_dim;
  std::vector<float> q((task.row + 1) * cols), out(q.size());
  std::copy(task.q, task.q + cols, q.end() - static_cast<std::ptrdiff_t>(cols));
  const AttentionTask dense{.context = task.context,
                            .first_position = task.first_position,
                            .q = ConstMatrix<float>(q.data(), task.row + 1, cols),
                            .out = Matrix<float>(out.data(), task.row + 1, cols)};
  Attention(*context, inputs.shape(), {&dense, 1});
  return {out.end() - static_cast<std::ptrdiff_t>(cols), out.end()};
}

TEST(SparseAttention, AsManyAsThereAreOrAFloorOfOne_IsAttention) {
  for (const size_t group : {1, 4, 40}) {
    SparseCase c{.group = group, .positions = 300, .step_rows = 4, .row = 2};
    c.filled = 256;
    c.transposed = 160;
    for (const auto& [k, floor] : {std::pair<size_t, float>{299, 0}, {500, 0}, {16, 1}, {16, 0.99999F}}) {
      c.form = {.kind = SparseKind::kSparq, .r = 8, .k = k, .local = 4, .floor = floor};
      const SparseContext inputs(c);
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa, 3);
        const SparseRunResult result = RunOne(context, inputs, k);
        EXPECT_TRUE(SameBits(DenseOf(context, inputs, inputs.Task(nullptr)), result.out)) << c.Name() << " " << floor;
        EXPECT_EQ(result.was_dense, std::vector<uint8_t>(2, floor > 0 ? 1 : 0));
        EXPECT_EQ(result.alpha[0] == 1, floor != 0.99999F);
      }
    }
  }
}

TEST(SparseAttention, AllComponents_TakeTheGreatestScores) {
  SparseCase c{.group = 3, .positions = 500};
  c.form = {.kind = SparseKind::kSparq, .r = 64, .k = 20, .local = 1};
  const SparseContext inputs(c);
  TestContext context(DetectIsa());
  const SparseRunResult result = RunOne(context, inputs, c.form.k);
  for (size_t kv_head = 0; kv_head < 2; ++kv_head) {
    std::vector<double> sums(499);
    for (size_t h = 0; h < 3; ++h) {
      std::vector<double> s(500);
      double total = 0;
      for (size_t j = 0; j < 500; ++j) {
        for (size_t i = 0; i < 64; ++i)
          s[j] += static_cast<double>(const_cast<SparseContext&>(inputs).q()[(kv_head * 3 + h) * 64 + i]) *
                  static_cast<double>(inputs.plain().k[(kv_head * 500 + j) * 64 + i]) / 8;
        total += s[j] = std::exp(s[j]);
      }
      for (size_t j = 0; j < 499; ++j) sums[j] += s[j] / total;
    }
    std::vector<uint32_t> order(499);
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return sums[a] > sums[b]; });
    std::set<uint32_t> expected(order.begin(), order.begin() + 19);
    expected.insert(499);
    EXPECT_EQ(expected, (std::set<uint32_t>(result.kept.begin() + static_cast<std::ptrdiff_t>(kv_head * 20),
                                            result.kept.begin() + static_cast<std::ptrdiff_t>(kv_head * 20 + 20))));
  }
}

TEST(SparseAttention, EqualScores_GoToTheLowerPosition) {
  for (const SparseRule rule : {SparseRule::kPaper, SparseRule::kEval}) {
    for (const size_t positions : {100, 1000, 6000}) {
      SparseCase c{.group = 2, .kv_heads = 1, .positions = positions};
      c.equal_keys = 1;
      c.form = {.kind = SparseKind::kSparq, .rule = rule, .r = 4, .k = 12, .local = 3};
      const SparseContext inputs(c);
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa);
        std::vector<uint32_t> expected(9);
        std::iota(expected.begin(), expected.end(), 0U);
        for (size_t j = positions - 3; j < positions; ++j) expected.push_back(static_cast<uint32_t>(j));
        const std::vector<uint32_t> kept = RunOne(context, inputs, c.form.k).kept;
        if (rule == SparseRule::kEval || positions == 100) {
          EXPECT_EQ(expected, kept) << IsaName(isa) << " " << positions;
        }
      }
    }
  }
}

// Four query heads, two KV heads, two components of which one is taken.
TEST(SparseAttention, ComponentsOfAGroup_ByHand) {
  const float q[] = {1, 10, -20, 2, 30, 3, 4, 40};
  // Of the first group component 0 is taken, of the second component 1. Position 1 is the greater one there and the lesser one in the other.
  const float k[] = {-5, 9, 1, 0, 0, 0, /**/ 9, -5, 0, 1, 0, 0}, v[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const AttentionShape shape{.heads = 4, .kv_heads = 2, .head_dim = 2, .scale = std::sqrt(0.5F), .bias = {}};
  const KvSpan span{.k = reinterpret_cast<const std::byte*>(k),
                    .v = reinterpret_cast<const std::byte*>(v),
                    .head_stride = 6,
                    .first = 0,
                    .rows = 3};
  const SparseForm form{.kind = SparseKind::kSparq, .rule = SparseRule::kEval, .r = 1, .k = 2, .local = 1};
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    float out[8], alpha[4];
    uint32_t kept[4];
    const SparseTask task{.form = &form,
                          .context = {&span, 1},
                          .first_position = 2,
                          .q = q,
                          .out = out,
                          .result = {.alpha = alpha, .kept = kept}};
    SparseAttention(*context, shape, {&task, 1});
    // Sums of |q|: 21, 12 and 34, 43. Logits of head 0: q0 * k / sqrt(2 * 1 / 11), and so on.
    const double logits[4][3] = {{-5 / std::sqrt(2.0 / 11), 1 / std::sqrt(2.0 / 11), 0},
                                 {100 / std::sqrt(40.0 / 22), -20 / std::sqrt(40.0 / 22), 0},
                                 {-15 / std::sqrt(6.0 / 33), 3 / std::sqrt(6.0 / 33), 0},
                                 {-200 / std::sqrt(80.0 / 44), 40 / std::sqrt(80.0 / 44), 0}};
    EXPECT_EQ(kept[0], 0U);
    EXPECT_EQ(kept[1], 2U);
    EXPECT_EQ(kept[2], 1U);
    EXPECT_EQ(kept[3], 2U);
    for (size_t h = 0; h < 4; ++h) {
      double sum = 0;
      for (const double x : logits[h]) sum += std::exp(x);
      const double mass = (std::exp(logits[h][kept[h / 2 * 2]]) + 1) / sum;
      EXPECT_NEAR(static_cast<double>(alpha[h]), mass, 1e-6) << h;
    }
  }
}

TEST(SparseAttention, NoQuery_TakesTheFirstAndTheLastOnes) {
  SparseCase c{.group = 2, .positions = 300};
  c.filled = 256;
  c.form = {.kind = SparseKind::kSparq, .rule = SparseRule::kEval, .r = 4, .k = 8, .local = 2};
  SparseContext inputs(c);
  std::fill(inputs.q().begin(), inputs.q().end(), 0.0F);
  ExpectFormulaEverywhere(c, inputs);
  TestContext context(DetectIsa());
  const SparseRunResult result = RunOne(context, inputs, c.form.k);
  EXPECT_EQ(std::vector<uint32_t>(result.kept.begin(), result.kept.begin() + 8),
            (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 298, 299}));
  for (const float x : result.out) EXPECT_TRUE(std::isfinite(x));
  for (const float x : result.alpha) EXPECT_NEAR(x, 8.0F / 300, 1e-6F);
}

TEST(SparseAttention, NotANumber_StaysWithinItsGroup) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const SparseRule rule : {SparseRule::kPaper, SparseRule::kEval}) {
      for (const bool in_query : {true, false}) {
        SparseCase c{.group = 3, .positions = 5000};
        c.filled = 4864;
        c.form = {.kind = SparseKind::kSparq, .rule = rule, .r = 8, .k = 40, .local = 4};
        SparseContext inputs(c);
        TestContext context(DetectIsa(), 3);
        const SparseRunResult before = RunOne(context, inputs, c.form.k);
        if (in_query) {
          inputs.q()[5] = bad;
        } else {
          for (size_t i = 0; i < 64; ++i) inputs.k()[4999 * 64 + i] = bad;  // the row's own
          inputs.Store();
        }
        const SparseRunResult after = RunOne(context, inputs, c.form.k);
        size_t numbers = 0;
        for (size_t i = 0; i < 64; ++i) numbers += std::isnan(after.out[i]) ? 0 : 1;
        EXPECT_EQ(numbers, 0U);
        EXPECT_TRUE(SameBits(std::span(before.out).subspan(3 * 64), std::span(after.out).subspan(3 * 64)));
        for (size_t h = 0; h < 2; ++h) {
          const auto kept = std::span(after.kept).subspan(h * 40, 40);
          EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()) && kept.back() == 4999);
        }
      }
    }
  }
}

// Every byte that the formula does not read may be anything.
TEST(SparseAttention, WhatIsNotRead_MayBeNaN) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (const size_t window : {0, 400}) {
      SparseCase c{.group = 3, .head_dim = 64, .kv_dtype = dtype, .positions = 720, .step_rows = 3, .row = 1};
      c.parents = {-1, -1, 0};
      c.filled = 704;
      c.window = window;
      c.cuts = {200, 705};
      c.form = {.kind = SparseKind::kSparq, .r = 9, .k = 32, .local = 8};
      c.filled = 640;
      SparseContext inputs(c);
      std::vector<float> out(6 * 64);
      const SparseTask task = inputs.Task(out.data());
      const SparseOutcome outcome = testing::SparseAttention({true}, inputs.shape(), inputs.plain(), task);
      std::vector<SparseRunResult> before;
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa, 3);
        before.push_back(RunOne(context, inputs, c.form.k));
      }
      const size_t end = 718, begin = window == 0 ? 0 : end - window, element = InfoOf(dtype).block_bytes;
      for (size_t kv_head = 0; kv_head < 2; ++kv_head) {
        const std::vector<uint32_t>& kept = before.back().kept;
        const std::set<uint32_t> chosen(kept.begin() + static_cast<std::ptrdiff_t>(kv_head * 32),
                                        kept.begin() + static_cast<std::ptrdiff_t>(kv_head * 32 + 32));
        const std::vector<uint32_t>& components = outcome.components[kv_head];
        for (size_t row = 0; row < 720; ++row) {
          // Row 1 of the step is a root, too: its position is that of row 0.
          const bool seen = row >= begin && (row < 717 || row == 718);
          const size_t position = row == 718 ? 717 : row;
          if (seen && chosen.contains(static_cast<uint32_t>(position))) continue;
          for (size_t i = 0; i < 64; ++i) {
            const bool component = std::binary_search(components.begin(), components.end(), i);
            if (!seen || !component || row < 640) std::memset(inputs.Key(kv_head, row, i), 0xFF, element);
            const bool summed = seen && (row >= 640 || row < (begin + 63) / 64 * 64);
            if (!summed) std::memset(inputs.Value(kv_head, row, i), 0xFF, element);
          }
        }
        for (size_t j = inputs.first_block() * kColumnRows; j < 640; ++j) {
          for (size_t i = 0; i < 64; ++i) {
            const bool component = std::binary_search(components.begin(), components.end(), i);
            if (!component || j < begin) std::memset(inputs.Column(kv_head, j, i), 0xFF, element);
          }
        }
      }
      for (size_t level = 0; level < before.size(); ++level) {
        TestContext context(LevelsHere()[level], 3);
        const SparseRunResult after = RunOne(context, inputs, c.form.k);
        EXPECT_EQ(before[level].kept, after.kept);
        EXPECT_TRUE(SameBits(before[level].out, after.out)) << c.Name();
        for (const float x : after.out) EXPECT_TRUE(std::isfinite(x));
      }
    }
  }
}

}  // namespace
}  // namespace tidemill::sparse_attention_test
