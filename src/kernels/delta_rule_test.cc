// The delta rule in every class against the plain recurrence in double, and its bits: whatever of a sequence is state, entries or rows.
#include "kernels/delta_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/delta_inputs.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"
#include "tensor/half.h"

namespace tidemill::delta_rule_test {
namespace {

using testing::Random;
using testing::SameBits;
using testing::TestContext;

// What a sequence's rows are made of.
struct Inputs {
  size_t rows;
  std::vector<float> q, k, v, beta, g;

  Inputs(const DeltaShape& s, size_t num_rows, uint64_t seed)
      : rows(num_rows),
        q(rows * s.key_heads * s.key_dim),
        k(q.size()),
        v(rows * s.value_heads * s.value_dim),
        beta(rows * s.value_heads),
        g(beta.size()) {
    Random random(seed);
    const auto unit = [&](std::vector<float>& x, float scale) {
      for (size_t at = 0; at < x.size(); at += s.key_dim) {
        double squares = 0;
        for (size_t i = 0; i < s.key_dim; ++i) {
          squares += static_cast<double>(x[at + i]) * static_cast<double>(x[at + i]);
        }
        for (size_t i = 0; i < s.key_dim; ++i) x[at + i] *= scale / static_cast<float>(std::sqrt(squares + 1e-6));
      }
    };
    for (float& x : k) x = random.Uniform(1);
    // A query has something of its own key, as in a trained model: where a product of two cancels, an error means nothing beside it.
    for (size_t i = 0; i < q.size(); ++i) q[i] = k[i] / 2 + random.Uniform(1);
    unit(q, 1 / std::sqrt(static_cast<float>(s.key_dim)));
    unit(k, 1);
    for (float& x : v) x = random.Uniform(2);
    for (float& b : beta) {
      const size_t kind = random.Below(8);
      b = kind == 0 ? 0.0F : kind == 1 ? 1.0F : std::fabs(random.Uniform(1));
    }
    for (float& x : g) {
      const size_t kind = random.Below(10);
      const float strong = random.Below(2) == 0 ? -1e4F : -320.0F;
      x = kind == 0 ? 0.0F : kind == 1 ? std::max(strong, kMinDecay) : -std::fabs(random.Uniform(0.3F));
    }
  }

  // Rows by number, as they follow on some path.
  Inputs Of(const DeltaShape& s, const std::vector<size_t>& which) const {
    Inputs chosen(s, 0, 0);
    chosen.rows = which.size();
    const auto take = [&](const std::vector<float>& from, std::vector<float>& to) {
      const size_t width = from.size() / rows;
      for (const size_t row : which) to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
    };
    take(q, chosen.q);
    take(k, chosen.k);
    take(v, chosen.v);
    take(beta, chosen.beta);
    take(g, chosen.g);
    return chosen;
  }
  void Append(const Inputs& more) {
    rows += more.rows;
    q.insert(q.end(), more.q.begin(), more.q.end());
    k.insert(k.end(), more.k.begin(), more.k.end());
    v.insert(v.end(), more.v.begin(), more.v.end());
    beta.insert(beta.end(), more.beta.begin(), more.beta.end());
    g.insert(g.end(), more.g.begin(), more.g.end());
  }
};

// A sequence as a layer state keeps one: a state, a ring of entries.
class Sequence {
 public:
  explicit Sequence(const DeltaShape& shape, size_t capacity = 200)
      : shape_(shape), capacity_(capacity), state_(shape.state_floats()), folded_(shape.state_floats()) {
    const size_t bytes = shape.form.dtype == DType::kF32 ? 4 : 2;
    u_.resize(shape.value_heads * capacity * shape.padded_value_dim() * bytes);
    k_.resize(shape.key_heads * capacity * shape.key_dim * bytes);
    g_.resize(shape.value_heads * capacity);
    const auto nan = [](std::vector<std::byte>& x) { std::fill(x.begin(), x.end(), std::byte{0xFF}); };
    nan(u_);
    nan(k_);
    std::fill(g_.begin(), g_.end(), std::numeric_limits<float>::quiet_NaN());
    std::fill(state_.begin(), state_.end(), std::numeric_limits<float>::quiet_NaN());
    std::fill(folded_.begin(), folded_.end(), std::numeric_limits<float>::quiet_NaN());
  }

