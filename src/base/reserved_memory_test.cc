#include "base/reserved_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tidemill::reserved_memory_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

bool AllAre(const std::byte* begin, size_t bytes, std::byte value) {
  return std::all_of(begin, begin + bytes, [value](std::byte b) { return b == value; });
}

TEST(ReservedMemory, CommittedBytes_AreZerosThatStayWhereTheyAre) {
  ReservedMemory memory = ReservedMemory::Create(64 * kMiB + 1).value();
  EXPECT_GE(memory.size(), 64 * kMiB + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0U);
  std::byte* const data = memory.data();
  size_t done = 0;
  for (const size_t bytes : {size_t{1}, size_t{5000}, 3 * kMiB, 7 * kMiB + 13}) {
    ASSERT_TRUE(memory.Commit(done, bytes).ok());
    EXPECT_TRUE(AllAre(data + done, bytes, std::byte{0})) << bytes;
    std::fill_n(data + done, bytes, std::byte{7});
    done += bytes;
  }
  EXPECT_TRUE(AllAre(data, done, std::byte{7}));
  ASSERT_TRUE(memory.Commit(0, done).ok());  // again: nothing is lost
  EXPECT_TRUE(AllAre(data, done, std::byte{7}));
  ASSERT_TRUE(memory.Commit(memory.size() - 10, 10).ok());
  EXPECT_TRUE(AllAre(data + memory.size() - 10, 10, std::byte{0}));
  ReservedMemory moved = std::move(memory);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(memory.size(), 0U);
}

TEST(ReservedMemory, ReleasedPages_ComeBackAsZeros) {
  ReservedMemory memory = ReservedMemory::Create(8 * kMiB).value();
  ASSERT_TRUE(memory.Commit(0, 8 * kMiB).ok());
  std::fill_n(memory.data(), 8 * kMiB, std::byte{9});
  memory.Release(kMiB + 1, 4 * kMiB);  // only whole pages go
  EXPECT_TRUE(AllAre(memory.data(), kMiB + 1, std::byte{9}));
  EXPECT_TRUE(AllAre(memory.data() + 5 * kMiB + 1, 3 * kMiB - 1, std::byte{9}));
  ASSERT_TRUE(memory.Commit(0, 8 * kMiB).ok());
  EXPECT_TRUE(AllAre(memory.data() + 2 * kMiB, 2 * kMiB, std::byte{0}));
}

TEST(ReservedMemory, WhatNoSystemHas_IsOutOfMemory) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 4 * kMiB, SIZE_MAX / 2}) {
    const Result<ReservedMemory> memory = ReservedMemory::Create(bytes);
    ASSERT_FALSE(memory.ok()) << bytes;
    EXPECT_EQ(memory.error().code(), ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(ReservedMemory::Create(0).value().size(), 0U);
}

// Pages of [data, data + bytes) that are resident.
size_t ResidentPages(std::byte* data, size_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096);
  EXPECT_EQ(mincore(data, bytes, pages.data()), 0);
  return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

TEST(ReservedMemory, OnlyWhatIsCommitted_IsResident) {
  ReservedMemory memory = ReservedMemory::Create(64 * kMiB).value();
  EXPECT_EQ(ResidentPages(memory.data(), memory.size()), 0U);
  ASSERT_TRUE(memory.Commit(10 * kMiB, 5 * kMiB).ok());
  if (ResidentPages(memory.data(), memory.size()) == 0)
    GTEST_SKIP() << "this system adds pages with the first write only";
  EXPECT_EQ(ResidentPages(memory.data(), memory.size()), 5 * kMiB / 4096);
  memory.Release(11 * kMiB, kMiB);
  EXPECT_EQ(ResidentPages(memory.data(), memory.size()), 4 * kMiB / 4096);
}

}  // namespace
}  // namespace tidemill::reserved_memory_test
