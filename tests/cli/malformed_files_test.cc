// The program refuses every malformed file of the tables with the line that its row gives.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/malformed/malformed_case.h"

namespace tidemill::testing::malformed_files_test {
namespace {

ProcessResult Ask(const MalformedCase& c, const std::string& path) {
  switch (c.question) {
    case Question::kInspect: return RunTidemill({"inspect", path});
    case Question::kLoad: return RunTidemill({"run", path, "-p", "a", "-t", "1"});
    case Question::kText: return RunTidemill({"tokenize", path, "a"});
    case Question::kRender:
      return RunTidemill({"tokenize", CountingModelFile(), "--chat", "-", "--render", "--chat-template", path},
                         {.input = kOneMessage});
  }
  return {};
}

TEST(MalformedFiles, EachIsRefusedByItsLine) {
  constexpr size_t kStep = TIDEMILL_SLOWED_DOWN ? 10 : 1;
  size_t index = 0;
  for (const MalformedGroup& group : MalformedGroups()) {
    for (const MalformedCase& c : group.make()) {
      if (index++ % kStep != 0) continue;
      const std::string folder = TestFolder() + "/" + std::to_string(index);
      std::filesystem::create_directory(folder);
      const std::string path = WriteFiles(c, folder);
      const ProcessResult result = Ask(c, path);
      EXPECT_EQ(result.exit_code, c.code == kInvalid ? 2 : 1) << c.name;
      EXPECT_FALSE(result.was_killed_by_signal) << c.name;
      EXPECT_EQ(result.out, "") << c.name;
      const std::string line = ExpectedLine(c, path);
      const bool names_flag = c.question == Question::kRender && line.starts_with("parse ");
      const std::string flag = names_flag ? "render the chat: --chat-template \"" + path + "\": " : "";
      EXPECT_EQ(result.err, "tidemill: " + flag + line + "\n") << c.name;
      std::filesystem::remove_all(folder);
    }
  }
}

}  // namespace
}  // namespace tidemill::testing::malformed_files_test
