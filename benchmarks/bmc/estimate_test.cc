#include "benchmarks/bmc/estimate.h"

#include <gtest/gtest.h>

namespace tidemill::bmc::estimate_test {
namespace {

Cell SmallCell(KvPolicy policy, size_t increment, Backend backend) {
  Cell cell;
  cell.shape = kModelShapes[0];
  cell.tokens = 128;
  cell.batch = 2;
  cell.policy = policy;
  cell.increment = increment;
  cell.backend = backend;
  return cell;
}

TEST(Estimate, EveryStep_IsAllThatTheScriptReadsAndMakes) {
  const double bytes = 2 * 2 * 32 * 80 * 4;  // K and V, sequences, heads, head_dim, f32
  const CellWork iterative = WorkOf(SmallCell(KvPolicy::kIterative, 1, Backend::kPadded), 0);
  EXPECT_EQ(iterative.read_bytes, bytes * 128 * 129 / 2);
  EXPECT_EQ(iterative.grown_bytes, bytes * 128 * 129 / 2);
  EXPECT_EQ(iterative.creations, 128);
  const CellWork bmc = WorkOf(SmallCell(KvPolicy::kBmc, 32, Backend::kPadded), 0);
  EXPECT_EQ(bmc.read_bytes, bytes * 32 * (32 + 64 + 96 + 128));
  EXPECT_EQ(bmc.grown_bytes, bytes * (32 + 64 + 96 + 128));
  EXPECT_EQ(bmc.creations, 4);
  const CellWork exact = WorkOf(SmallCell(KvPolicy::kBmc, 32, Backend::kExact), 0);
  EXPECT_EQ(exact.read_bytes, bytes * 128 * 129 / 2);
  EXPECT_EQ(exact.creations, 0);
  EXPECT_EQ(WorkOf(SmallCell(KvPolicy::kPaged, 32, Backend::kExact), 0).grown_bytes, bytes * 128);
}

TEST(Estimate, SampledCell_IsLessWorkThanAllOfIt) {
  Cell cell = SmallCell(KvPolicy::kBmc, 32, Backend::kPadded);
  cell.tokens = 4096;
  const CellWork all = WorkOf(cell, 0), sampled = WorkOf(cell, 32);
  EXPECT_LT(sampled.read_bytes, all.read_bytes / 4);
  EXPECT_GT(sampled.read_bytes, 0);
  EXPECT_GT(sampled.grown_bytes, 0);
}

// What gave the rates is estimated as what it took.
TEST(Estimate, OfTheCellThatGaveTheRates_IsWhatItTook) {
  const Cell cell = ShortCell(SmallCell(KvPolicy::kBmc, 32, Backend::kPadded));
  EXPECT_EQ(cell.policy, KvPolicy::kIterative);
  const StepSeconds seconds{
      .allocate = 0.5, .copy = 0.25, .update = 0.125, .attention = 1, .create = 2, .creations = 128};
  EXPECT_NEAR(EstimatedSeconds(WorkOf(cell, 0), RatesOf(cell, seconds)), seconds.total(), 1e-9);
}

}  // namespace
}  // namespace tidemill::bmc::estimate_test
