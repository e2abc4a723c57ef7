#include "base/isa.h"

#include <gtest/gtest.h>

#include <string>

namespace tidemill {
namespace {

TEST(Isa, ParseIsa_KnowsEveryNameThisCpuRuns) {
  for (const Isa isa : KnownIsas()) {
    const auto parsed = ParseIsa(IsaName(isa));
    if (isa <= DetectIsa()) {
      ASSERT_TRUE(parsed.ok()) << parsed.error().message();
      EXPECT_EQ(*parsed, isa);
    } else {
      EXPECT_EQ(parsed.error().code(), ErrorCode::kUnsupported);
    }
  }
}

TEST(Isa, ParseIsa_UnknownName_ListsTheKnownOnes) {
  const auto parsed = ParseIsa("sse9");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(parsed.error().message().find("baseline"), std::string::npos);
}

TEST(Isa, TuningOf_TellsGenerationsByFamilyAndModel) {
  for (const unsigned model : {0x00, 0x01, 0x08, 0x0F, 0x20, 0x21, 0x30, 0x44, 0x50, 0x5F})
    EXPECT_EQ(TuningOf("AuthenticAMD", 0x19, model), Tuning::kZen3) << model;
  for (const unsigned model : {0x10, 0x11, 0x18, 0x1F, 0x60, 0x61, 0x74, 0xA0})
    EXPECT_EQ(TuningOf("AuthenticAMD", 0x19, model), Tuning::kUsual) << model;
  for (const unsigned model : {0x02, 0x11, 0x44})
    EXPECT_EQ(TuningOf("AuthenticAMD", 0x1A, model), Tuning::kZen5) << model;
  EXPECT_EQ(TuningOf("AuthenticAMD", 0x17, 0x31), Tuning::kUsual);
  EXPECT_EQ(TuningOf("GenuineIntel", 6, 207), Tuning::kIntel);
  EXPECT_EQ(TuningOf("HygonGenuine", 0x1A, 2), Tuning::kUsual);
  EXPECT_EQ(TuningOf("", 0, 0), Tuning::kUsual);
}

TEST(Isa, DefaultIsa_LeavesAnIntelsProductsOfBFloat16) {
  EXPECT_EQ(DefaultIsa(Isa::kAvx512Bf16, Tuning::kIntel), Isa::kAvx512Vnni);
  EXPECT_EQ(DefaultIsa(Isa::kAvx512Bf16, Tuning::kUsual), Isa::kAvx512Bf16);
  EXPECT_EQ(DefaultIsa(Isa::kAvx2, Tuning::kIntel), Isa::kAvx2);
  EXPECT_LE(DefaultIsa(), DetectIsa());
}

}  // namespace
}  // namespace tidemill
