#include "base/isa.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace tidemill::isa_test {
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

TEST(Isa, ProcessorOf_ReadsTheRegistersOfCpuid) {
  // "Auth", "enti", "cAMD"; "Genu", "ineI", "ntel"
  constexpr uint32_t kAmd[] = {0x68747541, 0x69746E65, 0x444D4163}, kIntel[] = {0x756E6547, 0x49656E69, 0x6C65746E};
  const auto of = [](const uint32_t(&maker)[3], uint32_t signature) {
    const Processor found = ProcessorOf(maker[0], maker[1], maker[2], signature);
    return std::tuple(found.maker, found.family, found.model);
  };
  EXPECT_EQ(of(kAmd, 0x00A00F11), std::tuple("AuthenticAMD", 0x19U, 0x01U));  // Zen 3
  EXPECT_EQ(of(kAmd, 0x00A10F11), std::tuple("AuthenticAMD", 0x19U, 0x11U));  // Zen 4
  EXPECT_EQ(of(kAmd, 0x00B00F21), std::tuple("AuthenticAMD", 0x1AU, 0x02U));  // Zen 5
  EXPECT_EQ(of(kIntel, 0x000C06F2), std::tuple("GenuineIntel", 6U, 207U));    // Emerald Rapids
  EXPECT_EQ(of(kIntel, 0x00000513), std::tuple("GenuineIntel", 5U, 1U));      // no extended model
}

TEST(Isa, TuningOf_TellsGenerationsByFamilyAndModel) {
  for (const unsigned model : {0x00, 0x01, 0x08, 0x0F, 0x20, 0x21, 0x30, 0x44, 0x50, 0x5F})
    EXPECT_EQ(TuningOf({"AuthenticAMD", 0x19, model}), Tuning::kZen3) << model;
  for (const unsigned model : {0x10, 0x11, 0x18, 0x1F, 0x60, 0x61, 0x74, 0xA0})
    EXPECT_EQ(TuningOf({"AuthenticAMD", 0x19, model}), Tuning::kUsual) << model;
  for (const unsigned model : {0x02, 0x11, 0x44})
    EXPECT_EQ(TuningOf({"AuthenticAMD", 0x1A, model}), Tuning::kZen5) << model;
  EXPECT_EQ(TuningOf({"AuthenticAMD", 0x17, 0x31}), Tuning::kUsual);
  EXPECT_EQ(TuningOf({"GenuineIntel", 6, 207}), Tuning::kIntel);
  EXPECT_EQ(TuningOf({"HygonGenuine", 0x1A, 2}), Tuning::kUsual);
  EXPECT_EQ(TuningOf({"", 0, 0}), Tuning::kUsual);
}

TEST(Isa, DefaultIsa_LeavesAnIntelsProductsOfBFloat16) {
  EXPECT_EQ(DefaultIsa(Isa::kAvx512Bf16, Tuning::kIntel), Isa::kAvx512Vnni);
  EXPECT_EQ(DefaultIsa(Isa::kAvx512Bf16, Tuning::kUsual), Isa::kAvx512Bf16);
  EXPECT_EQ(DefaultIsa(Isa::kAvx2, Tuning::kIntel), Isa::kAvx2);
  EXPECT_LE(DefaultIsa(), DetectIsa());
}

}  // namespace
}  // namespace tidemill::isa_test
