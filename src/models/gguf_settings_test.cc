// What a GGUF file leaves unsaid.
#include "models/settings_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>

#include "models/registry.h"
#include "tests/support/gguf_writer.h"

namespace tidemill {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

// The settings of a GGUF file that has what every model has, and what `add` adds.
Result<ModelSettings> ReadGguf(const std::string& architecture, uint32_t layers,
                               const std::function<void(GgufWriter&)>& add) {
  GgufWriter writer;
  writer.SetString("general.architecture", architecture);
  for (const auto& [key, value] : {std::pair<const char*, uint32_t>{".block_count", layers},
                                   {".context_length", 64},
                                   {".embedding_length", 8},
                                   {".feed_forward_length", 8},
                                   {".attention.head_count", 2}}) {
    writer.Set<uint32_t>(architecture + key, value);
  }
  writer.Set<float>(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddTensor("token_embd.weight", DType::kF32, {8, 3}, std::string(8 * 3 * 4, '\0'));
  add(writer);
  const std::string path = ::testing::TempDir() + "settings_" + std::to_string(getpid()) + ".gguf";
  std::ofstream(path, std::ios::binary) << writer.Build();
  const auto files = ModelFiles::Open(path);
  std::remove(path.c_str());
  if (!files.ok()) return files.error();
  return ReadModelSettings(*files);
}

Result<ModelSettings> ReadRope(const std::function<void(GgufWriter&)>& add) { return ReadGguf("llama", 2, add); }

TEST(SettingsReader, GgufRopeWithoutFactor_IsNotScaledIfLinearAndRefusedIfYarn) {
  const auto linear = ReadRope([](GgufWriter& w) { w.SetString("llama.rope.scaling.type", "linear"); });
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_EQ(linear->rope.scaling, RopeScaling::kNone);
  const auto none = ReadRope(
      [](GgufWriter& w) { w.SetString("llama.rope.scaling.type", "none").Set<float>("llama.rope.scaling.factor", 4); });
  ASSERT_TRUE(none.ok()) << none.error().message();
  EXPECT_EQ(none->rope.scaling, RopeScaling::kNone);
  const auto yarn = ReadRope([](GgufWriter& w) { w.SetString("llama.rope.scaling.type", "yarn"); });
  ASSERT_FALSE(yarn.ok());
  EXPECT_THAT(yarn.error().message(), HasSubstr("the factor of yarn scaling"));
}

TEST(SettingsReader, GgufYarn_ReadsTheKeysThatConvertersWrite) {
  const auto yarn = ReadRope([](GgufWriter& w) {
    w.SetString("llama.rope.scaling.type", "yarn").Set<float>("llama.rope.scaling.factor", 4);
    w.Set<uint32_t>("llama.rope.scaling.original_context_length", 32);
  });
  ASSERT_TRUE(yarn.ok()) << yarn.error().message();
  EXPECT_EQ(yarn->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn->rope.original_max_position_embeddings, 32);
  EXPECT_NEAR(yarn->rope.attention_factor, 0.1 * std::log(4.0) + 1, 1e-12);
}

TEST(SettingsReader, Gemma3GgufWindows_FollowThePatternOfTheFile) {
  const auto own = ReadGguf("gemma3", 5, [](GgufWriter& w) {
    w.Set<uint32_t>("gemma3.attention.sliding_window", 16);
    w.Set<uint32_t>("gemma3.attention.sliding_window_pattern", 2);
  });
  ASSERT_TRUE(own.ok()) << own.error().message();
  EXPECT_THAT(own->windows, ElementsAre(16, 0, 16, 0, 16));
  const auto usual =
      ReadGguf("gemma3", 7, [](GgufWriter& w) { w.Set<uint32_t>("gemma3.attention.sliding_window", 16); });
  ASSERT_TRUE(usual.ok()) << usual.error().message();
  EXPECT_THAT(usual->windows, ElementsAre(16, 16, 16, 16, 16, 0, 16));
  const auto none = ReadGguf("gemma3", 2, [](GgufWriter&) {});
  ASSERT_TRUE(none.ok()) << none.error().message();
  EXPECT_THAT(none->windows, ElementsAre(0, 0));
}

}  // namespace
}  // namespace tidemill
