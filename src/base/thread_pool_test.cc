#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace tidemill {
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
}  // namespace tidemill
