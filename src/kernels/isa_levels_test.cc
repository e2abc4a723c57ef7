// Says which instruction-set levels the tests run at, and which not.
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "base/isa.h"
#include "base/testing/levels.h"

namespace tidemill::isa_levels_test {
namespace {

TEST(IsaLevels, ThisMachine_RunsAtLeastOne) {
  const std::vector<Isa> here = testing::LevelsHere();
  std::printf("%s\n", testing::DescribeLevels().c_str());
  ASSERT_FALSE(here.empty());
  if (testing::ChosenLevels() != "best") {
    EXPECT_EQ(here.front(), Isa::kBaseline);
  }
  EXPECT_EQ(here.back(), DetectIsa());
}

}  // namespace
}  // namespace tidemill::isa_levels_test
