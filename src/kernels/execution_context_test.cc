#include "kernels/execution_context.h"

#include <gtest/gtest.h>

#include <cstddef>

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

}  // namespace
}  // namespace tidemill::execution_context_test
