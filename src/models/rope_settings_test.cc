#include "models/rope_settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/registry.h"
#include "models/rope_table.h"
#include "tests/fixtures_path.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::rope_settings_test {
namespace {

using testing::GgufWriter;
using testing::ModelFolder;

constexpr size_t kContext = 2048;

ModelFiles Checkpoint(const std::string& config) {
  ModelFolder folder;
  folder.Write("config.json", config).Write("model.safetensors", testing::SafetensorsWriter().Build());
  return folder.Open();
}

ModelFiles Gguf(GgufWriter writer) {
  ModelFolder folder;
  folder.Write("model.gguf", writer.SetString("general.architecture", "llama").Build());
  return folder.Open();
}

Result<RopeSettings> RopeOf(const ModelFiles& files) {
  const SettingsReader reader(files, "llama");
  TIDEMILL_TRY(place, FindRope(reader, "rope_theta", 10000));
  return ReadRopeSettings(reader, place, kContext);
}
Result<RopeSettings> RopeOf(const ModelFiles& files, const std::string& path) {
  return ReadRopeSettings(SettingsReader(files, "llama"), {.at = path, .before = "", .is_for_all_layers = false},
                          kContext);
}
Result<RopeSettings> RopeOf(const std::string& config) { return RopeOf(Checkpoint(config)); }
Result<RopeSettings> RopeOf(const GgufWriter& writer) { return RopeOf(Gguf(writer)); }

template <typename T>
void ExpectError(const Result<T>& result, ErrorCode code, const std::string& message) {
  ASSERT_FALSE(result.ok()) << "expected: " << message;
  EXPECT_EQ(result.error().code(), code) << result.error().message();
  EXPECT_EQ(result.error().message(), message);
}

// ---- rope, under the names of checkpoints ----

TEST(RopeSettings, NothingThere_IsTheDefaultBaseWithoutScaling) {
  const auto rope = RopeOf("{}");
  ASSERT_TRUE(rope.ok()) << rope.error().message();
  EXPECT_EQ(rope->theta, 10000);
  EXPECT_EQ(rope->scaling, RopeScaling::kNone);
}

TEST(RopeSettings, BothSpellings_SayTheSame) {
  for (const char* config : {R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4}})",
                             R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 4}})",
                             R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4}})",
                             R"({"rope_theta": 5e5, "rope_parameters": {"rope_type": "linear", "factor": 4}})",
                             R"({"rope_theta": 7, "rope_parameters":
                                 {"rope_theta": 5e5, "rope_type": "linear", "type": "yarn", "factor": 4}})"}) {
    const auto rope = RopeOf(config);
    ASSERT_TRUE(rope.ok()) << config << ": " << rope.error().message();
    EXPECT_EQ(rope->theta, 5e5) << config;
    EXPECT_EQ(rope->scaling, RopeScaling::kLinear) << config;
    EXPECT_EQ(rope->factor, 4) << config;
  }
}

TEST(RopeSettings, NullScaling_IsNone) {
  const auto rope = RopeOf(R"({"rope_theta": 5e5, "rope_scaling": null})");
  ASSERT_TRUE(rope.ok()) << rope.error().message();
  EXPECT_EQ(rope->theta, 5e5);
  EXPECT_EQ(rope->scaling, RopeScaling::kNone);
}

TEST(RopeSettings, PathOfALayerType_IsReadAlone) {
  const ModelFiles files = Checkpoint(
      R"({"rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8},
                              "sliding_attention": {"rope_theta": 2e4}}})");
  const auto full = RopeOf(files, "rope_parameters.full_attention");
  const auto sliding = RopeOf(files, "rope_parameters.sliding_attention");
  ASSERT_TRUE(full.ok() && sliding.ok());
  EXPECT_EQ(full->theta, 1e6);
  EXPECT_EQ(full->factor, 8);
  EXPECT_EQ(sliding->theta, 2e4);
  EXPECT_EQ(sliding->scaling, RopeScaling::kNone);
}

TEST(RopeSettings, Dynamic_CountsFromTheModelsOwnLength) {
  const auto rope =
      RopeOf(R"({"rope_scaling": {"type": "dynamic", "factor": 2, "original_max_position_embeddings": 9}})");
  ASSERT_TRUE(rope.ok()) << rope.error().message();
  EXPECT_EQ(rope->scaling, RopeScaling::kDynamic);
  EXPECT_EQ(rope->original_max_position_embeddings, kContext);
}