  size_t length() const { return base_ + num_entries_; }

  // A task of rows [first, first + count) of `inputs`, whose results go to y.
  DeltaTask TaskOf(const Inputs& x, size_t first, size_t count, std::vector<float>* y, bool whole) {
    const DeltaShape& s = shape_;
    const auto rows = [&](const std::vector<float>& data, size_t width) {
      return ConstMatrix<float>(data.data() + first * width, count, width);
    };
    y->assign(count * s.value_heads * s.value_dim, -7.0F);
    DeltaTask task{.state = base_ == 0 ? nullptr : state_.data(),
                   .base = base_,
                   .fold_to = s.form.Boundary(whole ? length() + count - 1 : length()),
                   .entries = {u_.data(), k_.data(), g_.data(), capacity_, first_},
                   .num_entries = num_entries_,
                   .place = num_entries_,
                   .q = rows(x.q, s.key_heads * s.key_dim),
                   .k = rows(x.k, s.key_heads * s.key_dim),
                   .v = rows(x.v, s.value_heads * s.value_dim),
                   .beta = rows(x.beta, s.value_heads),
                   .g = rows(x.g, s.value_heads),
                   .y = {y->data(), count, s.value_heads * s.value_dim}};
    task.folded = task.fold_to > length() ? folded_.data() : state_.data();
    return task;
  }
  // After the task: the fold of what was committed stays, and so do all rows of the step.
  void Commit(const DeltaTask& task, size_t count) {
    const size_t end = length() + count;
    if (task.fold_to > length()) {
      std::swap(state_, folded_);
      std::fill(folded_.begin(), folded_.end(), std::numeric_limits<float>::quiet_NaN());
      first_ += num_entries_;
    } else {
      first_ += task.fold_to - base_;
    }
    first_ %= capacity_;
    base_ = task.fold_to;
    num_entries_ = end - base_;
  }
  std::vector<float> Step(ExecutionContext& ctx, const Inputs& x, size_t first, size_t count, bool whole) {
    std::vector<float> y;
    const DeltaTask task = TaskOf(x, first, count, &y, whole);
    DeltaRule(ctx, shape_, {&task, 1});
    Commit(task, count);
    return y;
  }

  const DeltaShape& shape() const { return shape_; }
  const std::vector<float>& state() const { return state_; }
  size_t base() const { return base_; }

