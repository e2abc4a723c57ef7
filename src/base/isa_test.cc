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

}  // namespace
}  // namespace tidemill
