#include "kernels/heavy_hitters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/testing/compare.h"
#include "kernels/testing/sparse_context.h"

namespace tidemill::heavy_hitters_test {
namespace {

using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::SparseCase;
using testing::SparseContext;
using testing::TestContext;
using testing::Within;

// Rows [first, positions) of one sequence, the first `dense` of them dense; sums of what is before them are given.
struct HeavyCase {
  SparseCase stored;
  size_t first = 0, dense = 0;

  std::string Name() const {
    return stored.Name() + " first " + std::to_string(first) + " dense " + std::to_string(dense);
  }
};

struct HeavyInputs {
  explicit HeavyInputs(const HeavyCase& of)
      : c(of),
        context(of.stored),
        cols(context.shape().heads * of.stored.head_dim),
        q(RandomFloats(of.stored.seed + 77, (of.stored.positions - of.first) * cols, 2)),
        sums(of.stored.kv_heads, std::vector<float>(of.stored.positions)) {
    for (size_t h = 0; h < sums.size(); ++h) {
      const std::vector<float> given = RandomFloats(of.stored.seed + 78 + h, of.first);
      for (size_t j = 0; j < of.first; ++j) sums[h][j] = of.dense == 0 && j % 5 == 3 ? kEvicted : 2 + given[j];
    }
  }
  size_t rows() const { return c.stored.positions - c.first; }

  HeavyCase c;
  SparseContext context;
  size_t cols;                           // of a row of q and out
  std::vector<float> q;                  // [rows, cols]
  std::vector<std::vector<float>> sums;  // [kv_heads][positions] before the first row
};

struct HeavyResult {
  std::vector<float> out;                // [rows, cols]; NaN where nothing was written
  std::vector<std::vector<float>> sums;  // [kv_heads][positions]
};

// Rows come in chunks, each of which sees a context that ends with it.
HeavyResult RunHeavy(ExecutionContext& ctx, const HeavyInputs& inputs, size_t chunk) {
  HeavyResult result{.out = std::vector<float>(inputs.q.size(), std::nanf("")), .sums = inputs.sums};
  for (size_t begin = 0; begin < inputs.rows(); begin += chunk) {
    const size_t rows = std::min(chunk, inputs.rows() - begin), end = inputs.c.first + begin + rows;
    std::vector<KvSpan> spans;
    for (KvSpan span : inputs.context.spans()) {
      if (span.first >= end) break;
      span.rows = std::min(span.rows, end - span.first);
      spans.push_back(span);
    }
    std::vector<std::span<float>> sums;
    for (std::vector<float>& own : result.sums) sums.push_back(std::span(own).first(end));
    AttendHeavyHitters(ctx, inputs.context.shape(),
                       {.form = &inputs.c.stored.form,
                        .context = spans,
                        .first_position = inputs.c.first + begin,
                        .dense_rows = std::min(rows, inputs.c.dense - std::min(inputs.c.dense, begin)),
                        .q = ConstMatrix<float>(inputs.q.data() + begin * inputs.cols, rows, inputs.cols),
                        .out = Matrix<float>(result.out.data() + begin * inputs.cols, rows, inputs.cols),
                        .sums = sums});
  }
  return result;
}

// The header in plain loops of double.
class PlainHeavy {
 public:
  explicit PlainHeavy(const HeavyInputs& inputs) : inputs_(inputs), shape_(inputs.context.shape()) {
    out.assign(inputs.q.size(), std::nan(""));
    for (size_t h = 0; h < shape_.kv_heads; ++h) {
      sums.emplace_back(inputs.sums[h].begin(), inputs.sums[h].end());
      for (size_t row = 0; row < inputs.rows(); ++row) AddRow(h, row);
    }
  }
  std::vector<double> out;
  std::vector<std::vector<double>> sums;                    // kEvicted as the kernel has it
  double magnitude = 0;                                     // of a score: what AttentionTolerance asks for
  double margin = std::numeric_limits<double>::infinity();  // between what is kept and evicted, of the kept sum
  size_t evictions = 0;

