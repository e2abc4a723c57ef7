// run --save-state while a long prompt is read: whatever ends the program, and whenever, the next run goes on from the last whole snapshot and
// says what an uninterrupted one says.
//
// By hand: TIDEMILL_CRASHES=50 for so many ends, TIDEMILL_SEED for other ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/fixtures_path.h"
#include "tests/support/count_by_hand.h"

namespace tidemill::testing::interrupted_prompt_test {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr size_t kWords = TIDEMILL_SLOWED_DOWN ? 20000 : 60000;  // less than a second, in many steps

const std::string kRecurrent = std::string(TIDEMILL_FIXTURES) + "/armt/recall";

std::vector<std::string> With(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string Words(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += (i % 2 == 0 ? " k" : " v") + std::to_string(random() % (i % 2 == 0 ? 128 : 32));
  return text.substr(1);
}

const std::string& Book() {
  static const std::string path = WriteFile("book.txt", Words(kWords, 1));
  return path;
}

// Drawn from nearly all tokens, so that a state that is wrong somewhere says something else.
const std::vector<std::string> kAnswer = {"-n",
                                          "20",
                                          "--ignore-eos",
                                          "--temperature",
                                          "4",
                                          "--top-k",
                                          "0",
                                          "--top-p",
                                          "1.0",
                                          "--min-p",
                                          "0",
                                          "--seed",
                                          "7",
                                          "--logprobs",
                                          "1",
                                          "--json"};

std::string StateFile(const std::string& name) { return TestFolder() + "/" + name + ".state"; }

std::vector<std::string> Save(const std::string& path) { return {"--save-state", path, "--snapshot-seconds", "0.01"}; }

struct Said {
  std::vector<json> ids, logprobs;
  std::string text;

  // False: nothing was printed.
  bool Add(const ProcessResult& result) {
    if (result.out.empty()) return false;
    const json answer = json::parse(result.out);
    ids.insert(ids.end(), answer["ids"].begin(), answer["ids"].end());
    logprobs.insert(logprobs.end(), answer["logprobs"].begin(), answer["logprobs"].end());
    text += answer["text"].get<std::string>();
    return answer["finish_reason"] != "cancelled";
  }
};

struct Whole {
  Said said;
  std::string state;
  Clock::duration time;
};

const Whole& Uninterrupted() {
  static const Whole whole = [] {
    Whole w;
    const std::string path = StateFile("whole");
    const Clock::time_point start = Clock::now();
    const ProcessResult result = RunTidemill(With(With({"run", kRecurrent, "-f", Book()}, kAnswer), Save(path)));
    w.time = Clock::now() - start;
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(w.said.Add(result));
    EXPECT_EQ(w.said.ids.size(), 20U);
    w.state = ReadWholeFile(path);
    return w;
  }();
  return whole;
}

TEST(InterruptedPrompt, SignalsAtAnyTime_LoseNothingThatWasSaved) {
  constexpr int kSignals[] = {SIGINT, SIGTERM, SIGKILL};
  const size_t crashes = CountByHand("TIDEMILL_CRASHES", 5);
  std::mt19937_64 random(1000003 * FirstSeed() + 1);
  const Whole& whole = Uninterrupted();
  size_t resumed = 0, in_prompt = 0;
  for (size_t i = 0; i < crashes;) {
    const std::string path = StateFile("crash" + std::to_string(i));
    Said said;
    bool is_done = false;
    const size_t last = std::min(crashes, i + 1 + random() % 3);  // then nothing ends a run
    while (!is_done) {
      const bool has_state = std::filesystem::exists(path);
      std::vector<std::string> run =
          With({"run", kRecurrent},
               has_state ? std::vector<std::string>{"--load-state", path} : std::vector<std::string>{"-f", Book()});
      run = With(run, {"--threads", std::to_string(1 + random() % 2)});
      run = With(With(run, has_state ? std::vector<std::string>{"--json"} : kAnswer), Save(path));
      if (has_state && said.ids.empty() && random() % 2 == 0) run = With(run, {"-f", Book()});  // the same text
      resumed += has_state ? 1 : 0;
      Process process(run);
      const int number = kSignals[random() % 3];
      const bool is_ended = i < last;
      if (is_ended) {
        if (random() % 4 != 0)
          process.WaitUntil([&] { return std::filesystem::exists(path); });  // else before there is one, too
        std::this_thread::sleep_for(whole.time * static_cast<double>(random() % 1000) / 1000);
        process.Signal(number);
        ++i;
      }
      const ProcessResult result = process.Wait();
      const std::string where = "end " + std::to_string(i) + " by signal " + std::to_string(number) + ": " + result.err;
      if (result.err.find("the answer has ended") !=
          std::string::npos) {  // killed between the saved answer and its text
        said = whole.said;
        break;
      }
      ASSERT_TRUE(is_ended || result.exit_code == 0) << result.exit_code << where;
      ASSERT_TRUE(result.exit_code == 0 || result.exit_code == 128 + number) << result.exit_code << where;
      in_prompt += result.exit_code != 0 && said.ids.empty() && result.out.empty() ? 1 : 0;
      is_done = said.Add(result);
      ASSERT_TRUE(is_done || result.exit_code != 0) << where;
    }
    const std::string where = "after end " + std::to_string(i);
    EXPECT_EQ(said.ids, whole.said.ids) << where;
    EXPECT_EQ(said.text, whole.said.text) << where;
    EXPECT_EQ(said.logprobs, whole.said.logprobs) << where;
    EXPECT_TRUE(ReadWholeFile(path) == whole.state) << where;
    if (HasFailure()) return;
  }
  std::printf("  %zu ends, %zu runs that went on, %zu without an answer\n", crashes, resumed, in_prompt);
  EXPECT_GT(resumed, 0U);
}

// A state in the middle of the book; its bytes.
std::string SaveHalf(const std::string& path) {
  Process process(
      With(With({"run", kRecurrent, "-f", Book(), "--threads", "1"}, kAnswer), Save(path)));  // a step a segment
  process.WaitUntil([&] { return std::filesystem::exists(path); });
  process.Signal(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, ContainsRegex("stopped by a signal: " + path + " has [1-9][0-9]* of the prompt's " +
                                        std::to_string(kWords) + " tokens; --load-state " + path + " goes on\n"));
  return ReadWholeFile(path);
}

TEST(InterruptedPrompt, AnotherText_IsRefusedByItsFirstToken) {
  const std::string path = StateFile("another_text");
  SaveHalf(path);
  const auto refusal = [&](const std::string& name, const std::string& text) {
    const ProcessResult result = RunTidemill({"run", kRecurrent, "--load-state", path, "-f", WriteFile(name, text)});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  const std::string book = ReadWholeFile(Book()), before = "tidemill: go on with the prompt of " + path + ": token ";
  const size_t space = book.find(' ');
  const std::string second = book.substr(space + 1, book.find(' ', space + 1) - space - 1);
  EXPECT_THAT(refusal("changed.txt", book.substr(0, space) + " k3" + book.substr(book.find(' ', space + 1))),
              HasSubstr(before + "1: expected "));
  EXPECT_THAT(refusal("changed.txt", book.substr(0, space) + " k3" + book.substr(book.find(' ', space + 1))),
              HasSubstr(second + "\", found 4 \" k3\"; give the text that was being read, or none\n"));
  EXPECT_THAT(refusal("longer.txt", book + " k3"),
              HasSubstr(before + std::to_string(kWords) + ": expected the end, found 4 \" k3\""));
  EXPECT_THAT(refusal("empty.txt", ""), HasSubstr(before + "0: expected "));
  EXPECT_THAT(refusal("shorter.txt", book.substr(0, book.rfind(' '))), HasSubstr(", found the end; give"));
}

TEST(InterruptedPrompt, FullDisk_KeepsTheSnapshotBefore) {
  const std::string path = StateFile("full_disk"), before = SaveHalf(path);
  const ProcessResult result =
      RunTidemill(With({"run", kRecurrent, "--load-state", path, "--json", "--threads", "1"}, Save(path)),
                  {.file_bytes = before.size() / 2});
  EXPECT_EQ(result.exit_code, 4);
  const std::string trouble = "save the state: " + path + ": File too large; free some and run it again";
  EXPECT_EQ(result.err, "tidemill: warning: " + trouble + "; the prompt is read on\ntidemill: " + trouble + "\n");
  Said said;
  EXPECT_TRUE(said.Add(result)) << "the answer is not lost";
  EXPECT_EQ(said.ids, Uninterrupted().said.ids);
  EXPECT_TRUE(ReadWholeFile(path) == before);
  for (const auto& entry : std::filesystem::directory_iterator(TestFolder()))
    EXPECT_EQ(entry.path().string().find("full_disk.state.part."), std::string::npos) << entry.path();
}

TEST(InterruptedPrompt, Pipe_GetsOneState) {
  const ProcessResult result = RunTidemill(With({"run", kRecurrent, "-f", Book(), "-n", "1"}, Save("/dev/stdout")));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const size_t first = result.out.find("TMILLREQ");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(result.out.find("TMILLREQ", first + 1), std::string::npos);
}

TEST(InterruptedPrompt, Terminal_ShowsHowFarItIs) {
  if (const std::string why = WhyNoTerminal(); !why.empty()) GTEST_SKIP() << why;
  const std::string long_book = WriteFile("long_book.txt", Words(10 * kWords, 2));
  Process process({"run", kRecurrent, "-f", long_book, "-n", "1"}, {.terminal = true});
  process.ReadTerminal("reading the prompt [");
  process.ReadTerminal(" of " + std::to_string(10 * kWords) + " tokens, about ");
  process.ReadTerminal(" s left");
  process.Signal(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, HasSubstr("\r\x1b[K")) << "the bar disappears";
}

// An answer that goes on has no prompt to read.
TEST(InterruptedPrompt, TerminalOfAnAnswer_ShowsNoBar) {
  if (const std::string why = WhyNoTerminal(); !why.empty()) GTEST_SKIP() << why;
  const std::string path = StateFile("no_bar");
  const std::vector<std::string> run = {"run", LongCountingModelFile(), "--save-state", path};
  EXPECT_EQ(RunTidemill(With(run, {"--raw", "-p", "hello", "-n", "3", "--temperature", "0"})).exit_code, 0);
  Process process(With(run, {"--load-state", path, "--ignore-eos", "-n", "900000"}), {.terminal = true});
  process.ReadOut(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  process.Signal(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.err.find("reading the prompt"), std::string::npos) << result.err;
}

TEST(QuestionBehindAFile, IsOnePrompt) {
  const std::string facts = WriteFile("facts.txt", "k3 v7 k9 v11 k40 v2 k5 v30 k77 v1");
  const std::vector<std::string> greedy = {"-n", "1", "--temperature", "0", "--json"};
  const auto answer = [&](const std::vector<std::string>& text) {
    const ProcessResult result = RunTidemill(With(With({"run", kRecurrent}, text), greedy));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out, nullptr, false);
  };
  const json both = answer({"-f", facts, "-p", "k9"}), one = answer({"-p", ReadWholeFile(facts) + " k9"});
  EXPECT_EQ(both["ids"], one["ids"]);
  EXPECT_EQ(both["prompt_tokens"], 11);
  const std::string path = StateFile("question");
  const std::vector<std::string> question = {"-f", Book(), "-p", "k9"};
  Process process(With(With({"run", kRecurrent, "--threads", "1"}, question), Save(path)));
  process.WaitUntil([&] { return std::filesystem::exists(path); });
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait().exit_code, 130);
  const ProcessResult other = RunTidemill({"run", kRecurrent, "--load-state", path, "-f", Book(), "-p", "k10"});
  EXPECT_THAT(other.err, HasSubstr("token " + std::to_string(kWords) + ": expected 10 \" k9\", found 11 \" k10\""));
  EXPECT_EQ(answer(With(question, {"--load-state", path}))["prompt_tokens"], kWords + 1);
}

TEST(QuestionBehindAFile, ElsewhereAndInAChat_IsAUsageError) {
  const std::string facts = WriteFile("facts.txt", "k3 v7");
  const ProcessResult elsewhere = RunTidemill({"run", CountingModelFile(), "-f", facts, "-p", "hello"});
  EXPECT_EQ(elsewhere.exit_code, 2);
  EXPECT_EQ(elsewhere.err, "tidemill: read the command line: text: expected one, found two: -p \"hello\" and -f \"" +
                               facts +
                               "\"; leave one out: a question behind a file is for models that read segments\n");
  const ProcessResult chat = RunTidemill({"run", kRecurrent, "-f", facts, "-p", "k3", "--chat"});
  EXPECT_EQ(chat.exit_code, 2);
  EXPECT_EQ(chat.err,
            "tidemill: read the command line: --chat: expected a chat of one text, found -f and -p; leave one out\n");
}

TEST(SnapshotSeconds, WithoutAFile_IsAUsageError) {
  const ProcessResult result = RunTidemill({"run", CountingModelFile(), "-p", "hello", "--snapshot-seconds", "5"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--save-state"));
}

}  // namespace
}  // namespace tidemill::testing::interrupted_prompt_test
