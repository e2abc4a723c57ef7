#include "runtime/floor_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tidemill::floor_fit_test {
namespace {

TEST(FitFloor, Smallest_IsWhereRowsAboveErrLittleEnough) {
  // Means of the rows of greatest alpha: 0.05, 0.1, 0.2, 0.19.
  const std::vector<AuditedRow> rows = {{0.25, 0.4}, {0.9, 0.05}, {0.1, 0.16}, {0.5, 0.15}};
  EXPECT_EQ(FitFloor(rows, 0.3), 0.0F);
  EXPECT_EQ(FitFloor(rows, 0.195), 0.0F) << "the last row makes up for the third";
  EXPECT_EQ(FitFloor(rows, 0.15), 0.25F) << "its own alpha is not above it";
  EXPECT_EQ(FitFloor(rows, 0.1), 0.25F);
  EXPECT_EQ(FitFloor(rows, 0.06), 0.5F);
  EXPECT_EQ(FitFloor(rows, 0.04), 1.0F);
}

TEST(FitFloor, AtTheEdges) {
  EXPECT_EQ(FitFloor({}, 1), 1.0F);
  EXPECT_EQ(FitFloor({{0, 0.1}}, 0.1), 0.0F) << "a floor of 0 is below all";
  EXPECT_EQ(FitFloor({{0.5001, 0.1}, {0.1, 1}}, 0.1), 0.1F);
  EXPECT_EQ(FitFloor({{0.5, 0.1}, {0.5, 0.3}, {0.2, 9}}, 0.1), 1.0F) << "equal ones stand together";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(FitFloor({{0.9, 0.01}, {0.4, nan}}, 0.1), 0.4F);
}

TEST(AlphaCorrelation, IsPearsons) {
  EXPECT_DOUBLE_EQ(AlphaCorrelation(std::vector<AuditedRow>{{1, 0, 3}, {2, 0, 5}, {4, 0, 9}}), 1.0);
  EXPECT_DOUBLE_EQ(AlphaCorrelation(std::vector<AuditedRow>{{1, 0, 3}, {2, 0, 1}}), -1.0);
  EXPECT_NEAR(AlphaCorrelation(std::vector<AuditedRow>{{0, 0, 0}, {1, 0, 1}, {2, 0, 0}, {3, 0, 1}}), 1 / std::sqrt(5.0),
              1e-15);
  EXPECT_EQ(AlphaCorrelation(std::vector<AuditedRow>{{1, 0, 3}, {1, 0, 1}}), 0.0);
  EXPECT_EQ(AlphaCorrelation({}), 0.0);
}

}  // namespace
}  // namespace tidemill::floor_fit_test
