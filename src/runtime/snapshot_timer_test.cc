#include "runtime/snapshot_timer.h"

#include <gtest/gtest.h>

#include <limits>

namespace tidemill::snapshot_timer_test {
namespace {

using Clock = SnapshotTimer::Clock;

Clock::time_point At(double seconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

TEST(SnapshotTimer, Zero_IsNever) {
  EXPECT_FALSE(SnapshotTimer(0, At(0)).IsDue(At(1e6)));
  EXPECT_EQ(SnapshotTimer(0, At(0)).SecondsLeft(At(1e6)), std::numeric_limits<double>::infinity());
}

TEST(SnapshotTimer, CheapOnes_AreSoManySecondsApart) {
  SnapshotTimer timer(30, At(100));
  EXPECT_FALSE(timer.IsDue(At(129)));
  EXPECT_DOUBLE_EQ(timer.SecondsLeft(At(129)), 1);
  EXPECT_TRUE(timer.IsDue(At(131)));
  timer.Begin(At(131));
  timer.End(At(131.5));
  timer.End(At(900));  // of no snapshot
  EXPECT_FALSE(timer.IsDue(At(161)));
  EXPECT_TRUE(timer.IsDue(At(162)));
}

TEST(SnapshotTimer, CostlyOnes_TakeAFiftiethOfTheTime) {
  SnapshotTimer timer(30, At(0));
  timer.Begin(At(30));
  timer.End(At(34));
  EXPECT_FALSE(timer.IsDue(At(34 + 195)));
  EXPECT_TRUE(timer.IsDue(At(34 + 197))) << "4 s of 200 s";
  EXPECT_TRUE(timer.IsDue(At(34 + 37), 0.1)) << "4 s of 40 s";
  timer.Begin(At(300));
  timer.End(At(300.1));
  EXPECT_TRUE(timer.IsDue(At(331))) << "what the last one took counts";
}

}  // namespace
}  // namespace tidemill::snapshot_timer_test
