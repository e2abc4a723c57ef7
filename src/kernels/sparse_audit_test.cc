// Sparse attention against its reference and against dense attention; several rows in one call; attention over given positions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/sparse_attention.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/sparse_context.h"
#include "kernels/testing/sparse_formula.h"

namespace tidemill::sparse_audit_test {
namespace {

using testing::LevelsHere;
using testing::SameBits;
using testing::SparseCase;
using testing::SparseContext;
using testing::SparseRunResult;
using testing::TestContext;

// One case of each kind of choice.
std::vector<SparseCase> Cases() {
  std::vector<SparseCase> cases;
  for (const SparseRule rule : {SparseRule::kPaper, SparseRule::kEval}) {
    for (const size_t group : {1, 4, 7}) {
      for (const size_t r : {6, 64}) {
        SparseCase c{.group = group, .positions = 400, .step_rows = 4, .row = 3};
        c.form = {.kind = r == 64 ? SparseKind::kTopk : SparseKind::kSparq, .rule = rule, .r = r, .k = 40, .local = 10};
        c.parents = {-1, 0, 0, 2};
        c.filled = 384;
        c.soft_cap = group == 4 ? 4.0F : 0.0F;
        c.window = group == 7 ? 300 : 0;
        c.seed = group;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

TEST(SparseAttention, EveryLevel_IsNearTheReference) {
  for (SparseCase& c : Cases()) {
    for (const float floor : {0.0F, 0.4F}) {
      c.form.floor = floor;
      const SparseContext inputs(c);
      SparseRunResult expected(inputs.shape(), c.form.k);
      SparseTask task = inputs.Task(expected.out.data());
      task.result = expected.wanted();
      reference::SparseAttention(inputs.shape(), {&task, 1});
      for (const Isa isa : LevelsHere()) {
        SCOPED_TRACE(c.Name() + " " + std::string(IsaName(isa)));
        TestContext context(isa);
        SparseRunResult result(inputs.shape(), c.form.k);
        task = inputs.Task(result.out.data());
        task.result = result.wanted();
        SparseAttention(*context, inputs.shape(), {&task, 1});
        EXPECT_EQ(expected.kept, result.kept);
        EXPECT_EQ(expected.was_dense, result.was_dense);
        // q below 1, keys below 4, values below 3.
        const double bound = AttentionTolerance(64, 400, 4 * 64 / 8.0, static_cast<double>(c.soft_cap));
        EXPECT_TRUE(testing::Within(expected.alpha, result.alpha, [&](size_t) { return bound; }));
        EXPECT_TRUE(testing::Within(expected.out, result.out, [&](size_t) { return 3 * 3 * bound; }));
      }
    }
  }
}

TEST(SparseAttention, Audit_SaysWhatWasGivenUp) {
  for (const SparseCase& c : Cases()) {
    const SparseContext inputs(c);
    std::vector<float> unused(inputs.shape().heads * c.head_dim);
    SparseTask task = inputs.Task(unused.data());
    SparseAudit expected, audit;
    task.result.audit = &expected;
    reference::SparseAttention(inputs.shape(), {&task, 1});
    for (const Isa isa : LevelsHere()) {
      SCOPED_TRACE(c.Name() + " " + std::string(IsaName(isa)));
      TestContext context(isa, 3);
      SparseRunResult plain(inputs.shape(), c.form.k), audited = plain;
      task = inputs.Task(plain.out.data());
      task.result = plain.wanted();
      SparseAttention(*context, inputs.shape(), {&task, 1});
      task = inputs.Task(audited.out.data());
      task.result = audited.wanted();
      task.result.audit = &audit;
      SparseAttention(*context, inputs.shape(), {&task, 1});
      EXPECT_TRUE(SameBits(plain.out, audited.out));
      EXPECT_TRUE(SameBits(plain.alpha, audited.alpha));
      EXPECT_EQ(plain.kept, audited.kept);
      EXPECT_NEAR(audit.kept_mass, expected.kept_mass, 1e-5);
      EXPECT_NEAR(audit.agreement, expected.agreement, 1e-6);
      EXPECT_NEAR(audit.error, expected.error, 1e-4 * static_cast<double>(expected.error) + 1e-6);
      EXPECT_GT(audit.error, 0);
      if (c.form.kind == SparseKind::kTopk) {
        EXPECT_EQ(audit.agreement, 1);
      } else {
        EXPECT_LT(audit.agreement, 1);
      }
      // The error once more, from dense attention's own output.
      std::vector<float> q(4 * plain.out.size()), dense(q.size());
      std::copy_n(task.q, plain.out.size(), q.end() - static_cast<std::ptrdiff_t>(plain.out.size()));
      const AttentionTask all{.context = task.context,
                              .first_position = task.first_position,
                              .q = ConstMatrix<float>(q.data(), 4, plain.out.size()),
                              .out = Matrix<float>(dense.data(), 4, plain.out.size()),
                              .parents = c.parents};
      Attention(*context, inputs.shape(), {&all, 1});
      double difference = 0, size = 0;
      for (size_t i = 0; i < plain.out.size(); ++i) {
        const auto one = static_cast<double>(dense[3 * plain.out.size() + i]);
        difference += std::pow(one - static_cast<double>(plain.out[i]), 2);
        size += one * one;
      }
      EXPECT_NEAR(audit.error, std::sqrt(difference / size), 1e-6);
    }
  }
}

TEST(SparseAttention, AuditOfDenseRows_FindsNoDifference) {
  SparseCase c{.group = 2, .positions = 200};
  for (const auto& [k, floor] : {std::pair<size_t, float>{200, 0}, {20, 1}, {20, 0.9999F}}) {
    c.form = {.kind = SparseKind::kSparq, .r = 4, .k = k, .local = 3, .floor = floor};
    const SparseContext inputs(c);
    TestContext context(DetectIsa());
    std::vector<float> out(inputs.shape().heads * c.head_dim);
    SparseTask task = inputs.Task(out.data());
    SparseAudit audit{.kept_mass = 9, .error = 9, .agreement = 9};
    task.result.audit = &audit;
    SparseAttention(*context, inputs.shape(), {&task, 1});
    EXPECT_EQ(audit.error, 0);
    EXPECT_EQ(audit.kept_mass == 1, floor != 0.9999F);
    EXPECT_LE(audit.agreement, 1);
  }
}

TEST(SelectedAttention, PositionsThatWereKept_GiveTheSameBits) {
  for (SparseCase& c : Cases()) {
    c.form.reallocate = false;
    c.form.k = 150;
    SparseContext inputs(c);
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa, 3);
      for (const size_t tiles : {0, 300}) {
        inputs.Relayout(384, true, {30, 170}, tiles);
        SparseRunResult result(inputs.shape(), c.form.k);
        SparseTask task = inputs.Task(result.out.data());
        task.result = result.wanted();
        SparseAttention(*context, inputs.shape(), {&task, 1});
        std::vector<float> out(result.out.size());
        const SelectedTask selected{.context = task.context,
                                    .first_position = task.first_position,
                                    .parents = task.parents,
                                    .row = task.row,
                                    .positions = result.kept,
                                    .count = c.form.k,
                                    .q = task.q,
                                    .out = out.data()};
        SelectedAttention(*context, inputs.shape(), {&selected, 1});
        EXPECT_TRUE(SameBits(result.out, out)) << c.Name();
      }
    }
  }
}

TEST(SelectedAttention, AllPositions_AreAttention) {
  SparseCase c{.group = 3, .positions = 333};
  const SparseContext inputs(c);
  TestContext context(DetectIsa(), 3);
  std::vector<uint32_t> positions(2 * 333);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<uint32_t>(i % 333);
  const SparseTask task = inputs.Task(nullptr);
  std::vector<float> out(inputs.shape().heads * 64), dense(out.size());
  const SelectedTask selected{.context = task.context,
                              .first_position = 332,
                              .positions = positions,
                              .count = 333,
                              .q = task.q,
                              .out = out.data()};
  SelectedAttention(*context, inputs.shape(), {&selected, 1});
  const AttentionTask all{.context = task.context,
                          .first_position = 332,
                          .q = ConstMatrix<float>(task.q, 1, out.size()),
                          .out = Matrix<float>(dense.data(), 1, out.size())};
  Attention(*context, inputs.shape(), {&all, 1});
  EXPECT_TRUE(SameBits(dense, out));
}

// More rows than shared scratch has room for at a time, of different lengths and forms, one of them audited.
TEST(SparseAttention, SeveralRows_HaveTheBitsOfEachAlone) {
  std::vector<std::unique_ptr<SparseContext>> inputs;
  std::vector<SparseCase> cases;
  for (const size_t positions : {6000, 900, 5000, 30}) {
    SparseCase c{.group = 40, .positions = positions};
    c.filled = (positions - 1) / kSumRows * kSumRows;
    c.form = {.kind = SparseKind::kSparq, .r = 5, .k = 33, .local = 7};
    c.form.rule = positions == 5000 ? SparseRule::kEval : SparseRule::kPaper;
    c.seed = positions;
    cases.push_back(c);
    inputs.push_back(std::make_unique<SparseContext>(c));
  }
  const AttentionShape& shape = inputs.front()->shape();
  std::vector<SparseRunResult> alone(4, SparseRunResult(shape, 33)), together = alone;
  TestContext one(DetectIsa()), three(DetectIsa(), 3);
  ASSERT_GT(8 * SparseSharedBytes(shape, 6000), (*three).shared_scratch().size()) << "all rows would fit";
  std::vector<SparseTask> tasks;
  SparseAudit audit;
  for (size_t i = 0; i < 4; ++i) {
    SparseTask task = inputs[i]->Task(alone[i].out.data());
    task.result = alone[i].wanted();
    SparseAttention(*one, shape, {&task, 1});
    task = inputs[i]->Task(together[i].out.data());
    task.result = together[i].wanted();
    if (i == 1) task.result.audit = &audit;
    tasks.push_back(task);
  }
  for (const size_t rows : {4, 3}) {
    for (SparseRunResult& result : together) std::fill(result.out.begin(), result.out.end(), 0.0F);
    SparseAttention(*three, shape, std::span(tasks).first(rows));
    for (size_t i = 0; i < rows; ++i) {
      EXPECT_TRUE(SameBits(alone[i].out, together[i].out)) << i;
      EXPECT_TRUE(SameBits(alone[i].alpha, together[i].alpha)) << i;
      EXPECT_EQ(alone[i].kept, together[i].kept) << i;
    }
  }
  EXPECT_GT(audit.error, 0);
}

}  // namespace
}  // namespace tidemill::sparse_audit_test