 private:
  DeltaShape shape_;
  size_t capacity_;
  std::vector<float> state_, folded_;
  std::vector<std::byte> u_, k_;
  std::vector<float> g_;
  size_t base_ = 0, first_ = 0, num_entries_ = 0;
};

std::string NameOf(const DeltaShape& s) {
  return "heads " + std::to_string(s.key_heads) + "/" + std::to_string(s.value_heads) + " dims " +
         std::to_string(s.key_dim) + "/" + std::to_string(s.value_dim) + (s.tiled ? " tiled" : "") + " start " +
         std::to_string(s.form.start) + " period " + std::to_string(s.form.period) +
         (s.form.dtype == DType::kF32 ? " f32" : " bf16");
}

// Every period with every start, and each of the other choices with each of those at least once.
std::vector<DeltaShape> Shapes() {
  std::vector<DeltaShape> shapes;
  constexpr std::pair<size_t, size_t> kDims[] = {{8, 8}, {16, 20}, {20, 16}, {64, 64}, {8, 128}, {128, 128}, {64, 20}};
  size_t i = 0;
  for (const size_t period : {1, 2, 3, 8, 16, 32}) {
    for (const size_t start : {period, 3 * period, size_t{64}}) {
      for (size_t ratio = 1; ratio <= 3; ++ratio, ++i) {
        const auto [key_dim, value_dim] = kDims[i % std::size(kDims)];
        shapes.push_back({.key_heads = 1 + i % 2,
                          .value_heads = (1 + i % 2) * ratio,
                          .key_dim = key_dim,
                          .value_dim = value_dim,
                          .tiled = i % 4 >= 2,
                          .form = {.start = start, .period = period}});
      }
    }
  }
  return shapes;
}

size_t RowsOf(const DeltaShape& s) { return std::min<size_t>(s.form.start + 5 * s.form.period + 3, 160); }

// Within `tolerance` of the largest of the head's row, or of all rows. Strong decays leave subnormal numbers, of which f32 has few digits.
void ExpectNear(const DeltaShape& s, const std::vector<double>& expected, const std::vector<float>& y, double tolerance,
                bool of_all_rows = false) {
  ASSERT_EQ(expected.size(), y.size());
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::fabs(x));
  for (size_t at = 0; at < y.size(); at += s.value_dim) {
    double most = 0, off = 0;
    for (size_t i = 0; i < s.value_dim; ++i) {
      most = std::max(most, std::fabs(expected[at + i]));
      off = std::max(off, std::fabs(expected[at + i] - static_cast<double>(y[at + i])));
    }
    if (of_all_rows) most = largest;
    ASSERT_LE(off, tolerance * most + 0x1p-126)
        << "row " << at / (s.value_heads * s.value_dim) << " head " << at / s.value_dim % s.value_heads;
  }
}

std::vector<double> Recurrence(const DeltaShape& s, const Inputs& x) {
  Sequence sequence(s);
  std::vector<float> unused;
  std::vector<double> state, y;
  reference::DeltaRule(s, sequence.TaskOf(x, 0, x.rows, &unused, false), &state, &y);
  return y;
}

TEST(DeltaRule, EveryClassAndLevel_IsTheRecurrenceInAnyChunks) {
  for (const DeltaShape& s : Shapes()) {
    const Inputs x(s, RowsOf(s), 5);
    const std::vector<double> expected = Recurrence(s, x);
    std::vector<float> of_fma_levels;
    for (const Isa isa : testing::LevelsHere()) {
      SCOPED_TRACE(NameOf(s) + " level " + std::string(IsaName(isa)));
      TestContext context(isa, 2);
      std::vector<float> alone;
      Sequence by_one(s);
      for (size_t t = 0; t < x.rows; ++t) {
        const std::vector<float> y = by_one.Step(*context, x, t, 1, false);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      ASSERT_NO_FATAL_FAILURE(ExpectNear(s, expected, alone, 1e-5));
      for (const size_t chunk : {5, 64, 65}) {
        for (const bool whole : {false, true}) {
          Sequence sequence(s, whole ? 150 : 420);
          std::vector<float> y;
          for (size_t t = 0; t < x.rows; t += chunk) {
            const std::vector<float> rows = sequence.Step(*context, x, t, std::min(chunk, x.rows - t), whole);
            y.insert(y.end(), rows.begin(), rows.end());
          }
          ASSERT_TRUE(SameBits(alone, y)) << "chunk " << chunk << (whole ? " whole" : "");
        }
      }
      if (isa == Isa::kBaseline) continue;
      if (of_fma_levels.empty()) of_fma_levels = alone;
      ASSERT_TRUE(SameBits(of_fma_levels, alone));
    }
  }
}

TEST(DeltaRule, Bfloat16Entries_StayNearTheRecurrence) {
  for (DeltaShape s : Shapes()) {
    s.form.dtype = DType::kBF16;
    const Inputs x(s, RowsOf(s), 6);
    const std::vector<double> expected = Recurrence(s, x);
    SCOPED_TRACE(NameOf(s));
    for (const Isa isa : testing::LevelsHere()) {
      TestContext context(isa, 1);
      Sequence sequence(s), by_chunks(s);
      std::vector<float> y, z;
      for (size_t t = 0; t < x.rows; ++t) {
        const std::vector<float> row = sequence.Step(*context, x, t, 1, false);
        y.insert(y.end(), row.begin(), row.end());
      }
      for (size_t t = 0; t < x.rows; t += 33) {
        const std::vector<float> rows = by_chunks.Step(*context, x, t, std::min<size_t>(33, x.rows - t), true);
        z.insert(z.end(), rows.begin(), rows.end());
      }
      ASSERT_NO_FATAL_FAILURE(ExpectNear(s, expected, y, 0.01, true));
      ASSERT_TRUE(SameBits(y, z));
    }
  }
}

// All forests of up to six nodes whose parents come first, after every fill of a block.
TEST(DeltaRule, EveryTreeOfUpToSixNodes_GivesTheBitsOfItsPaths) {
  TestContext context(testing::LevelsHere().back(), 1);
  for (const size_t period : {1, 2, 3, 8}) {
    const DeltaShape s{
        .key_heads = 1, .value_heads = 2, .key_dim = 8, .value_dim = 12, .form = {.start = period, .period = period}};
    const Inputs x(s, 17, 7), draft(s, 6, 8);
    std::vector<int32_t> parents;
    size_t trees = 0;
    const auto check = [&](size_t before) {
      Sequence sequence(s, 40);
      for (size_t t = 0; t < before; ++t) sequence.Step(*context, x, t, 1, false);
      std::vector<float> y;
      DeltaTask task = sequence.TaskOf(draft, 0, parents.size(), &y, false);
      task.parents = parents;
      DeltaRule(*context, s, {&task, 1});
      for (size_t node = 0; node < parents.size(); ++node) {
        std::vector<size_t> path = {node};
        while (parents[path.front()] >= 0) path.insert(path.begin(), static_cast<size_t>(parents[path.front()]));
        const Inputs chain = draft.Of(s, path);
        Sequence alone(s, 40);
        std::vector<float> last;
        for (size_t t = 0; t < before; ++t) alone.Step(*context, x, t, 1, false);
        for (size_t t = 0; t < path.size(); ++t) last = alone.Step(*context, chain, t, 1, false);
        const size_t width = s.value_heads * s.value_dim;
        ASSERT_TRUE(SameBits(last, std::vector<float>(y.begin() + node * width, y.begin() + (node + 1) * width)))
            << "period " << period << " after " << before << " node " << node << " tree "
            << ::testing::PrintToString(parents);
      }
      ++trees;
    };
    const auto extend = [&](const auto& self) -> void {
      // Each tree after one fill; the small ones after all of them.
      for (size_t fill = 0; fill < (parents.size() <= 3 ? period + 2 : 1); ++fill)
        ASSERT_NO_FATAL_FAILURE(check(parents.size() <= 3 ? fill : trees % (2 * period + 2)));
      if (parents.size() == 6) return;
      for (int32_t parent = -1; parent < static_cast<int32_t>(parents.size()); ++parent) {
        parents.push_back(parent);
        ASSERT_NO_FATAL_FAILURE(self(self));
        parents.pop_back();
      }
    };
    parents = {-1};
    ASSERT_NO_FATAL_FAILURE(extend(extend));
    EXPECT_GT(trees, 800U);
  }
}

// Blocks, heads, entries and trees as large as they may be.
TEST(DeltaRule, LongestBlocksOfTheWidestHeads_GiveTheBitsOfSingleRows) {
  const DeltaShape s{.key_dim = kMaxDeltaDim,
                     .value_dim = kMaxDeltaDim,
                     .form = {.start = kMaxDeltaPeriod, .period = kMaxDeltaPeriod}};
  const Inputs x(s, 2 * kMaxDeltaPeriod + 8, 11);
  TestContext context(testing::LevelsHere().back(), 1);
  Sequence by_one(s, 2 * kMaxDeltaPeriod), by_chunks(s, 2 * kMaxDeltaPeriod);
  std::vector<float> alone, together;
  for (size_t t = 0; t < x.rows; ++t) {
    const std::vector<float> y = by_one.Step(*context, x, t, 1, false);
    alone.insert(alone.end(), y.begin(), y.end());
  }
  constexpr size_t kChunk = kMaxDeltaPeriod - 1;
  for (size_t t = 0; t < x.rows; t += kChunk) {
    const std::vector<float> y = by_chunks.Step(*context, x, t, std::min(kChunk, x.rows - t), true);
    together.insert(together.end(), y.begin(), y.end());
  }
  EXPECT_TRUE(SameBits(alone, together));
}

TEST(DeltaRule, MostEntriesBesideTheLargestTree_GiveTheBitsOfSingleRows) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const DeltaShape s{.key_dim = kMaxDeltaDim, .value_dim = 20, .form = {.dtype = dtype}};
    const Inputs x(s, kMaxDeltaEntries + kMaxDeltaTree, 12);
    TestContext context(testing::LevelsHere().back(), 1);
    Sequence by_one(s), unfolded(s, x.rows);
    std::vector<float> alone;
    for (size_t t = 0; t < x.rows; ++t) alone = by_one.Step(*context, x, t, 1, false);
    std::vector<float> y;
    const auto step = [&](size_t first, size_t count, std::span<const int32_t> parents) {
      DeltaTask task = unfolded.TaskOf(x, first, count, &y, false);
      task.fold_to = 0;
      task.parents = parents;
      DeltaRule(*context, s, {&task, 1});
      unfolded.Commit(task, count);
    };
    for (size_t t = 0; t < kMaxDeltaEntries; t += 64) step(t, 64, {});
    std::vector<int32_t> parents(kMaxDeltaTree);
    for (size_t i = 0; i < parents.size(); ++i) parents[i] = static_cast<int32_t>(i) - 1;
    step(kMaxDeltaEntries, kMaxDeltaTree, parents);
    EXPECT_TRUE(SameBits(alone, std::vector<float>(y.end() - static_cast<std::ptrdiff_t>(s.value_dim), y.end())));
  }
}

