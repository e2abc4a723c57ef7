// Which of several instances gets the next line of a file of requests.
#include "cli/prompt_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tidemill::cli::prompt_queue_test {
namespace {

// Eight lines and nobody who reads the results.
struct EightLines {
  explicit EightLines(size_t instances)
      : null(open("/dev/null", O_WRONLY)), queue(Lines(), "lines", signals, out, /*as_completed=*/true, instances) {}
  ~EightLines() {
    close(pipe[0]);
    close(null);
  }

  int Lines() {
    EXPECT_EQ(::pipe(pipe.data()), 0);
    constexpr std::string_view kText = "1\n2\n3\n4\n5\n6\n7\n8\n";
    EXPECT_EQ(write(pipe[1], kText.data(), kText.size()), static_cast<ssize_t>(kText.size()));
    close(pipe[1]);
    return pipe[0];
  }
  // As many lines as it gets now.
  std::vector<std::string> TakeAll(size_t instance) {
    std::vector<std::string> texts;
    while (const auto line = queue.Take(instance, false)) texts.push_back(line->text);
    return texts;
  }

  std::array<int, 2> pipe = {-1, -1};
  int null;
  SignalWatch signals;
  Output out{null, signals};
  PromptQueue queue;
};

using Texts = std::vector<std::string>;

// Whoever comes first: eight lines of two instances are four of each.
TEST(PromptQueue, InstanceThatRunsMore_LeavesLinesToTheOther) {
  EightLines lines(2);
  std::array<size_t, 2> taken = {};
  for (size_t round = 0; round < 8; ++round) {
    for (const size_t instance : {0, 1}) taken[instance] += lines.TakeAll(instance).size();
  }
  EXPECT_EQ(taken, (std::array<size_t, 2>{4, 4}));
}

TEST(PromptQueue, LineThatEnded_MakesPlaceForTheNext) {
  EightLines lines(2);
  EXPECT_EQ(lines.TakeAll(0), Texts{"1"});
  EXPECT_EQ(lines.TakeAll(0), Texts{}) << "the other one runs none";
  EXPECT_EQ(lines.TakeAll(1), (Texts{"2", "3"}));
  EXPECT_EQ(lines.TakeAll(1), Texts{});
  lines.queue.Finish(1, 2, "x");
  EXPECT_EQ(lines.TakeAll(1), Texts{"4"});
  EXPECT_EQ(lines.TakeAll(0), (Texts{"5", "6"}));
}

TEST(PromptQueue, InstanceThatLeft_LeavesAllLines) {
  EightLines lines(2);
  lines.queue.Leave(1);
  EXPECT_EQ(lines.TakeAll(0).size(), 8U);
}

}  // namespace
}  // namespace tidemill::cli::prompt_queue_test
