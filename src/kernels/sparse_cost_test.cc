// SparseCost against the bytes that the kernel asks for: its file is compiled once more, with a count beside each read.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/sparse_attention.h"
#include "kernels/testing/sparse_context.h"

namespace tidemill {
namespace {
size_t touched = 0;
}  // namespace
}  // namespace tidemill

#define TIDEMILL_TOUCHED(bytes) (touched += (bytes))
#define AttendPositions CountedAttendPositions
#define CopyKey CountedCopyKey
#define RowContext CountedRowContext
#define SparseScratch CountedSparseScratch
#define SparseUnit CountedSparseUnit
#include "kernels/cpu/sparse_unit.cc"  // NOLINT
#undef SparseUnit
#undef SparseScratch
#undef RowContext
#undef CopyKey
#undef AttendPositions
#undef TIDEMILL_TOUCHED

namespace tidemill::sparse_cost_test {
namespace {

using testing::SparseCase;
using testing::SparseContext;
using testing::TestContext;

size_t TouchedBy(TestContext& context, const SparseContext& inputs) {
  const AttentionShape& shape = inputs.shape();
  std::vector<float> out(shape.heads * shape.head_dim);
  const SparseTask task = inputs.Task(out.data());
  const SparseTools tools(*context);
  touched = 0;
  for (size_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
    CountedSparseUnit unit(shape, tools, task, kv_head, (*context).shared_scratch().data());
    CountedSparseScratch scratch(shape, (*context).scratch(0));
    unit.Prepare();
    unit.Score(0, unit.chunks(), scratch);
    unit.Finish(scratch);
  }
  return touched;
}

TEST(SparseCost, Bytes_AreThoseThatAreRead) {
  TestContext context(DetectIsa());
  for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
    for (const size_t group : {1, 4}) {
      for (const size_t positions : {100, 1000, 2050}) {
        for (const size_t r : {8, 16, 128}) {
          for (const bool columns : {true, false}) {
            for (const float floor : {0.0F, 1.0F}) {
              SparseCase c{.group = group, .head_dim = 128, .kv_dtype = dtype, .positions = positions};
              c.form = {.kind = r == 128 ? SparseKind::kTopk : SparseKind::kSparq, .r = r, .k = 128, .local = 32};
              c.form.floor = floor;
              c.columns = columns && dtype != DType::kQ8_0;
              c.filled = (positions - 1) / kSumRows * kSumRows;
              const SparseContext inputs(c);
              const AttentionShape& shape = inputs.shape();
              const SparseReads reads = SparseReadsOf(shape, c.form, positions, c.filled, c.columns);
              const double rows = 8.0 * static_cast<double>(shape.heads * shape.head_dim);
              EXPECT_NEAR(static_cast<double>(TouchedBy(context, inputs)) / (2 * reads.asked + rows), 1, 0.05)
                  << c.Name();
              EXPECT_EQ(SparseCost(shape, c.form, positions, c.filled, c.columns).bytes, 2 * reads.memory + rows);
              EXPECT_GE(reads.memory, reads.asked);
            }
          }
        }
      }
    }
  }
}

TEST(SparseCost, KeysThatStandInRows_BringTheirCacheLines) {
  const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 128, .kv_dtype = DType::kF16, .bias = {}};
  SparseForm form{.kind = SparseKind::kSparq, .reallocate = false, .r = 2, .k = 10, .local = 5};
  // Of 100 positions 64 stand in columns; 10 keys and values of 256 bytes are read whole.
  const auto memory = [&](bool columns) { return SparseReadsOf(shape, form, 100, 64, columns).memory - 20 * 256; };
  EXPECT_EQ(memory(true), 64 * 2 * 2 + 36 * 2 * 64);
  EXPECT_EQ(memory(false), 100 * 2 * 64);
  EXPECT_EQ(SparseReadsOf(shape, form, 100, 64, true).gathered, 36 * 2 * 64);
  EXPECT_EQ(SparseReadsOf(shape, form, 100, 64, false).gathered, 100 * 2 * 64);
  form.r = 5;  // a row has four lines
  EXPECT_EQ(memory(true), 64 * 5 * 2 + 36 * 256);
  EXPECT_EQ(memory(false), 100 * 256);
  EXPECT_EQ(SparseReadsOf(shape, form, 100, 64, false).asked, 100 * 5 * 2 + 20 * 256);
  for (const auto& [kind, r] : {std::pair{SparseKind::kSparq, 128U}, {SparseKind::kTopk, 5U}}) {
    form.kind = kind;
    form.r = r;
    EXPECT_EQ(SparseReadsOf(shape, form, 100, 0, false).gathered, 0) << "whole keys are read as attention does";
  }
}

TEST(SparseCost, OfDenseRows_IsThatOfAttention) {
  const AttentionShape shape{.heads = 8, .kv_heads = 2, .head_dim = 64, .kv_dtype = DType::kF16, .bias = {}};
  const SparseForm form{.kind = SparseKind::kSparq, .r = 8, .k = 128, .local = 32};
  const Cost dense = AttentionCost(shape, 1, 128, 128), sparse = SparseCost(shape, form, 128, 64, true);
  EXPECT_EQ(dense.bytes, sparse.bytes);
  EXPECT_EQ(dense.flops, sparse.flops);
  EXPECT_LT(SparseCost(shape, form, 4096, 4032, true).flops, AttentionCost(shape, 1, 4096, 4096).flops / 2);
}

// H2O reads its own row beside the k that it kept.
TEST(SparseCost, OfFormsThatEvict_IsThatOfWhatTheyKeep) {
  const AttentionShape shape{.heads = 8, .kv_heads = 2, .head_dim = 64, .kv_dtype = DType::kF16, .bias = {}};
  for (const auto& [kind, n, attended] : {std::tuple<SparseKind, size_t, size_t>{SparseKind::kWindow, 27, 27},
                                          {SparseKind::kWindow, 28, 28},
                                          {SparseKind::kWindow, 29, 28},
                                          {SparseKind::kWindow, 500, 28},
                                          {SparseKind::kH2o, 28, 28},
                                          {SparseKind::kH2o, 29, 29},
                                          {SparseKind::kH2o, 30, 29},
                                          {SparseKind::kH2o, 500, 29},
                                          {SparseKind::kDense, 500, 500}}) {
    const SparseForm form{.kind = kind, .k = kind == SparseKind::kDense ? 0U : 28U};
    EXPECT_EQ(AttendedPositions(form, n), attended);
    const SparseReads reads = SparseReadsOf(shape, form, n, 0, false);
    EXPECT_EQ(reads.asked, static_cast<double>(attended) * 2 * 128) << n;
    EXPECT_EQ(reads.memory, reads.asked) << n;
    const Cost cost = SparseCost(shape, form, n, 0, false), dense = AttentionCost(shape, 1, attended, attended);
    EXPECT_EQ(cost.bytes, dense.bytes) << n;
    EXPECT_EQ(cost.flops, dense.flops) << n;
  }
}

}  // namespace
}  // namespace tidemill::sparse_cost_test
