#include "kernels/execution_context.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

namespace tidemill::execution_context_test {
namespace {

TEST(ExecutionContext, MadeWhileFewerThreadsAreInUse_HasScratchForAll) {
  constexpr size_t kBytes = 100;
  const auto pool = ThreadPool::Create(3).value();
  pool->Use(1);
  auto context = ExecutionContext::Create(DetectIsa(), pool.get(), kBytes).value();
  pool->Use(3);
  for (size_t thread = 0; thread < pool->num_threads(); ++thread) EXPECT_GE(context.scratch(thread).size(), kBytes);
}

TEST(ExecutionContext, ReserveShared_GrowsAndNeverShrinks) {
  const auto pool = ThreadPool::Create(1).value();
  auto context = ExecutionContext::Create(DetectIsa(), pool.get(), 100).value();
  const size_t before = context.shared_scratch().size();
  ASSERT_TRUE(context.ReserveShared(before / 2).ok());
  EXPECT_EQ(context.shared_scratch().size(), before);
  ASSERT_TRUE(context.ReserveShared(before + 1000).ok());
  EXPECT_GE(context.shared_scratch().size(), before + 1000);
  context.shared_scratch().back() = std::byte{1};
  ASSERT_TRUE(context.ReserveShared(1).ok());
  EXPECT_EQ(context.shared_scratch().back(), std::byte{1}) << "what is large enough stays as it is";
}

TEST(ExecutionContext, ReserveSharedOfTooMuch_SaysSoAndKeepsWhatThereIs) {
  const auto pool = ThreadPool::Create(1).value();
  auto context = ExecutionContext::Create(DetectIsa(), pool.get(), 100).value();
  const size_t before = context.shared_scratch().size();
  const Result<void> result = context.ReserveShared(size_t{1} << 60);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(context.shared_scratch().size(), before);
}

size_t ChunksThatRun(const ExecutionContext& context, size_t num_chunks) {
  std::atomic<size_t> ran{0};
  context.ParallelFor(num_chunks, [&](size_t, size_t) { ++ran; });
  return ran;
}

TEST(ExecutionContext, AbandonedWork_StaysAbandonedUntilItsEnd) {
  constexpr size_t kChunks = 1000;
  for (const size_t threads : {1, 3}) {
    const auto pool = ThreadPool::Create(threads).value();
    auto made = ExecutionContext::Create(DetectIsa(), pool.get(), 100).value();
    auto context = std::move(made);  // as an engine does
    std::atomic<bool> flag{false};
    {
      const ExecutionContext::Interruptible interruptible(context, &flag);
      EXPECT_EQ(ChunksThatRun(context, kChunks), kChunks);
      EXPECT_FALSE(context.IsAbandoned());
      std::atomic<size_t> ran{0};
      context.ParallelFor(kChunks, [&](size_t, size_t) {
        if (++ran == 10) flag = true;
      });
      EXPECT_TRUE(context.IsAbandoned());
      EXPECT_LT(ran, 10 + 2 * threads);
      flag = false;  // whoever set it may take it back before the work has ended
      EXPECT_EQ(ChunksThatRun(context, kChunks), 0U);
      EXPECT_TRUE(context.IsAbandoned());
    }
    EXPECT_FALSE(context.IsAbandoned());
    EXPECT_EQ(ChunksThatRun(context, kChunks), kChunks);
    flag = true;
    EXPECT_EQ(ChunksThatRun(context, kChunks), kChunks) << "nothing can abandon it";
    const ExecutionContext::Interruptible not_at_all(context, nullptr);
    EXPECT_EQ(ChunksThatRun(context, kChunks), kChunks);
  }
}

TEST(ExecutionContext, LongLoop_EndsSoonAfterTheFlag) {
  using Clock = std::chrono::steady_clock;
  const auto pool = ThreadPool::Create(2).value();
  auto context = ExecutionContext::Create(DetectIsa(), pool.get(), 100).value();
  std::atomic<bool> flag{false};
  Clock::time_point set;
  std::thread caller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    set = Clock::now();
    flag = true;
  });
  const ExecutionContext::Interruptible interruptible(context, &flag);
  context.ParallelFor(60000, [](size_t, size_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  const Clock::time_point ended = Clock::now();
  caller.join();
  EXPECT_TRUE(context.IsAbandoned());
  EXPECT_LT(ended - set, std::chrono::seconds(5)) << "of half a minute";
}

}  // namespace
}  // namespace tidemill::execution_context_test