 private:
  void AddRow(size_t h, size_t row) {
    const size_t position = inputs_.c.first + row;
    const bool sparse = row >= inputs_.c.dense;
    if (sparse) Evict(h, position);
    std::vector<size_t> read;
    for (size_t j = 0; j <= position; ++j) {
      if (!sparse || sums[h][j] >= 0) read.push_back(j);
    }
    const size_t dim = shape_.head_dim, group = shape_.heads / shape_.kv_heads, all = inputs_.c.stored.positions;
    for (size_t head = h * group; head < (h + 1) * group; ++head) {
      std::vector<double> weight;
      for (const size_t j : read) {
        double score = 0, size = 0;
        for (size_t i = 0; i < dim; ++i) {
          const double one = static_cast<double>(inputs_.q[row * inputs_.cols + head * dim + i]) *
                             static_cast<double>(inputs_.context.plain().k[(h * all + j) * dim + i]);
          score += one;
          size += std::fabs(one);
        }
        magnitude = std::max(magnitude, size * static_cast<double>(shape_.scale));
        weight.push_back(std::exp(score * static_cast<double>(shape_.scale)));
      }
      const double sum = std::accumulate(weight.begin(), weight.end(), 0.0);
      for (size_t n = 0; n < read.size(); ++n) {
        if (sums[h][read[n]] >= 0) sums[h][read[n]] += weight[n] / sum;
      }
      for (size_t i = 0; sparse && i < dim; ++i) {
        double y = 0;
        for (size_t n = 0; n < read.size(); ++n)
          y += weight[n] / sum * static_cast<double>(inputs_.context.plain().v[(h * all + read[n]) * dim + i]);
        out[row * inputs_.cols + head * dim + i] = y;
      }
    }
  }

  void Evict(size_t h, size_t position) {
    const SparseForm& form = inputs_.c.stored.form;
    const size_t local = std::min(form.local, position);
    std::vector<size_t> others;
    for (size_t j = 0; j < position - local; ++j) {
      if (sums[h][j] >= 0) others.push_back(j);
    }
    const size_t keep = form.k - local;
    std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) { return sums[h][a] > sums[h][b]; });
    if (others.size() > keep && keep != 0)
      margin = std::min(margin, (sums[h][others[keep - 1]] - sums[h][others[keep]]) / sums[h][others[keep - 1]]);
    for (size_t i = keep; i < others.size(); ++i, ++evictions) sums[h][others[i]] = double{kEvicted};
  }

  const HeavyInputs& inputs_;
  const AttentionShape& shape_;
};