TEST(RopeSettings, Llama3_DefaultsAndGivenNumbers) {
  const auto given = RopeOf(R"({"rope_scaling": {"rope_type": "llama3", "factor": 32, "low_freq_factor": 2,
                                                 "high_freq_factor": 8, "original_max_position_embeddings": 8192}})");
  ASSERT_TRUE(given.ok()) << given.error().message();
  EXPECT_EQ(given->factor, 32);
  EXPECT_EQ(given->low_freq_factor, 2);
  EXPECT_EQ(given->high_freq_factor, 8);
  EXPECT_EQ(given->original_max_position_embeddings, 8192);

  const auto defaults = RopeOf(R"({"rope_scaling": {"rope_type": "llama3", "factor": 32}})");
  ASSERT_TRUE(defaults.ok()) << defaults.error().message();
  EXPECT_EQ(defaults->low_freq_factor, 1);
  EXPECT_EQ(defaults->high_freq_factor, 4);
  EXPECT_EQ(defaults->original_max_position_embeddings, kContext);
}

TEST(RopeSettings, Yarn_DefaultsAndGivenNumbers) {
  const auto defaults = RopeOf(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4}})");
  ASSERT_TRUE(defaults.ok()) << defaults.error().message();
  EXPECT_EQ(defaults->beta_fast, 32);
  EXPECT_EQ(defaults->beta_slow, 1);
  EXPECT_TRUE(defaults->truncate);
  EXPECT_EQ(defaults->original_max_position_embeddings, kContext);
  // 0.1 ln(4) + 1: what transformers 5.23.0 returns for these settings (rope_table_test.cc has the command).
  EXPECT_NEAR(defaults->attention_factor, 1.138629436111989, 1e-14);

  const auto given = RopeOf(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 8, "beta_slow": 0.5,
                                 "truncate": false, "attention_factor": 1.25, "mscale": 3, "mscale_all_dim": 4}})");
  ASSERT_TRUE(given.ok()) << given.error().message();
  EXPECT_EQ(given->beta_fast, 8);
  EXPECT_EQ(given->beta_slow, 0.5);
  EXPECT_FALSE(given->truncate);
  EXPECT_EQ(given->attention_factor, 1.25);

  // show('yarn', rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=0.8)
  const auto ratio =
      RopeOf(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4, "mscale": 1.0, "mscale_all_dim": 0.8}})");
  ASSERT_TRUE(ratio.ok()) << ratio.error().message();
  EXPECT_NEAR(ratio->attention_factor, 1.0249579607969668, 1e-14);
}

TEST(RopeSettings, WrongNumbers_AreRefusedByKey) {
  const struct {
    const char* config;
    ErrorCode code;
    const char* message;
  } cases[] = {
      {R"({"rope_theta": 1})", ErrorCode::kCorruptFile,
       R"(config.json: "rope_theta": expected a number above 1 and below 1e+12, found 1)"},
      {R"({"rope_theta": 1e12})", ErrorCode::kCorruptFile,
       R"(config.json: "rope_theta": expected a number above 1 and below 1e+12, found 1e+12)"},
      {R"({"rope_theta": -10000})", ErrorCode::kCorruptFile,
       R"(config.json: "rope_theta": expected a number above 1 and below 1e+12, found -10000)"},
      {R"({"rope_parameters": {"rope_theta": 0.5, "rope_type": "yarn", "factor": 2}})", ErrorCode::kCorruptFile,
       R"(config.json: "rope_parameters.rope_theta": expected a number above 1 and below 1e+12, found 0.5)"},
      {R"({"rope_scaling": {"type": "longrope", "factor": 2}})", ErrorCode::kUnsupported,
       R"(config.json: "rope_scaling.type": expected default, linear, dynamic, llama3 or yarn, found "longrope")"},
      {R"({"rope_scaling": {"type": "linear"}})", ErrorCode::kCorruptFile,
       R"(config.json: "rope_scaling.factor": expected the factor of linear scaling, found nothing)"},
      {R"({"rope_scaling": {"type": "linear", "factor": 0.5}})", ErrorCode::kCorruptFile,
       R"(config.json: "rope_scaling.factor": expected a number from 1 to 1e6, found 0.5)"},
      {R"({"rope_scaling": {"type": "llama3", "factor": 8, "original_max_position_embeddings": 0}})",
       ErrorCode::kCorruptFile,
       R"(config.json: "rope_scaling.original_max_position_embeddings": expected a number above 0 and below 1e+12, found 0)"},
      {R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 0}})", ErrorCode::kCorruptFile,
       R"(config.json: "rope_scaling.low_freq_factor": expected a number above 0 and below 1e+06, found 0)"},
      {R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}})",
       ErrorCode::kCorruptFile,
       R"(config.json: "rope_scaling.high_freq_factor": expected more than low_freq_factor = 4, found 4)"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": -1}})", ErrorCode::kCorruptFile,
       R"(config.json: "rope_scaling.beta_fast": expected a number above 0 and below 1e+06, found -1)"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "beta_slow": 1e300}})", ErrorCode::kCorruptFile,
       R"(config.json: "rope_scaling.beta_slow": expected a number above 0 and below 1e+06, found 1e+300)"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "attention_factor": 0}})", ErrorCode::kCorruptFile,
       R"(config.json: "rope_scaling.attention_factor": expected a number above 0 and below 1e+06, found 0)"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 1e308, "mscale_all_dim": 1}})",
       ErrorCode::kCorruptFile,
       R"(config.json: "rope_scaling.mscale": expected with mscale_all_dim = 1 a ratio above 0 and below 1e+06, found 1e+308: 1.21751e+307)"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": -100, "mscale_all_dim": 1}})",
       ErrorCode::kCorruptFile,
       R"(config.json: "rope_scaling.mscale": expected with mscale_all_dim = 1 a ratio above 0 and below 1e+06, found -100: -11.2969)"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.config);
    ExpectError(RopeOf(c.config), c.code, c.message);
  }
}

