#include "cli/messages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace tidemill::cli::messages_test {
namespace {

// What a work of three parts says, with so many seconds between notes.
std::string SaidOfThree(double seconds, bool quiet = false) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  {
    Messages messages(ends[1]);
    if (quiet) messages.set_quiet();
    ProgressLines lines(messages, "milling", "sacks", seconds);
    for (size_t done = 0; done <= 3; ++done) lines.Show(done, 3);
  }
  close(ends[1]);
  std::string said(1000, '\0');
  said.resize(static_cast<size_t>(read(ends[0], said.data(), said.size())));
  close(ends[0]);
  return said;
}

TEST(ProgressLines, WithoutATerminal_AreNotesNowAndThen) {
  EXPECT_EQ(SaidOfThree(0),
            "tidemill: note: milling: 1 of 3 sacks, about 0 s left\n"
            "tidemill: note: milling: 2 of 3 sacks, about 0 s left\n");
  EXPECT_EQ(SaidOfThree(1e9), "");
  EXPECT_EQ(SaidOfThree(0, true), "");
}

}  // namespace
}  // namespace tidemill::cli::messages_test
