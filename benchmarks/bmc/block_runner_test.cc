#include "benchmarks/bmc/block_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/isa.h"
#include "benchmarks/bmc/cell_record.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::bmc::block_runner_test {
namespace {

std::vector<Backend> Backends() {
  std::vector<Backend> backends = {Backend::kExact, Backend::kEngine};
#ifdef TIDEMILL_ONEDNN
  backends.push_back(Backend::kPadded);
  backends.push_back(Backend::kStrided);
#endif
  return backends;
}

std::vector<Cell> PoliciesFor(Cell cell) {
  std::vector<Cell> cells;
  const auto add = [&](KvPolicy policy, Memory memory, size_t increment) {
    cell.policy = policy;
    cell.memory = memory;
    cell.increment = increment;
    cells.push_back(cell);
  };
  add(KvPolicy::kIterative, Memory::kSystem, 1);
  add(KvPolicy::kIterative, Memory::kPool, 1);
  add(KvPolicy::kUpfront, Memory::kSystem, 1);
  for (const size_t increment : {1, 8, 13}) add(KvPolicy::kBmc, Memory::kSystem, increment);
  add(KvPolicy::kGeometric, Memory::kSystem, 1);
  add(KvPolicy::kReserve, Memory::kReserved, 8);
  if (!UsesLibrary(cell.backend)) add(KvPolicy::kPaged, Memory::kSystem, 16);
  return cells;
}

Cell SmallCell(Backend backend) {
  Cell cell;
  cell.shape = {"small", 4, 2, 16};
  cell.tokens = 80;
  cell.batch = 2;
  cell.backend = backend;
  return cell;
}

// The results of the last step after all of them, or after a jump to it, over rows of zeros.
std::vector<float> LastOut(const Cell& cell, bool jump = false) {
  testing::TestContext context(DetectIsa());
  auto runner = MakeBlockRunner(cell, *context);
  EXPECT_TRUE(runner.ok());
  const std::vector<Step> script = MakeScript(cell);
  if (jump) {
    const auto placed = (*runner)->Place(script.back());
    EXPECT_TRUE(placed.ok()) << placed.error().message();
  }
  for (size_t i = jump ? script.size() - 1 : 0; i < script.size(); ++i) {
    const auto run = (*runner)->Run(script[i]);
    EXPECT_TRUE(run.ok()) << run.error().message();
  }
  const std::span<const float> out = (*runner)->Out();
  return {out.begin(), out.end()};
}

TEST(BlockRunner, EveryPolicyAndBackend_AttendsToTheSameRows) {
  const std::vector<float> expected = LastOut(PoliciesFor(SmallCell(Backend::kExact)).front());
  for (const Backend backend : Backends()) {
    for (const Cell& cell : PoliciesFor(SmallCell(backend))) {
      const std::vector<float> out = LastOut(cell);
      ASSERT_EQ(out.size(), expected.size());
      for (size_t i = 0; i < out.size(); ++i) {
        // Ours are the same bits, whatever the policy; the library adds in another order.
        ASSERT_NEAR(out[i], expected[i], UsesLibrary(backend) ? 1e-5 : 0) << cell.Key() << ", element " << i;
      }
    }
  }
}

TEST(BlockRunner, EveryPolicyAndBackend_JumpsToTheSameRows) {
  const std::vector<float> expected = LastOut(PoliciesFor(SmallCell(Backend::kExact)).front(), true);
  EXPECT_NE(expected, LastOut(PoliciesFor(SmallCell(Backend::kExact)).front()));
  for (const Backend backend : Backends()) {
    for (const Cell& cell : PoliciesFor(SmallCell(backend))) {
      const std::vector<float> out = LastOut(cell, true);
      ASSERT_EQ(out.size(), expected.size());
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_NEAR(out[i], expected[i], UsesLibrary(backend) ? 1e-5 : 0) << cell.Key() << ", element " << i;
    }
  }
}

TEST(BlockRunner, Drafts_KeepTheSameRowsInEveryPolicyWithRoomForThem) {
  // Where drafts are cut, other rows are accepted: only policies that cut none of them can be compared.
  for (const Backend backend : Backends()) {
    Cell cell = SmallCell(backend);
    cell.draft = 6;
    cell.accept = 3;
    cell.policy = KvPolicy::kUpfront;
    const std::vector<float> upfront = LastOut(cell);
    cell.policy = KvPolicy::kIterative;
    const std::vector<float> iterative = LastOut(cell);
    ASSERT_EQ(upfront.size(), iterative.size());
    for (size_t i = 0; i < upfront.size(); ++i)
      ASSERT_NEAR(upfront[i], iterative[i], 1e-5) << cell.Key() << ", element " << i;
  }
}

TEST(RunCell, FullAndSampled_CountTheSameSteps) {
  for (const Backend backend : Backends()) {
    for (const Cell& cell : PoliciesFor(SmallCell(backend))) {
      for (const size_t samples : {0, 8}) {
        const auto run = RunCell(cell, samples);
        ASSERT_TRUE(run.ok()) << run.error().message();
        const nlohmann::ordered_json record = RecordOf(*run, true);
        EXPECT_EQ(record["steps"], 80) << cell.Key();
        EXPECT_GT(record["seconds"]["total"], 0) << cell.Key();
        EXPECT_GT(record["seconds"]["attention"], 0) << cell.Key();
        EXPECT_EQ(record["points"].size(), run->size());
      }
    }
  }
}

#ifdef TIDEMILL_ONEDNN
TEST(RunCell, Padded_MakesPrimitivesOnceForEachCapacity) {
  for (const Cell& cell : PoliciesFor(SmallCell(Backend::kPadded))) {
    const auto run = RunCell(cell, 0);
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(RecordOf(*run, false)["creations"], cell.Allocations()) << cell.Key();
  }
}

TEST(RunCell, Strided_MakesPrimitivesAtEachStep) {
  for (const Cell& cell : PoliciesFor(SmallCell(Backend::kStrided))) {
    const auto run = RunCell(cell, 0);
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(RecordOf(*run, false)["creations"], cell.tokens) << cell.Key();
  }
}
#else
TEST(RunCell, PaddedWithoutTheLibrary_IsRefused) {
  const auto run = RunCell(SmallCell(Backend::kPadded), 0);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code(), ErrorCode::kUnsupported);
}
#endif

}  // namespace
}  // namespace tidemill::bmc::block_runner_test