// ---- rope, under the names of GGUF files ----

TEST(RopeSettings, GgufYarn_MultipliesItsFactor) {
  const auto rope = RopeOf(GgufWriter()
                               .Set<float>("llama.rope.freq_base", 5e5f)
                               .SetString("llama.rope.scaling.type", "yarn")
                               .Set<float>("llama.rope.scaling.factor", 4)
                               .Set<uint32_t>("llama.rope.scaling.original_context_length", 512)
                               .Set<float>("llama.rope.scaling.attn_factor", 2));
  ASSERT_TRUE(rope.ok()) << rope.error().message();
  EXPECT_EQ(rope->theta, 5e5);
  EXPECT_EQ(rope->scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope->factor, 4);
  EXPECT_EQ(rope->original_max_position_embeddings, 512);
  EXPECT_NEAR(rope->attention_factor, 2 * 1.138629436111989, 1e-14);  // as llama.cpp: times 0.1 ln(factor) + 1

  const auto usual =
      RopeOf(GgufWriter().SetString("llama.rope.scaling.type", "yarn").Set<float>("llama.rope.scaling.factor", 4));
  ASSERT_TRUE(usual.ok()) << usual.error().message();
  EXPECT_NEAR(usual->attention_factor, 1.138629436111989, 1e-14);
}

TEST(RopeSettings, GgufYarnKeysWithoutOneMeaning_AreRefusedUnlessTheyAreOne) {
  for (const std::string name : {"yarn_ext_factor", "yarn_attn_factor"}) {
    const std::string key = "llama.rope.scaling." + name;
    const auto yarn = [&](float value) {
      return RopeOf(GgufWriter()
                        .SetString("llama.rope.scaling.type", "yarn")
                        .Set<float>("llama.rope.scaling.factor", 4)
                        .Set<float>(key, value));
    };
    const auto one = yarn(1);
    ASSERT_TRUE(one.ok()) << one.error().message();
    EXPECT_NEAR(one->attention_factor, 1.138629436111989, 1e-14);
    ExpectError(yarn(0.5f), ErrorCode::kUnsupported, "metadata: \"" + key + "\": expected 1, found 0.5");
  }
}

TEST(RopeSettings, GgufFactorWithoutType_IsLinear) {
  const auto rope = RopeOf(GgufWriter().Set<float>("llama.rope.scaling.factor", 4));
  ASSERT_TRUE(rope.ok()) << rope.error().message();
  EXPECT_EQ(rope->scaling, RopeScaling::kLinear);
  EXPECT_EQ(rope->factor, 4);
}

TEST(RopeSettings, GgufOldKeyOfLinearScaling_IsReadWhereTheNewOneIsMissing) {
  const auto old = RopeOf(GgufWriter().Set<float>("llama.rope.scale_linear", 8));
  ASSERT_TRUE(old.ok()) << old.error().message();
  EXPECT_EQ(old->scaling, RopeScaling::kLinear);
  EXPECT_EQ(old->factor, 8);

  const auto both =
      RopeOf(GgufWriter().Set<float>("llama.rope.scale_linear", 8).Set<float>("llama.rope.scaling.factor", 2));
  ASSERT_TRUE(both.ok()) << both.error().message();
  EXPECT_EQ(both->factor, 2);
}

