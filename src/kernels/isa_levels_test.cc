// Says which instruction-set levels the other tests of this program ran at: those are all that this CPU has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/isa.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill {
namespace {

TEST(IsaLevels, ThisMachine_RunsAtLeastOne) {
  const std::vector<Isa> here = testing::LevelsHere();
  std::string run, lacking;
  for (const Isa isa : KnownIsas()) {
    const bool available = std::find(here.begin(), here.end(), isa) != here.end();
    (available ? run : lacking).append(" ").append(IsaName(isa));
  }
  std::printf("instruction-set levels run:%s; not available here:%s\n", run.c_str(),
              lacking.empty() ? " none" : lacking.c_str());
  ASSERT_FALSE(here.empty());
#ifndef TIDEMILL_THREAD_SANITIZER  // which looks at the best level alone
  EXPECT_EQ(here.front(), Isa::kBaseline);
#endif
  EXPECT_EQ(here.back(), DetectIsa());
}

}  // namespace
}  // namespace tidemill
