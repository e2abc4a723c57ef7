#include "models/settings_reader.h"

#include <gtest/gtest.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"

namespace tidemill {
namespace {

using testing::GgufWriter;
using testing::ModelFolder;

constexpr size_t kContext = 2048;

Result<RopeSettings> RopeOfGguf(const GgufWriter& keys) {
  GgufWriter writer = keys;
  ModelFolder folder;
  folder.Write("model.gguf", writer.SetString("general.architecture", "llama").Build());
  const ModelFiles files = folder.Open();
  return ReadRopeSettings(SettingsReader(files, "llama"), "", 10000, kContext);
}

TEST(RopeSettings, GgufFactorWithoutType_IsLinear) {
  const auto rope = RopeOfGguf(GgufWriter().Set<float>("llama.rope.scaling.factor", 4));
  ASSERT_TRUE(rope.ok()) << rope.error().message();
  EXPECT_EQ(rope->scaling, RopeScaling::kLinear);
  EXPECT_EQ(rope->factor, 4);
}

TEST(RopeSettings, GgufOldKeyOfLinearScaling_IsReadWhereTheNewOneIsMissing) {
  const auto old = RopeOfGguf(GgufWriter().Set<float>("llama.rope.scale_linear", 8));
  ASSERT_TRUE(old.ok()) << old.error().message();
  EXPECT_EQ(old->scaling, RopeScaling::kLinear);
  EXPECT_EQ(old->factor, 8);

  const auto both =
      RopeOfGguf(GgufWriter().Set<float>("llama.rope.scale_linear", 8).Set<float>("llama.rope.scaling.factor", 2));
  ASSERT_TRUE(both.ok()) << both.error().message();
  EXPECT_EQ(both->factor, 2);
}

TEST(RopeSettings, GgufTypeNone_LeavesTheFactorAside) {
  const auto rope =
      RopeOfGguf(GgufWriter().SetString("llama.rope.scaling.type", "none").Set<float>("llama.rope.scaling.factor", 4));
  ASSERT_TRUE(rope.ok()) << rope.error().message();
  EXPECT_EQ(rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(rope->factor, 1);
}

TEST(RopeSettings, GgufBadOldFactor_IsNamedByItsKey) {
  const auto rope = RopeOfGguf(GgufWriter().Set<float>("llama.rope.scale_linear", 0.5f));
  ASSERT_FALSE(rope.ok());
  EXPECT_EQ(rope.error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(rope.error().message(),
            "metadata: \"llama.rope.scale_linear\": expected a number from 1 to 1e6, found 0.5");
}

}  // namespace
}  // namespace tidemill