TEST(RopeSettings, GgufTypeNone_LeavesTheFactorAside) {
  const auto rope =
      RopeOf(GgufWriter().SetString("llama.rope.scaling.type", "none").Set<float>("llama.rope.scaling.factor", 4));
  ASSERT_TRUE(rope.ok()) << rope.error().message();
  EXPECT_EQ(rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(rope->factor, 1);
}

TEST(RopeSettings, GgufBadOldFactor_IsNamedByItsKey) {
  const auto rope = RopeOf(GgufWriter().Set<float>("llama.rope.scale_linear", 0.5f));
  ASSERT_FALSE(rope.ok());
  EXPECT_EQ(rope.error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(rope.error().message(),
            "metadata: \"llama.rope.scale_linear\": expected a number from 1 to 1e6, found 0.5");
}

TEST(RopeSettings, GgufWithoutFactor_IsNotScaledIfLinearAndRefusedIfYarn) {
  const auto linear = RopeOf(GgufWriter().SetString("llama.rope.scaling.type", "linear"));
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_EQ(linear->scaling, RopeScaling::kNone);
  ExpectError(RopeOf(GgufWriter().SetString("llama.rope.scaling.type", "yarn")), ErrorCode::kCorruptFile,
              "metadata: \"llama.rope.scaling.factor\": expected the factor of yarn scaling, found nothing");
}

// ---- all shapes of the keys, against transformers (tests/fixtures/rope/README.md) ----

struct Golden {
  nlohmann::json base;
  std::vector<nlohmann::json> cases;
};

Golden ReadGolden() {
  std::ifstream file(TIDEMILL_FIXTURES "/rope/keys.json");
  Golden golden;
  std::string line;
  if (std::getline(file, line)) golden.base = nlohmann::json::parse(line).at("base");
  while (std::getline(file, line)) golden.cases.push_back(nlohmann::json::parse(line));
  EXPECT_GT(golden.cases.size(), 30U) << "tests/fixtures/rope/keys.json is missing or short";
  return golden;
}

void ExpectRope(const RopeSettings& rope, size_t rotary_dim, const nlohmann::json& expected) {
  const std::vector<double> theirs = expected.at("inv_freq");
  const RopeTable ours = MakeRopeTable(rope, rotary_dim);
  ASSERT_EQ(ours.inv_freq.size(), theirs.size());
  for (size_t i = 0; i < theirs.size(); ++i)
    EXPECT_NEAR(static_cast<double>(ours.inv_freq[i]), theirs[i], 64 * 0x1p-24 * theirs[i]) << "dimension " << i;
  EXPECT_NEAR(rope.attention_factor, expected.at("attention_factor").get<double>(), 1e-7);
}

TEST(RopeKeys, EveryShape_IsReadAsTransformersReadsItOrRefused) {
  const Golden golden = ReadGolden();
  for (const nlohmann::json& c : golden.cases) {
    nlohmann::json config = golden.base;
    config["model_type"] = c.at("family");
    config.update(c.at("config"));
    SCOPED_TRACE(c.at("family").get<std::string>() + " " + c.at("config").dump());
    const auto settings = ReadModelSettings(Checkpoint(config.dump()));
    if (c.contains("refused")) {
      ASSERT_FALSE(settings.ok());
      const std::string key = "config.json: \"" + c.at("refused").get<std::string>() + "\": expected ";
      EXPECT_TRUE(settings.error().message().starts_with(key)) << settings.error().message();
      continue;
    }
    ASSERT_TRUE(settings.ok()) << settings.error().message();
    const nlohmann::json& ropes = c.at("ropes");
    ExpectRope(settings->rope, settings->rotary_dim, ropes.contains("all") ? ropes["all"] : ropes["full_attention"]);
    if (!ropes.contains("all")) ExpectRope(settings->local_rope, settings->rotary_dim, ropes["sliding_attention"]);
  }
}

// What transformers leaves aside stays unread, so that it is named.
TEST(RopeKeys, WhatIsLeftAside_StaysUnread) {
  const struct {
    const char* config;
    std::vector<std::string> unread;
  } cases[] = {
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 5e5}})",
       {"rope_parameters.rope_theta"}},
      {R"({"rope_theta": 7e5, "rope_parameters": {"rope_theta": 5e5}})", {"rope_theta"}},
      {R"({"rope_theta": 5e5, "rope_parameters": {"rope_theta": 5e5}})", {}},
      {R"({"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2, "beta_fast": 3}})",
       {"rope_scaling.type", "rope_scaling.beta_fast"}},
      {R"({"rope_scaling": {}, "rope_parameters": {"rope_type": "default"}})", {}},
  };
  for (const auto& c : cases) {
    const ModelFiles files = Checkpoint(c.config);
    ASSERT_TRUE(RopeOf(files).ok()) << c.config;
    std::vector<std::string> unread;
    for (const JsonValue& value : files.config()->Unread()) unread.push_back(value.path());
    EXPECT_EQ(unread, c.unread) << c.config;
  }
}

}  // namespace
}  // namespace tidemill::rope_settings_test
