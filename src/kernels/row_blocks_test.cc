#include "kernels/row_blocks.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/elementwise.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::row_blocks_test {
namespace {

TEST(RowBlocks, EveryRow_PassesOnceThroughAllOperations) {
  for (const size_t threads : {1, 3}) {
    for (const size_t rows : {1, 7, 100}) {
      for (const size_t cols : {1, 300, 20000}) {
        testing::TestContext context(Isa::kBaseline, threads);
        std::vector<float> values(rows * cols, 1.0F), ones(rows * cols, 1.0F);
        const Matrix<float> x(values.data(), rows, cols), one(ones.data(), rows, cols);
        ForRowBlocks(*context, rows, cols, [&](ExecutionContext& alone, size_t first, size_t count) {
          EXPECT_EQ(alone.threads().num_threads(), 1U);
          EXPECT_EQ(alone.isa(), Isa::kBaseline);
          EXPECT_EQ(&alone.alone(), &alone);  // blocks within blocks
          EXPECT_LE(count * cols, std::max(kRowBlockElements, cols));
          AddRows(alone, one.Rows(first, count), x.Rows(first, count));
          ScaleRows(alone, 3, x.Rows(first, count));
        });
        EXPECT_EQ(values, std::vector<float>(rows * cols, 6.0F)) << threads << " " << rows << " " << cols;
      }
    }
  }
}

TEST(RowBlocks, NoRows_DoNothing) {
  testing::TestContext context(Isa::kBaseline, 2);
  ForRowBlocks(*context, 0, 8, [](ExecutionContext&, size_t, size_t) { FAIL(); });
}

}  // namespace
}  // namespace tidemill::row_blocks_test
