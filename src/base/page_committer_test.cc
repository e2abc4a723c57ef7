#include "base/page_committer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace tidemill::page_committer_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kPopulateWrite = 23;

// What the system in the tests' place does. One test at a time.
std::atomic<int> populate_error{0};  // 0: as the system
std::atomic<size_t> populates{0}, populates_until_error{SIZE_MAX};
std::atomic<bool> gated{false};  // each populate waits until it is let through
std::counting_semaphore<> gate{0};

int TestAdvise(void* start, size_t bytes, int advice) {
  if (advice != kPopulateWrite) return 0;  // no large pages
  populates.fetch_add(1);
  if (gated.load()) gate.acquire();
  if (populates.load() > populates_until_error.load()) {
    errno = populate_error.load();
    return -1;
  }
  return SystemAdvise(start, bytes, advice);
}

class PageCommitterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    populates = 0;
    populates_until_error = SIZE_MAX;
    gated = false;
  }
  static PageCommitter::Work Megabytes(ReservedMemory& memory, size_t parts) {
    return {.memory = &memory, .parts = parts, .stride = 2 * kMiB, .begin = kMiB, .end = 2 * kMiB};
  }
  std::unique_ptr<PageCommitter> committer_ = std::move(PageCommitter::Create(&TestAdvise)).value();
};

