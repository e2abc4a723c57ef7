// A request is cancelled within a step whose one layer takes long.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/engine_driver.h"
#include "tests/support/tiny_model.h"

namespace tidemill::engine_cancel_time_test {
namespace {

using testing::EngineDriver;
using Clock = std::chrono::steady_clock;

constexpr size_t kTokens = 4096;

// Two layers, the first of 100 Gflop for so many tokens, a second or so. Of the last one only what is read is computed.
std::shared_ptr<const Model> SlowModel() {
  return testing::LoadModel("engine_cancel_time", testing::BuildTinyLlama({.vocab = 400,
                                                                           .hidden = 1024,
                                                                           .layers = 2,
                                                                           .heads = 4,
                                                                           .kv_heads = 2,
                                                                           .head_dim = 64,
                                                                           .ffn = 4096,
                                                                           .context = kTokens + 8,
                                                                           .dtype = DType::kQ8_0}));
}

TEST(EngineCancel, WithinALayer_TakesNoTenthOfASecond) {
  const auto model = SlowModel();
  const auto bound = std::chrono::milliseconds(TIDEMILL_SLOWED_DOWN ? 5000 : 100);
  std::vector<int32_t> prompt(kTokens);
  for (size_t i = 0; i < kTokens; ++i) prompt[i] = static_cast<int32_t>(3 + i % 300);
  Clock::duration best = Clock::duration::max();
  for (int attempt = 0; attempt < 5 && best > bound; ++attempt) {  // others may have the cores
    EngineDriver driver(model, {.threads = 1, .prefill_chunk = kTokens, .prefix_cache = false});
    const RequestId id = driver.Submit({.prompt = prompt, .generation = {.max_new_tokens = 1}, .keep_state = true});
    Clock::time_point cancelled;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      cancelled = Clock::now();
      driver.engine().Cancel(id);
    });
    driver.Step();
    const Clock::time_point ended = Clock::now();
    other.join();
    ASSERT_EQ(driver.outcome(id).finish, FinishReason::kCancelled) << "the step ended before it was cancelled";
    ASSERT_NE(driver.outcome(id).saved, nullptr);
    best = std::min(best, ended - cancelled);
  }
  EXPECT_LT(best, bound) << std::chrono::duration<double>(best).count() << " s";
}

}  // namespace
}  // namespace tidemill::engine_cancel_time_test