TEST(DeltaRule, SequencesOfDifferentFillsInOneCall_AreThoseAlone) {
  const DeltaShape s{
      .key_heads = 2, .value_heads = 4, .key_dim = 16, .value_dim = 20, .form = {.start = 24, .period = 8}};
  const Inputs x(s, 90, 9);
  const std::vector<size_t> fills = {0, 3, 23, 24, 25, 31, 40};
  const std::vector<size_t> counts = {40, 1, 5, 1, 33, 2, 7};
  for (const size_t threads : {1, 3}) {
    TestContext context(testing::LevelsHere().back(), threads);
    std::vector<Sequence> together, alone;
    for (const size_t fill : fills) {
      together.emplace_back(s);
      if (fill != 0) together.back().Step(*context, x, 0, fill, true);
      alone.push_back(together.back());
    }
    std::vector<std::vector<float>> y(fills.size());
    std::vector<DeltaTask> tasks;
    for (size_t i = 0; i < fills.size(); ++i)
      tasks.push_back(together[i].TaskOf(x, fills[i], counts[i], &y[i], i % 2 == 0));
    DeltaRule(*context, s, tasks);
    for (size_t i = 0; i < fills.size(); ++i) {
      together[i].Commit(tasks[i], counts[i]);
      EXPECT_TRUE(SameBits(alone[i].Step(*context, x, fills[i], counts[i], i % 2 == 0), y[i])) << i;
      EXPECT_TRUE(SameBits(alone[i].Step(*context, x, fills[i] + counts[i], 9, true),
                           together[i].Step(*context, x, fills[i] + counts[i], 9, true)))
          << i;
    }
  }
}