TEST_F(PageCommitterTest, Jobs_AreDoneBesideTheirOwner) {
  ReservedMemory memory = ReservedMemory::Create(16 * kMiB).value();
  ASSERT_TRUE(committer_->Commit({.memory = &memory, .parts = 8, .stride = 2 * kMiB, .begin = 0, .end = kMiB}).ok());
  PageCommitter::Job jobs[3];
  for (int round = 0; round < 20; ++round) {
    for (PageCommitter::Job& job : jobs) committer_->Start(job, Megabytes(memory, 8));
    for (size_t part = 0; part < 8; ++part) std::memset(memory.data() + part * 2 * kMiB, round, kMiB);
    for (PageCommitter::Job& job : jobs) EXPECT_TRUE(committer_->Finish(job));
  }
  for (size_t part = 0; part < 8; ++part) {
    const std::byte* bytes = memory.data() + part * 2 * kMiB;
    EXPECT_TRUE(std::all_of(bytes, bytes + kMiB, [](std::byte b) { return b == std::byte{19}; }));
    EXPECT_TRUE(std::all_of(bytes + kMiB, bytes + 2 * kMiB, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_F(PageCommitterTest, WithoutPages_SaysSoAndGoesOn) {
  ReservedMemory memory = ReservedMemory::Create(16 * kMiB).value();
  PageCommitter::Job job;
  populate_error = ENOMEM;
  populates_until_error = 3;
  committer_->Start(job, Megabytes(memory, 8));
  EXPECT_FALSE(committer_->Finish(job));
  EXPECT_EQ(populates.load(), 4U) << "parts behind the one that failed are not tried";
  EXPECT_EQ(committer_->Commit(Megabytes(memory, 8)).error().code(), ErrorCode::kOutOfMemory);
  populates_until_error = SIZE_MAX;
  committer_->Start(job, Megabytes(memory, 8));
  EXPECT_TRUE(committer_->Finish(job));
}

// Before Linux 5.14.
TEST_F(PageCommitterTest, SystemThatDoesNotKnowTheCall_AddsPagesWithTheFirstWrite) {
  ReservedMemory memory = ReservedMemory::Create(16 * kMiB).value();
  PageCommitter::Job job;
  populate_error = EINVAL;
  populates_until_error = 0;
  committer_->Start(job, Megabytes(memory, 8));
  EXPECT_TRUE(committer_->Finish(job));
  EXPECT_TRUE(committer_->Commit(Megabytes(memory, 8)).ok());
  std::memset(memory.data(), 1, memory.size());
}

// A thousand small parts, let through one a millisecond: a job that was cancelled ends long before its last one.
TEST_F(PageCommitterTest, Cancelled_EndsBehindItsPart) {
  constexpr size_t kParts = 1000, kPage = 4096;
  ReservedMemory memory = ReservedMemory::Create(kParts * 2 * kPage).value(),
                 other = ReservedMemory::Create(16 * kMiB).value();
  PageCommitter::Job running, waiting, last;
  gated = true;
  committer_->Start(running, {.memory = &memory, .parts = kParts, .stride = 2 * kPage, .begin = 0, .end = kPage});
  committer_->Start(waiting, Megabytes(other, 8));
  committer_->Start(last, Megabytes(other, 8));
  while (populates.load() == 0) std::this_thread::yield();
  committer_->Cancel(waiting);  // at once
  std::atomic<bool> ended{false};
  std::thread canceller([&] {
    committer_->Cancel(running);
    ended = true;
  });
  while (!ended.load()) {
    gate.release();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  canceller.join();
  EXPECT_LE(populates.load(), kParts / 2);
  gated = false;
  gate.release(kParts);
  EXPECT_TRUE(committer_->Finish(last));
  const size_t before = populates.load();
  committer_->Start(running, Megabytes(other, 8));
  committer_->Start(waiting, Megabytes(other, 8));
  EXPECT_TRUE(committer_->Finish(waiting));
  EXPECT_TRUE(committer_->Finish(running));
  EXPECT_EQ(populates.load(), before + 16);
  committer_->Forget(running);
  committer_->Forget(last);
}

// The ranges for which large pages were asked.
std::vector<std::pair<std::byte*, size_t>> large_ranges;

int LargeAdvise(void* start, size_t bytes, int advice) {
  if (advice == MADV_HUGEPAGE) large_ranges.emplace_back(static_cast<std::byte*>(start), bytes);
  return SystemAdvise(start, bytes, advice);
}

TEST(PageCommitterLargePages, OnlyExtentsInUse_GetThemOnceEach) {
  large_ranges.clear();
  const auto committer = std::move(PageCommitter::Create(&LargeAdvise)).value();
  constexpr size_t kStride = 11 * kMiB + 4096, kParts = 3;
  ReservedMemory memory = ReservedMemory::Create(kParts * kStride).value();
  PageCommitter::Job job;
  size_t used = 0;
  for (size_t part = 0; part < kParts; ++part) std::memset(memory.data() + part * kStride, 0, kMiB);
  for (size_t next = kMiB; next <= 10 * kMiB; next += kMiB) {
    committer->Start(job,
                     {.memory = &memory, .parts = kParts, .stride = kStride, .begin = used, .end = next, .used = used});
    ASSERT_TRUE(committer->Finish(job));
    for (size_t part = 0; part < kParts; ++part)
      std::memset(memory.data() + part * kStride + used, static_cast<int>(next / kMiB), next - used);
    used = next;
    for (const auto& [start, bytes] : large_ranges) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(start) % ReservedMemory::kLargePage, 0U);
      EXPECT_EQ(bytes, ReservedMemory::kLargePage);
      const auto offset = static_cast<size_t>(start - memory.data()) % kStride;
      EXPECT_LE(offset + bytes, used);
    }
  }
  EXPECT_GE(large_ranges.size(), kParts * 3);
  EXPECT_LE(large_ranges.size(), kParts * 4);
  std::sort(large_ranges.begin(), large_ranges.end());
  EXPECT_EQ(std::adjacent_find(large_ranges.begin(), large_ranges.end()), large_ranges.end());
  for (size_t part = 0; part < kParts; ++part) {
    for (size_t mib = 0; mib < 10; ++mib)
      EXPECT_EQ(memory.data()[part * kStride + mib * kMiB + 77], static_cast<std::byte>(mib + 1));
  }
  committer->Forget(job);
}

}  // namespace
}  // namespace tidemill::page_committer_test
