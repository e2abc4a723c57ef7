// A caller's rope scaling against transformers (tests/fixtures/rope/README.md), and what it replaces.
#include "models/rope_override.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "models/rope_table.h"
#include "tests/fixtures_path.h"

namespace tidemill::rope_override_test {
namespace {

// A power and a ramp in f32: the ramp of 64 dimensions or less is off by 2^-24, a frequency after it by 64 times that at most.
constexpr double kTolerance = 64 * 0x1p-24;

ModelSettings RotarySettings(size_t context) {
  ModelSettings settings;
  settings.architecture = "llama";
  settings.head_dim = settings.rotary_dim = 64;
  settings.max_position_embeddings = context;
  return settings;
}

TEST(RopeOverride, Tables_MatchTransformers) {
  std::ifstream file(TIDEMILL_FIXTURES "/rope/transformers.json");
  const auto golden = nlohmann::json::parse(file, nullptr, false);
  ASSERT_TRUE(golden.is_object()) << "tests/fixtures/rope/transformers.json is missing or no JSON";
  ASSERT_FALSE(golden.at("tables").empty());
  for (const auto& table : golden.at("tables")) {
    ModelSettings settings = RotarySettings(table.at("max_position_embeddings"));
    settings.rotary_dim = table.at("rotary_dim");
    settings.rope.theta = table.at("rope_theta");
    const RopeOverride wanted{table.at("rope_type") == "yarn" ? RopeKind::kYarn : RopeKind::kLinear,
                              table.at("factor")};
    SCOPED_TRACE(table.at("model").get<std::string>() + " " + RopeOverrideName(wanted));
    ASSERT_TRUE(OverrideRope(wanted, settings).ok());
    const RopeTable ours = MakeRopeTable(settings.rope, settings.rotary_dim);
    const std::vector<double> theirs = table.at("inv_freq");
    ASSERT_EQ(ours.inv_freq.size(), theirs.size());
    for (size_t i = 0; i < theirs.size(); ++i)
      EXPECT_NEAR(static_cast<double>(ours.inv_freq[i]), theirs[i], kTolerance * theirs[i]) << "dimension " << i;
    EXPECT_NEAR(settings.rope.attention_factor, table.at("attention_factor").get<double>(), 1e-12);
  }
}

TEST(RopeOverride, FilesOwnScaling_IsReplacedButForItsBaseAndTheLocalRope) {
  ModelSettings settings = RotarySettings(4096);
  settings.rope = {.theta = 5e5,
                   .scaling = RopeScaling::kLlama3,
                   .factor = 8,
                   .original_max_position_embeddings = 512,
                   .low_freq_factor = 2,
                   .high_freq_factor = 5,
                   .beta_fast = 16,
                   .beta_slow = 2,
                   .attention_factor = 3,
                   .truncate = false};
  settings.local_rope = {.theta = 1e4, .scaling = RopeScaling::kLinear, .factor = 2};
  ASSERT_TRUE(OverrideRope({RopeKind::kYarn, 4}, settings).ok());
  const RopeSettings& rope = settings.rope;
  EXPECT_EQ(rope.theta, 5e5);
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.factor, 4);
  EXPECT_EQ(rope.original_max_position_embeddings, 4096);
  EXPECT_EQ(rope.beta_fast, 32);
  EXPECT_EQ(rope.beta_slow, 1);
  EXPECT_NEAR(rope.attention_factor, 1.138629436111989, 1e-15);
  EXPECT_TRUE(rope.truncate);
  EXPECT_EQ(settings.local_rope.theta, 1e4);
  EXPECT_EQ(settings.local_rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(settings.local_rope.factor, 2);

  ASSERT_TRUE(OverrideRope({RopeKind::kLinear, 2}, settings).ok());
  EXPECT_EQ(settings.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(settings.rope.factor, 2);
  EXPECT_EQ(settings.rope.attention_factor, 1);
}

TEST(RopeOverride, LongestContext_IsTheFactorTimesTheModelsRoundedDown) {
  const auto longest = [](size_t context, double factor) {
    ModelSettings settings = RotarySettings(context);
    EXPECT_EQ(settings.longest_context(), context);
    EXPECT_TRUE(OverrideRope({RopeKind::kYarn, factor}, settings).ok());
    EXPECT_EQ(settings.max_position_embeddings, context);
    return settings.longest_context();
  };
  EXPECT_EQ(longest(32768, 4), 131072U);
  EXPECT_EQ(longest(100, 1.299), 129U);
  EXPECT_EQ(longest(1, 1.5), 1U);
  EXPECT_EQ(longest(size_t{1} << 20, 1024), size_t{1} << 30);
  EXPECT_EQ(longest(size_t{1} << 30, 1024), size_t{1} << 30);  // positions stay below 2^30
}

TEST(RopeOverride, FactorsOutOfRange_AreRefused) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double factor : {1.0, 0.5, 0.0, -4.0, std::nextafter(1024.0, 2000.0), infinity, -infinity, std::nan("")}) {
    ModelSettings settings = RotarySettings(4096);
    const auto result = OverrideRope({RopeKind::kLinear, factor}, settings);
    ASSERT_FALSE(result.ok()) << factor;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(result.error().message().find("expected a factor above 1 and at most 1024, found "), std::string::npos)
        << result.error().message();
    EXPECT_EQ(settings.rope.scaling, RopeScaling::kNone);
  }
}

TEST(RopeOverride, LearnedPositions_AreUnsupported) {
  ModelSettings settings = RotarySettings(128);
  settings.architecture = "opt";
  settings.rotary_dim = 0;
  const auto result = OverrideRope({RopeKind::kYarn, 4}, settings);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(
      result.error().message(),
      "--rope-scaling yarn=4: expected a model with rotary positions, found opt with a learned vector for each of "
      "its 128 positions; leave the flag out");
}

}  // namespace
}  // namespace tidemill::rope_override_test
