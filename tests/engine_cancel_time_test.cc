// A request is cancelled within a step, or a wave, whose one layer takes long.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/engine_driver.h"
#include "tests/support/model_folder.h"
#include "tests/support/seeded_armt.h"
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

// The best of a few: others may have the cores.
void ExpectCancelledInTime(const std::shared_ptr<const Model>& model, size_t tokens, const EngineOptions& options,
                           const std::optional<WaveForm>& wave) {
  const auto bound = std::chrono::milliseconds(TIDEMILL_SLOWED_DOWN ? 5000 : 100);
  std::vector<int32_t> prompt(tokens);
  for (size_t i = 0; i < tokens; ++i) prompt[i] = static_cast<int32_t>(3 + i % 300);
  Clock::duration best = Clock::duration::max();
  for (int attempt = 0; attempt < 5 && best > bound; ++attempt) {
    EngineDriver driver(model, options);
    driver.engine().impl().waves.given = wave;
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
    ASSERT_EQ(driver.engine().impl().waves.wave != nullptr, wave.has_value());
    best = std::min(best, ended - cancelled);
  }
  EXPECT_LT(best, bound) << std::chrono::duration<double>(best).count() << " s";
}

TEST(EngineCancel, WithinALayer_TakesNoTenthOfASecond) {
  ExpectCancelledInTime(SlowModel(), kTokens, {.threads = 1, .prefill_chunk = kTokens, .prefix_cache = false}, {});
}

// A cell is of 45 Gflop.
TEST(EngineCancel, WithinAWave_TakesNoTenthOfASecond) {
  testing::ModelFolder folder;
  constexpr size_t kSegment = 2048;
  testing::WriteSeededArmt({.hidden = 768, .layers = 2, .ffn = 4096, .positions = 2 * kSegment, .segment = kSegment},
                           folder);
  LoadOptions load;
  load.threads = 2;
  const auto model = Model::Load(folder.path(), load);
  ASSERT_TRUE(model.ok()) << model.error().message();
  for (const WaveForm& form : {WaveForm{WaveOrder::kDiagonal, 2, 0}, WaveForm{WaveOrder::kLayerMajor, 2, 0},
                               WaveForm{WaveOrder::kTeams, 2, 1}}) {
    SCOPED_TRACE(WaveFormName(form));
    ExpectCancelledInTime(*model, 3 * kSegment + 1, {.threads = 2, .prefix_cache = false}, form);
  }
}

}  // namespace
}  // namespace tidemill::engine_cancel_time_test
