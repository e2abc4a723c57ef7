// The program refuses every malformed file of the tables with the line that its row gives.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/malformed/malformed_case.h"

namespace tidemill::testing::malformed_files_test {
namespace {

TEST(MalformedFiles, EachIsRefusedByItsLine) {
  constexpr size_t kStep = TIDEMILL_SLOWED_DOWN ? 10 : 1;
  size_t index = 0;
  for (const MalformedGroup& group : MalformedGroups()) {
    for (const MalformedCase& c : group.make()) {
      if (index++ % kStep != 0) continue;
      const std::string folder = TestFolder() + "/" + std::to_string(index);
      std::filesystem::create_directory(folder);
      const std::string path = WriteFiles(c, folder);
      const bool inspect = c.question == Question::kInspect;
      const ProcessResult result =
          inspect ? RunTidemill({"inspect", path}) : RunTidemill({"run", path, "-p", "a", "-t", "1"});
      EXPECT_EQ(result.exit_code, 1) << c.name;
      EXPECT_FALSE(result.was_killed_by_signal) << c.name;
      EXPECT_EQ(result.out, "") << c.name;
      EXPECT_EQ(result.err, "tidemill: " + ExpectedLine(c, path) + "\n") << c.name;
      std::filesystem::remove_all(folder);
    }
  }
}

}  // namespace
}  // namespace tidemill::testing::malformed_files_test
