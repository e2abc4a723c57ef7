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

}  // namespace
}  // namespace tidemill::execution_context_test
