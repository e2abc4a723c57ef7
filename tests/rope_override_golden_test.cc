// Seeded checkpoints (tests/fixtures/families/) with a caller's rope scaling, past their own context, against transformers with the same
// (tests/fixtures/rope/README.md).
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/testing/compare.h"
#include "models/rope_override.h"
#include "tests/fixtures_path.h"
#include "tests/support/model_runner.h"

namespace tidemill::rope_override_golden_test {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;

constexpr double kTolerance = 1e-4;  // as tests/family_golden_test.cc

std::string Family(const std::string& name) { return std::string(TIDEMILL_FIXTURES) + "/families/" + name; }

nlohmann::json Golden() {
  std::ifstream file(TIDEMILL_FIXTURES "/rope/transformers.json");
  return nlohmann::json::parse(file, nullptr, false);
}

RunnerOptions OptionsWith(const RopeOverride& rope) {
  RunnerOptions options;
  options.f32 = true;
  options.context = 512;
  options.rope_scaling = rope;
  return options;
}

TEST(RopeOverrideGolden, LogitsPastTheOwnContext_MatchTransformers) {
  const auto golden = Golden();
  ASSERT_TRUE(golden.is_object()) << "tests/fixtures/rope/transformers.json is missing or no JSON";
  const std::vector<int32_t> ids = golden.at("ids");
  const std::vector<size_t> positions = golden.at("positions");
  ASSERT_FALSE(golden.at("logits").empty());
  for (const auto& golden_case : golden.at("logits")) {
    const std::string family = golden_case.at("family");
    const RopeOverride rope{golden_case.at("rope_type") == "yarn" ? RopeKind::kYarn : RopeKind::kLinear,
                            golden_case.at("factor")};
    for (const std::string& path : {Family(family), Family("gguf/" + family + ".gguf")}) {
      SCOPED_TRACE(path + " " + RopeOverrideName(rope));
      ModelRunner runner(path, OptionsWith(rope));
      ASSERT_LT(runner.model().settings.max_position_embeddings, ids.size());
      ASSERT_GE(runner.model().settings.longest_context(), ids.size());
      const size_t vocab = runner.model().settings.vocab_size;
      const auto state = runner.NewState();
      const std::vector<float> logits = runner.Feed(*state, ids, 37);
      ASSERT_EQ(logits.size(), ids.size() * vocab);
      ASSERT_EQ(golden_case.at("logits").size(), positions.size());
      for (size_t i = 0; i < positions.size(); ++i) {
        const std::vector<float> expected = golden_case.at("logits")[i];
        ASSERT_EQ(expected.size(), vocab);
        EXPECT_TRUE(testing::Within(expected, std::span(logits).subspan(positions[i] * vocab, vocab),
                                    [](size_t) { return kTolerance; }))
            << "position " << positions[i];
      }
    }
  }
}

TEST(RopeOverrideState, CheckpointOfAnotherScaling_IsRefused) {
  const std::vector<int32_t> ids = {5, 6, 7};
  const std::vector<std::optional<RopeOverride>> scalings = {std::nullopt, RopeOverride{RopeKind::kYarn, 4},
                                                             RopeOverride{RopeKind::kYarn, 5},
                                                             RopeOverride{RopeKind::kLinear, 4}};
  for (const char* family : {"qwen2", "gemma3_text", "gpt_neox"}) {
    std::vector<std::unique_ptr<ModelRunner>> runners;
    for (const auto& scaling : scalings) {
      RunnerOptions options;
      options.context = 128;
      options.rope_scaling = scaling;
      runners.push_back(std::make_unique<ModelRunner>(Family(family), options));
    }
    for (size_t from = 0; from < runners.size(); ++from) {
      const auto state = runners[from]->NewState();
      runners[from]->Feed(*state, ids, ids.size());
      const auto saved = state->Checkpoint();
      ASSERT_TRUE(saved.ok()) << saved.error().message();
      for (size_t to = 0; to < runners.size(); ++to) {
        const auto restored = runners[to]->NewState()->Restore(*saved);
        EXPECT_EQ(restored.ok(), from == to) << family << " from " << from << " to " << to;
        if (restored.ok()) continue;
        EXPECT_EQ(restored.error().code(), ErrorCode::kFailedPrecondition);
      }
    }
  }
}

}  // namespace
}  // namespace tidemill::rope_override_golden_test
