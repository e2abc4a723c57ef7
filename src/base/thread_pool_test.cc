#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace tidemill::thread_pool_test {
namespace {

TEST(ThreadPool, ParallelFor_RunsEveryChunkOnce) {
  for (const size_t threads : {1, 2, 5}) {
    auto pool = ThreadPool::Create(threads);
    ASSERT_TRUE(pool.ok()) << pool.error().message();
    for (const size_t chunks : {0, 1, 2, 3, 100, 5000}) {
      std::vector<std::atomic<int>> hits(chunks);
      (*pool)->ParallelFor(chunks, [&](size_t chunk, size_t thread) {
        EXPECT_LT(thread, threads);
        hits[chunk].fetch_add(1);
      });
      for (size_t i = 0; i < chunks; ++i) ASSERT_EQ(hits[i].load(), 1) << "threads " << threads << " chunk " << i;
    }
  }
}

// More than a ticket counts.
TEST(ThreadPool, MillionsOfChunks_RunOnceEach) {
  auto pool = ThreadPool::Create(2);
  ASSERT_TRUE(pool.ok());
  std::vector<uint8_t> hits((size_t{1} << 21) + 5);
  (*pool)->ParallelFor(hits.size(), [&](size_t chunk, size_t) { ++hits[chunk]; });
  EXPECT_EQ(std::count(hits.begin(), hits.end(), uint8_t{1}), static_cast<std::ptrdiff_t>(hits.size()));
}

TEST(ThreadPool, ManyShortLoops_KeepTheirBodiesApart) {
  auto pool = ThreadPool::Create(4);
  ASSERT_TRUE(pool.ok());
  for (int loop = 0; loop < 20000; ++loop) {
    std::atomic<int> sum{0};
    (*pool)->ParallelFor(3, [&sum, loop](size_t, size_t) { sum.fetch_add(loop); });
    ASSERT_EQ(sum.load(), 3 * loop);
  }
}

TEST(ThreadPool, FewerInUse_TheOthersTakeNothing) {
  auto pool = ThreadPool::Create(4);
  ASSERT_TRUE(pool.ok());
  for (int loop = 0; loop < 5000; ++loop) {
    const size_t used = static_cast<size_t>(loop) % 4 + 1;
    (*pool)->Use(used);
    ASSERT_EQ((*pool)->num_threads(), used);
    std::atomic<int> sum{0};
    (*pool)->ParallelFor(9, [&](size_t, size_t thread) {
      EXPECT_LT(thread, used);
      sum.fetch_add(1);
    });
    ASSERT_EQ(sum.load(), 9);
  }
  (*pool)->Use(0);
  EXPECT_EQ((*pool)->num_threads(), 1U);
  (*pool)->Use(100);
  EXPECT_EQ((*pool)->num_threads(), 4U);
}

// The status file of each thread of the pool that is in use: each takes one chunk and waits for the others.
std::vector<std::string> StatusFiles(ThreadPool& pool) {
  std::vector<std::string> names(pool.num_threads());
  std::atomic<size_t> arrived{0};
  pool.ParallelFor(names.size(), [&](size_t, size_t thread) {
    names[thread] = "/proc/self/task/" + std::to_string(gettid()) + "/status";
    arrived.fetch_add(1);
    while (arrived.load() < names.size()) std::this_thread::yield();
  });
  return names;
}

// What the file says of `name`: one word or number.
template <typename T>
T FieldOf(const std::string& status_file, const std::string& name) {
  std::ifstream file(status_file);
  std::string word;
  while (file >> word && word != name + ":") continue;
  T value{};
  file >> value;
  return value;
}

// How often the thread has gone to sleep, once it sleeps; -1 if it does not within ten seconds.
int64_t SleepsOf(const std::string& status_file) {
  for (int i = 0; i < 10000; ++i) {
    if (FieldOf<std::string>(status_file, "State") == "S")
      return FieldOf<int64_t>(status_file, "voluntary_ctxt_switches");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return -1;
}

TEST(ThreadPool, FewerInUse_TheOthersSleepThrough) {
  auto pool = ThreadPool::Create(4);
  ASSERT_TRUE(pool.ok());
  const std::vector<std::string> files = StatusFiles(**pool);
  (*pool)->Use(2);
  // The others are woken for this loop at the latest, and see that it is not theirs.
  ASSERT_EQ(StatusFiles(**pool).size(), 2U);
  const int64_t third = SleepsOf(files[2]), fourth = SleepsOf(files[3]);
  ASSERT_GT(third, 0);
  ASSERT_GT(fourth, 0);
  for (int loop = 0; loop < 50; ++loop) {
    (*pool)->ParallelFor(2, [](size_t, size_t) {});
    std::this_thread::sleep_for(std::chrono::microseconds(500));  // a worker that is awake goes to sleep meanwhile
  }
  EXPECT_EQ(SleepsOf(files[2]), third);
  EXPECT_EQ(SleepsOf(files[3]), fourth);
  (*pool)->Use(4);
  EXPECT_EQ(StatusFiles(**pool), files);  // all take part again
}

TEST(ThreadPool, ThreadCountOutOfRange_IsRefused) {
  for (const size_t threads : {size_t{0}, ThreadPool::kMaxThreads + 1}) {
    auto pool = ThreadPool::Create(threads);
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(DefaultThreadCount, OnThisMachine_IsInRange) {
  EXPECT_GE(DefaultThreadCount(), 1U);
  EXPECT_LE(DefaultThreadCount(), ThreadPool::kMaxThreads);
}

}  // namespace
}  // namespace tidemill::thread_pool_test
