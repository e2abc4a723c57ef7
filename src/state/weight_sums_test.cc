#include "state/weight_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/allocation_probe.h"

namespace tidemill::weight_sums_test {
namespace {

using testing::FailAllocations;

std::vector<float> Values(std::span<const float> sums) { return {sums.begin(), sums.end()}; }

// A step of `rows` rows in one cell, which adds head + 1 to every position and evicts `evicted`.
void RunStep(WeightSums& sums, size_t rows, size_t evicted) {
  ASSERT_TRUE(sums.Reserve(rows).ok());
  for (size_t head = 0; head < sums.kv_heads(); ++head) {
    const std::span<float> step = sums.OfStep(head, 0, rows);
    for (float& sum : step) sum += sum == kEvicted ? 0 : static_cast<float>(head + 1);
    if (evicted < step.size()) step[evicted] = kEvicted;
  }
  EXPECT_TRUE(sums.Commit(rows));
}

TEST(WeightSums, Steps_AreCommittedOrNeverWere) {
  WeightSums sums(2, nullptr);
  RunStep(sums, 3, 1);
  EXPECT_EQ(Values(sums.Committed(0)), (std::vector<float>{1, -1, 1}));
  EXPECT_EQ(Values(sums.Committed(1)), (std::vector<float>{2, -1, 2}));
  // Abandoned after one head; then repeated from slot 0 without a Reserve, in two cells.
  ASSERT_TRUE(sums.Reserve(2).ok());
  for (float& sum : sums.OfStep(0, 0, 2)) sum = 77;
  EXPECT_EQ(Values(sums.Committed(0)), (std::vector<float>{1, -1, 1}));
  for (size_t head = 0; head < 2; ++head) {
    EXPECT_EQ(Values(sums.OfStep(head, 0, 1)), (std::vector<float>{head + 1.0F, -1, head + 1.0F, 0}));
    sums.OfStep(head, 0, 1)[3] = 5;
    EXPECT_EQ(Values(sums.OfStep(head, 1, 1)), (std::vector<float>{head + 1.0F, -1, head + 1.0F, 5, 0}));
  }
  EXPECT_TRUE(sums.Commit(2));
  EXPECT_EQ(Values(sums.Committed(1)), (std::vector<float>{2, -1, 2, 5, 0}));
  // No cell ran, or the step was abandoned: new positions have 0.
  ASSERT_TRUE(sums.Reserve(1).ok());
  sums.OfStep(0, 0, 1)[5] = 9;
  ASSERT_TRUE(sums.Reserve(2).ok());
  EXPECT_FALSE(sums.Commit(2));
  EXPECT_EQ(Values(sums.Committed(0)), (std::vector<float>{1, -1, 1, 5, 0, 0, 0}));
}

TEST(WeightSums, Growth_KeepsWhatIsThereAndTellsItsBytes) {
  StateLedger ledger;
  WeightSums sums(3, &ledger);
  std::vector<float> expected;
  for (size_t step = 0; step < 9; ++step) {
    const uint64_t before = sums.bytes(), more = sums.GrowthBytes(100);
    EXPECT_EQ(sums.HasRoom(100), more == 0);
    RunStep(sums, 100, 100 * step);
    EXPECT_EQ(sums.bytes(), before + more);
    EXPECT_EQ(ledger.held(), sums.bytes());
    expected.resize(expected.size() + 100, 0);
    for (float& sum : expected) sum += sum == -1 ? 0 : 3;
    expected[100 * step] = -1;
    ASSERT_EQ(Values(sums.Committed(2)), expected);
  }
  EXPECT_EQ(sums.bytes(), 2 * 3 * 4 * 1024U);
  ASSERT_TRUE(sums.Compact().ok());
  EXPECT_EQ(sums.bytes(), 2 * 3 * 4 * 900U);
  EXPECT_EQ(Values(sums.Committed(2)), expected);
  EXPECT_EQ(sums.GrowthBytes(SIZE_MAX), UINT64_MAX);
  EXPECT_EQ(sums.GrowthBytes(SIZE_MAX / 8), UINT64_MAX);
  EXPECT_EQ(sums.Reserve(SIZE_MAX).error().code(), ErrorCode::kOutOfMemory);
  sums.Clear();
  EXPECT_EQ(ledger.held(), 0U);
}

TEST(WeightSums, CopiesAndCheckpoints_AreTheSameAndTheirOwn) {
  StateLedger ledger;
  WeightSums sums(2, &ledger), copy(2, &ledger), restored(2, &ledger), taken(2, &ledger);
  RunStep(sums, 5, 2);
  ASSERT_TRUE(copy.Copy(sums).ok());
  std::vector<std::byte> saved;
  sums.AppendTo(&saved);
  EXPECT_EQ(saved.size(), WeightSums::CheckpointBytes(2, 5));
  ByteReader reader(saved);
  ASSERT_TRUE(restored.ReadFrom(reader, 5).ok());
  for (size_t head = 0; head < 2; ++head) {
    EXPECT_EQ(Values(copy.Committed(head)), Values(sums.Committed(head)));
    EXPECT_EQ(Values(restored.Committed(head)), Values(sums.Committed(head)));
  }
  const std::vector<float> before = Values(sums.Committed(1));
  RunStep(copy, 1, 0);
  RunStep(restored, 1, 0);
  EXPECT_EQ(Values(sums.Committed(1)), before);
  EXPECT_EQ(Values(copy.Committed(1)), Values(restored.Committed(1)));
  const uint64_t held = ledger.held(), bytes = copy.bytes();
  taken.Take(std::move(copy));
  EXPECT_EQ(ledger.held(), held);
  EXPECT_EQ(taken.bytes(), bytes);
  EXPECT_EQ(Values(taken.Committed(1)), Values(restored.Committed(1)));
}

TEST(WeightSums, WithoutMemory_NothingHasChanged) {
  WeightSums sums(2, nullptr);
  RunStep(sums, 5, 2);
  const std::vector<float> before = Values(sums.Committed(1));
  for (size_t n = 0; n < 2; ++n) {
    FailAllocations failure(n);
    EXPECT_EQ(sums.Reserve(300).error().code(), ErrorCode::kOutOfMemory);
    EXPECT_TRUE(failure.Stop());
    EXPECT_EQ(Values(sums.Committed(1)), before);
  }
  RunStep(sums, 300, 7);
  EXPECT_EQ(sums.Committed(1)[0], 4);
}

}  // namespace
}  // namespace tidemill::weight_sums_test