std::vector<HeavyCase> Cases() {
  std::vector<HeavyCase> cases;
  uint64_t seed = 30;
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kQ8_0}) {
    for (const size_t group : {1, 3}) {
      for (const auto& [k, local, first, dense, positions] : {std::array<size_t, 5>{20, 5, 0, 60, 150},
                                                              {20, 20, 0, 10, 70},
                                                              {40, 1, 0, 0, 60},
                                                              {40, 10, 30, 5, 90},
                                                              {24, 7, 140, 0, 152}}) {
        HeavyCase c{.stored = {.group = group, .head_dim = 32, .kv_dtype = dtype, .positions = positions},
                    .first = first,
                    .dense = dense};
        c.stored.form = {.kind = SparseKind::kH2o, .k = k, .local = local};
        c.stored.cuts = {17, 64};
        c.stored.transposed = 16;
        c.stored.seed = seed += 100;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

TEST(HeavyHitters, EveryLevel_IsNearPlainLoops) {
  size_t evictions = 0;
  for (const HeavyCase& c : Cases()) {
    SCOPED_TRACE(c.Name());
    const HeavyInputs inputs(c);
    const PlainHeavy expected(inputs);
    // What errors of f32 may reorder would need other seeds.
    ASSERT_GT(expected.margin, 1e-5);
    evictions += expected.evictions;
    const double tolerance = AttentionTolerance(c.stored.head_dim, c.stored.positions, expected.magnitude),
                 added = 0x1p-24 * static_cast<double>(inputs.rows() + c.stored.group);
    const std::vector<float> out(expected.out.begin(), expected.out.end());
    for (const Isa isa : LevelsHere()) {
      SCOPED_TRACE(IsaName(isa));
      TestContext context(isa);
      const HeavyResult result = RunHeavy(*context, inputs, inputs.rows());
      for (size_t h = 0; h < c.stored.kv_heads; ++h) {
        const std::vector<float> sums(expected.sums[h].begin(), expected.sums[h].end());
        EXPECT_TRUE(Within(
            sums, result.sums[h],
            [&](size_t j) { return sums[j] == kEvicted ? 0 : (tolerance + added) * static_cast<double>(sums[j]); }))
            << "sums of KV head " << h;
      }
      const size_t dense = c.dense * inputs.cols;
      EXPECT_TRUE(SameBits(std::span(out).first(dense), std::span(result.out).first(dense))) << "rows nobody asked for";
      EXPECT_TRUE(Within(std::span(out).subspan(dense), std::span(result.out).subspan(dense),
                         [&](size_t) { return 3 * (tolerance + 0x1p-22); }));
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(evictions, 2000U);
}

TEST(HeavyHitters, ChunksThreadsAndLayout_DoNotChangeBits) {
  for (const HeavyCase& c : Cases()) {
    SCOPED_TRACE(c.Name());
    HeavyInputs inputs(c);
    for (const Isa isa : LevelsHere()) {
      TestContext one(isa), three(isa, 3);
      inputs.context.Relayout(0, false, c.stored.cuts, c.stored.transposed);
      const HeavyResult first = RunHeavy(*one, inputs, inputs.rows());
      const auto same = [&](TestContext& context, size_t chunk, const char* what) {
        const HeavyResult other = RunHeavy(*context, inputs, chunk);
        EXPECT_TRUE(SameBits(first.out, other.out)) << what << ", chunks of " << chunk << ", " << IsaName(isa);
        for (size_t h = 0; h < c.stored.kv_heads; ++h)
          EXPECT_TRUE(SameBits(first.sums[h], other.sums[h])) << what << ", chunks of " << chunk << ", KV head " << h;
      };
      same(three, inputs.rows(), "three threads");
      same(one, 1, "one thread");
      same(three, 7, "three threads");
      inputs.context.Relayout(0, false, {}, 0);
      same(three, 7, "one span of rows");
      inputs.context.Relayout(0, false, {3, 50}, 64);
      same(one, 7, "tiles");
      if (HasFailure()) return;
    }
  }
}

// Queries of zeros weigh all that they read alike.
TEST(HeavyHitters, SumsByHand_EvictTheLowestAndOfEqualOnesTheLater) {
  for (const size_t group : {1, 3}) {
    HeavyCase c{.stored = {.group = group, .head_dim = 32, .positions = 9}, .first = 7};
    c.stored.form = {.kind = SparseKind::kH2o, .k = 4, .local = 2};
    HeavyInputs inputs(c);
    std::fill(inputs.q.begin(), inputs.q.end(), 0.0F);
    inputs.sums = {{1, 2, kEvicted, 2, 2, 0, 0.5F, 0, 0}, {0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0, 0, 0}};
    const float fifth = static_cast<float>(group) / 5, gone = kEvicted;
    // Row 7 keeps 5 and 6, and two of the others; row 8 keeps 6 and 7: its own sum is what it gave itself.
    const std::vector<std::vector<float>> expected = {
        {gone, 2 + 2 * fifth, gone, 2 + 2 * fifth, gone, gone, 0.5F + 2 * fifth, 2 * fifth, fifth},
        {0.5F + 2 * fifth, 0.5F + 2 * fifth, gone, gone, gone, gone, 2 * fifth, 2 * fifth, fifth}};
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const HeavyResult result = RunHeavy(*context, inputs, 2);
      for (size_t h = 0; h < 2; ++h)
        EXPECT_TRUE(Within(expected[h], result.sums[h], [](size_t) { return 1e-6; })) << h << " " << IsaName(isa);
    }
  }
}

// Shared scratch has room for one KV head at a time.
TEST(HeavyHitters, MoreThanSharedScratchHolds_HaveTheBitsOfEachAlone) {
  HeavyCase c{.stored = {.group = 40, .head_dim = 64, .kv_dtype = DType::kF32, .positions = 6004}, .first = 6000};
  c.stored.form = {.kind = SparseKind::kH2o, .k = 5000, .local = 100};
  const HeavyInputs inputs(c);
  AttentionShape one_head = inputs.context.shape();
  one_head.heads = 40;
  one_head.kv_heads = 1;
  TestContext one(DetectIsa()), three(DetectIsa(), 3);
  const size_t bytes = HeavyHitterSharedBytes(inputs.context.shape(), 6004), room = (*three).shared_scratch().size();
  ASSERT_GE(room, bytes);
  ASSERT_LT(room, 2 * bytes) << "both would fit";
  const HeavyResult together = RunHeavy(*three, inputs, 4);
  for (size_t h = 0; h < 2; ++h) {
    std::vector<KvSpan> spans(inputs.context.spans().begin(), inputs.context.spans().end());
    const size_t stride = RowBytes(DType::kF32, spans[0].head_stride);
    spans[0].k += h * stride;
    spans[0].v += h * stride;
    std::vector<float> q, out(4 * 40 * 64), sums = inputs.sums[h], expected;
    for (size_t row = 0; row < 4; ++row) {
      const auto at = static_cast<std::ptrdiff_t>(row * inputs.cols + h * 40 * 64);
      q.insert(q.end(), inputs.q.begin() + at, inputs.q.begin() + at + 40 * 64);
      expected.insert(expected.end(), together.out.begin() + at, together.out.begin() + at + 40 * 64);
    }
    const std::span<float> own(sums);
    AttendHeavyHitters(*one, one_head,
                       {.form = &c.stored.form,
                        .context = spans,
                        .first_position = 6000,
                        .q = ConstMatrix<float>(q.data(), 4, 40 * 64),
                        .out = Matrix<float>(out.data(), 4, 40 * 64),
                        .sums = {&own, 1}});
    EXPECT_TRUE(SameBits(out, expected)) << h;
    EXPECT_TRUE(SameBits(sums, together.sums[h])) << h;
    EXPECT_NE(sums, inputs.sums[h]);
  }
}

}  // namespace
}  // namespace tidemill::heavy_hitters_test