TEST(FoldDelta, EachHead_GivesTheStateOfTheStep) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const DeltaShape s{.key_heads = 2,
                       .value_heads = 6,
                       .key_dim = 16,
                       .value_dim = 40,
                       .tiled = true,
                       .form = {.start = 4, .period = 4, .dtype = dtype}};
    TestContext context(testing::LevelsHere().back(), 1);
    std::vector<std::byte> scratch(DeltaScratchBytes() + 64);
    const size_t shift = 64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64;
    const Inputs x(s, 40, 10);
    Sequence by_step(s), by_fold(s);
    for (Sequence* sequence : {&by_step, &by_fold}) sequence->Step(*context, x, 0, 14, false);
    std::vector<float> none;
    const DeltaTask task = by_fold.TaskOf(x, 14, 0, &none, false);
    EXPECT_EQ(task.fold_to, 12U);
    for (size_t head = 0; head < s.value_heads; ++head)
      FoldDelta(testing::LevelsHere().back(), s, task, head, std::span(scratch).subspan(shift));
    by_fold.Commit(task, 0);
    EXPECT_EQ(by_fold.base(), 12U);
    EXPECT_TRUE(SameBits(by_step.Step(*context, x, 14, 5, false), by_fold.Step(*context, x, 14, 5, false)));
    EXPECT_TRUE(SameBits(by_step.state(), by_fold.state()));
  }
}

}  // namespace
}  // namespace tidemill::delta_rule_test
