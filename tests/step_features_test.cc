// What a step hands out of its layers for draft heads: transformers' numbers, and the same bits however the rows came.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/testing/levels.h"
#include "kernels/testing/compare.h"
#include "tests/support/eagle_golden.h"
#include "tests/support/model_runner.h"

namespace tidemill::step_features_test {
namespace {

using testing::EagleGolden;
using testing::KeysOf;
using testing::ModelRunner;

struct Taken {
  std::vector<float> features, logits;  // of all ids
};

// Feeds the ids in chunks; `batch mates` ids of another sequence are rows of each step, too, in front of them.
Taken Feed(ModelRunner& runner, std::span<const int32_t> ids, size_t chunk, const std::vector<size_t>& taps,
           size_t batch_mates = 0) {
  const auto state = runner.NewState(), other = runner.NewState();
  const std::vector<int32_t> others(batch_mates, 7);
  const size_t width = taps.size() * runner.model().settings.hidden_size;
  Taken taken;
  for (size_t first = 0; first < ids.size(); first += chunk) {
    const auto part = ids.subspan(first, std::min(chunk, ids.size() - first));
    EXPECT_TRUE(state->Reserve(part.size()).ok() && other->Reserve(batch_mates).ok());
    std::vector<StepSequence> step;
    if (batch_mates != 0) step.push_back({.state = other.get(), .tokens = others});
    step.push_back({.state = state.get(), .tokens = part, .rows = Wanted::kAll});
    std::vector<float> out((batch_mates + part.size()) * width);
    const StepFeatures features{.taps = taps, .out = {out.data(), batch_mates + part.size(), width}};
    TappedOrder order(taps.empty() ? nullptr : &features);
    EXPECT_TRUE(runner.executor().Run(
        step,
        [&](size_t, size_t, std::span<float> row) { taken.logits.insert(taken.logits.end(), row.begin(), row.end()); },
        nullptr, order));
    taken.features.insert(taken.features.end(), out.begin() + static_cast<std::ptrdiff_t>(batch_mates * width),
                          out.end());
    state->Commit(KeysOf(part));
  }
  return taken;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(StepFeatures, AtEveryLevel_AreTransformersHiddenStates) {
  const struct {
    const char* head;
    std::vector<size_t> taps;
  } cases[] = {{"eagle1", {9}}, {"eagle3", {2, 4, 5}}};
  for (const auto& c : cases) {
    const EagleGolden golden(c.head);
    for (const Isa isa : testing::LevelsHere()) {
      ModelRunner runner(EagleGolden::Folder("target"), {.isa = isa, .threads = 2, .f32 = true, .context = 64});
      for (size_t p = 0; p < golden.num_prompts(); ++p) {
        SCOPED_TRACE(std::string(c.head) + " prompt " + std::to_string(p) + " level " + std::string(IsaName(isa)));
        const Taken taken = Feed(runner, golden.Ids(p, "input_ids"), 512, c.taps);
        EXPECT_TRUE(testing::Within(golden.Tensor(p, "features"), taken.features,
                                    [](size_t) { return EagleGolden::kTolerance; }));
      }
    }
  }
}

TEST(StepFeatures, OfChunksAndWithBatchMates_AreTheSameBits_AndChangeNoLogits) {
  ModelRunner runner(EagleGolden::Folder("target"), {.threads = 2, .context = 64, .max_rows = 16});
  const std::vector<int32_t> ids = EagleGolden("eagle1").Ids(0, "input_ids");
  const std::vector<size_t> taps = {0, 2, 8, 9};
  const Taken whole = Feed(runner, ids, ids.size(), taps);
  for (const size_t chunk : {1, 3, 5}) EXPECT_TRUE(SameBits(Feed(runner, ids, chunk, taps).features, whole.features));
  EXPECT_TRUE(SameBits(Feed(runner, ids, 4, taps, 3).features, whole.features));
  EXPECT_TRUE(SameBits(Feed(runner, ids, ids.size(), {}).logits, whole.logits));
}

TEST(StepFeatures, AtTheEnds_AreTheEmbeddingAndWhatTheNormMakes) {
  ModelRunner runner(EagleGolden::Folder("target"), {.context = 64});
  const std::vector<int32_t> ids = {5, 60};
  const size_t hidden = runner.model().settings.hidden_size;
  const Taken taken = Feed(runner, ids, 2, {0, 8, 9});
  std::vector<float> expected(hidden), found(hidden);
  const auto at = [&](size_t row, size_t tap) { return taken.features.data() + (row * 3 + tap) * hidden; };
  auto threads = ThreadPool::Create(1);
  ASSERT_TRUE(threads.ok());
  auto ctx = ExecutionContext::Create(DetectIsa(), threads->get(), 0);
  ASSERT_TRUE(ctx.ok());
  for (size_t row = 0; row < ids.size(); ++row) {
    runner.model().embedding.CopyRow(static_cast<size_t>(ids[row]), expected);
    found.assign(at(row, 0), at(row, 1));
    EXPECT_TRUE(SameBits(expected, found));
    RunNorm(*ctx, runner.model().final_norm, {at(row, 1), 1, hidden}, {expected.data(), 1, hidden});
    found.assign(at(row, 2), at(row, 2) + hidden);
    EXPECT_TRUE(SameBits(expected, found));
  }
}

}  // namespace
}  // namespace tidemill::step_features_test
