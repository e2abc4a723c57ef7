#include "cli/messages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace tidemill::cli::messages_test {
namespace {

// What a work of three parts says, with so many seconds between notes.
std::string SaidOfThree(double seconds, bool quiet = false, size_t first = 0) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  {
    Messages messages(ends[1]);
    if (quiet) messages.set_quiet();
    ProgressLines lines(messages, "milling", "sacks", seconds, first);
    for (size_t done = first; done <= 3; ++done) lines.Show(done, 3);
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
  EXPECT_EQ(SaidOfThree(0, false, 1), "tidemill: note: milling: 2 of 3 sacks, about 0 s left\n");
  EXPECT_EQ(SaidOfThree(1e9), "");
  EXPECT_EQ(SaidOfThree(0, true), "");
}

TEST(ProgressLines, Count_SaysTheTimeOnceItIsKnown) {
  Messages messages(-1);
  const ProgressLines lines(messages, "milling", "sacks", 30, 1);
  EXPECT_EQ(lines.Count(1, 3), "1 of 3 sacks");
  EXPECT_EQ(lines.Count(2, 3), "2 of 3 sacks, about 0 s left");
}

}  // namespace
}  // namespace tidemill::cli::messages_test
