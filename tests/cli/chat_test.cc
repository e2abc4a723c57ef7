// chat: what a conversation keeps, and what happens when the context is full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"

namespace tidemill::testing::chat_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Of a model with a context of 256 tokens, answers of 12.
ProcessResult ChatOf(const std::string& input, std::vector<std::string> flags = {}) {
  flags.insert(flags.begin(), {"chat", CountingModelFile(), "-n", "12", "--ignore-eos", "--allow-repetition"});
  return RunTidemill(flags, {.input = input});
}

std::string Turns(size_t count) {
  std::string input;
  for (size_t i = 0; i < count; ++i) input += "message " + std::to_string(i) + " with some more words\n";
  return input;
}

TEST(Chat, FullContext_LetsTheOldestTurnsLeave) {
  const std::string saved = WriteFile("conversation.json", "");
  const ProcessResult result = ChatOf(Turns(30) + "/save " + saved + "\n", {"--system", "a word"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 30);
  EXPECT_THAT(result.err, HasSubstr("of the context of 256 tokens; when it is full the oldest turns leave it"));
  EXPECT_THAT(result.err, HasSubstr("left the context of 256 tokens; /save still writes them"));
  const auto messages = nlohmann::json::parse(ReadWholeFile(saved), nullptr, false);
  ASSERT_EQ(messages.size(), 61U);  // all turns, and the system message
  EXPECT_EQ(messages[1]["content"], "message 0 with some more words");
}

TEST(Chat, FullContextThatStops_IsAnErrorThatSaysWhatToDo) {
  const ProcessResult result = ChatOf(Turns(30), {"--context-full", "stop"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("when it is full answers end, and /reset starts over"));
  EXPECT_THAT(result.err, HasSubstr("tokens: the context holds 256; /reset starts over, --context-full drop"));
  EXPECT_THAT(result.err, Not(HasSubstr("left the context")));
}

TEST(Chat, LoadedSystemMessages_Stay) {
  nlohmann::json messages = {{{"role", "system"}, {"content", "a parrot"}, {"name", "x"}},
                             {{"role", "system"}, {"content", "that sings"}}};
  for (int i = 0; i < 300; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(300, 'y')}});
  }
  const std::string loaded = WriteFile("long.json", messages.dump()), saved = WriteFile("after.json", "");
  const ProcessResult result = ChatOf("/load " + loaded + "\n/system\nhi\n/save  " + saved + "\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("a parrot\nthat sings\n"));
  EXPECT_THAT(result.err, HasSubstr("300 messages, left the context"));
  const auto after = nlohmann::json::parse(ReadWholeFile(saved), nullptr, false);
  ASSERT_EQ(after.size(), 304U);
  EXPECT_EQ(after[0], messages[0]);
}

TEST(Chat, StatsAfterReset_AreNone) {
  const ProcessResult result = ChatOf("a\n/reset\n/stats\n");
  EXPECT_THAT(result.err, HasSubstr("no answer yet"));
}

TEST(Chat, MessageThatNeverFits_IsAnErrorAndNothingLeaves) {
  const ProcessResult result = ChatOf("a\n" + std::string(2000, 'x') + "\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("the context holds 256"));
  EXPECT_THAT(result.err, Not(HasSubstr("left the context")));
}

TEST(Chat, Turns_BeginWithThoseBefore_UntilReset) {
  const std::string stats = "/stats\n";
  const ProcessResult kept = ChatOf(Turns(4) + stats), reset = ChatOf(Turns(4) + "/reset\n" + Turns(4) + stats);
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
  EXPECT_THAT(kept.err, HasSubstr("states 1, hits 3, evictions 0"));
  EXPECT_THAT(reset.err, HasSubstr("states 1, hits 6, evictions 0")) << "the first of each four finds nothing";
  EXPECT_THAT(kept.err, HasSubstr(" of 256 tokens\n"));
  const ProcessResult off = ChatOf(Turns(4) + stats, {"--prefix-cache", "off"});
  EXPECT_THAT(off.err, HasSubstr("states 0, hits 0"));
  EXPECT_EQ(off.out, kept.out);
  EXPECT_EQ(reset.out, kept.out + kept.out);
}

}  // namespace
}  // namespace tidemill::testing::chat_test
