// Readers that go away, disks that are full, signals, terminals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"

namespace tidemill::testing::streams_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// An answer that goes on for minutes.
std::vector<std::string> EndlessRun() {
  return {"run", LongCountingModelFile(), "--raw", "-p", "hello", "--ignore-eos", "-n", "400000"};
}

TEST(Signals, SigintWhileGenerating_PrintsWhatThereIsAndExits130) {
  Process process(EndlessRun());
  process.ReadOut(100);
  process.Signal(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_FALSE(result.was_killed_by_signal);
  EXPECT_GE(result.out.size(), 100U);
  EXPECT_EQ(result.err, "");
}

TEST(Signals, SigtermWhileGenerating_Exits143) {
  Process process(EndlessRun());
  process.ReadOut(100);
  process.Signal(SIGTERM);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_FALSE(result.was_killed_by_signal);
  EXPECT_EQ(result.err, "");
}

TEST(Signals, SigintWhileWaitingForInput_Exits130) {
  if (const std::string why = WhyNoTerminal(); !why.empty()) GTEST_SKIP() << why;
  Process process({"chat", CountingModelFile(), "--log-level", "info"}, {.terminal = true});
  process.ReadTerminal(">>> ");
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait().exit_code, 130);
}

TEST(Signals, ReaderThatStopsReading_DoesNotKeepTheProgram) {
  for (const int number : {SIGINT, SIGTERM}) {
    Process process(EndlessRun(), {.small_pipe = true});
    process.WaitUntilPipeIsFull();
    process.Signal(number);
    process.WaitForEnd();
    const ProcessResult result = process.Wait();
    EXPECT_EQ(result.exit_code, 128 + number);
    EXPECT_FALSE(result.was_killed_by_signal);
    EXPECT_EQ(result.err, "");
  }
}

TEST(Signals, ChatWhoseReaderStopsReading_Ends) {
  Process process({"chat", LongCountingModelFile(), "--ignore-eos", "-n", "400000"},
                  {.input = "hello\n", .small_pipe = true});
  process.WriteInput();
  process.WaitUntilPipeIsFull();
  process.Signal(SIGINT);
  process.WaitForEnd();
  EXPECT_EQ(process.Wait().exit_code, 130);
}

TEST(Signals, SigintWhileJsonIsWritten_LosesNothing) {
  Process process(
      {"run", CountingModelFile(), "--raw", "-p", "hello", "--ignore-eos", "-n", "200", "--json", "--logprobs", "20"},
      {.small_pipe = true});
  process.WaitUntilPipeIsFull();
  process.Signal(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  const auto answer = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(answer.is_object()) << result.out;
  EXPECT_EQ(answer["generated_tokens"], 200);
  EXPECT_EQ(answer["finish_reason"], "length");
  EXPECT_EQ(answer["logprobs"].size(), 200U);
}

TEST(Signals, SigtermWhileLogitsAreComputed_EndsBeforeTheLastPosition) {
  std::string ids = "[1";
  for (int i = 0; i < 400'000; ++i) ids += ",1";  // takes minutes
  ids += "]";
  const std::string folder = TestFolder() + "/half_logits";
  std::filesystem::create_directory(folder);
  for (const bool last_only : {false, true}) {
    std::vector<std::string> arguments = {"logits", LongCountingModelFile(),
                                          "--ids",  WriteFile("many_ids.json", ids),
                                          "--out",  folder + "/out.safetensors"};
    if (last_only) arguments.push_back("--last-only");
    Process process(arguments);
    process.WaitUntil([&] { return !std::filesystem::is_empty(folder); });  // it is open, and it begins
    process.Signal(SIGTERM);
    const ProcessResult result = process.Wait();
    EXPECT_EQ(result.exit_code, 143);
    EXPECT_EQ(result.err, "");
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
}

TEST(Signals, MappedFileThatShrinks_IsAnErrorLine) {
  const std::string path = WriteFile("shrinks.gguf", ReadWholeFile(LongCountingModelFile()));
  Process process({"run", path, "--raw", "-p", "hello", "--ignore-eos", "-n", "400000", "--weights", "mapped"});
  process.ReadOut(100);
  std::filesystem::resize_file(path, 4096);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_FALSE(result.was_killed_by_signal);
  EXPECT_GE(result.out.size(), 100U);
  EXPECT_EQ(result.err,
            "tidemill: read a mapped file (the model, or a saved state): it became shorter or unreadable while it was "
            "in use; "
            "start again with the whole file\n");
}

// It has answered and waits for input, or soon will. In a step, ThreadSanitizer often holds a lock of its own, for which signal() in the
// handler would wait for ever.
TEST(Signals, SigbusFromOutside_EndsTheProcess) {
  Process process({"run", CountingModelFile(), "--raw", "--prompts", "-"},
                  {.input = "{\"prompt\": \"hello\", \"max_new_tokens\": 1}\n"});
  process.ReadOutBeforeEnd(10);
  process.Signal(SIGBUS);
  const ProcessResult result = process.Wait();
  EXPECT_TRUE(result.was_killed_by_signal);
  EXPECT_EQ(result.exit_code, 128 + SIGBUS);
  EXPECT_EQ(result.err.find("tidemill"), std::string::npos) << result.err;  // an emulator may say what it saw
}

TEST(Streams, ReaderThatGoesAway_EndsQuietlyWith141) {
  Process process(EndlessRun());
  process.ReadOut(100);
  process.CloseReader();
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 141);
  EXPECT_FALSE(result.was_killed_by_signal);
  EXPECT_EQ(result.err, "");
}

TEST(Streams, NoReaderAtAll_EndsQuietlyWith141) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"run", CountingModelFile(), "hello", "-n", "3"},
                                             {"run", CountingModelFile(), "hello", "-n", "3", "--json"},
                                             {"inspect", CountingModelFile()},
                                             {"tokenize", CountingModelFile(), "hello"},
                                             {"run", "--help"},
                                             {"--help"}}) {
    const ProcessResult result = RunTidemill(arguments, {.closed_reader = true});
    EXPECT_EQ(result.exit_code, 141) << arguments[0];
    EXPECT_EQ(result.err, "");
  }
}

TEST(Streams, FullDisk_Exits4) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"run", CountingModelFile(), "hello", "-n", "3"},
                                             {"inspect", CountingModelFile(), "--json"},
                                             {"detokenize", CountingModelFile(), "70"},
                                             {"--version"}}) {
    const ProcessResult result = RunTidemill(arguments, {.stdout_file = "/dev/full"});
    EXPECT_EQ(result.exit_code, 4) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("tidemill: write the answer: standard output: "));
  }
}

std::vector<std::string> LogitsTo(const std::string& path) {
  return {"logits", CountingModelFile(), "--ids", WriteFile("stream_ids.json", "[1, 2, 3]"), "--out", path};
}

TEST(Files, FileThatIsThere_KeepsItsMode) {
  using std::filesystem::perms;
  const std::string path = WriteFile("narrow.safetensors", "old");
  for (const perms mode : {perms::owner_read | perms::owner_write, perms{0666}}) {  // 0666: not narrowed by the umask
    std::filesystem::permissions(path, mode);
    EXPECT_EQ(RunTidemill(LogitsTo(path)).err, "");
    EXPECT_GT(std::filesystem::file_size(path), 3U * 997 * 4);
    EXPECT_EQ(std::filesystem::status(path).permissions(), mode);
  }
}

TEST(Files, LinkToAFile_StaysALink) {
  const std::string folder = TestFolder() + "/links";
  std::filesystem::create_directory(folder);
  const std::string target = WriteFile("links/target.json", "old"), link = folder + "/link.json";
  std::filesystem::create_symlink("target.json", link);
  const ProcessResult saved =
      RunTidemill({"chat", CountingModelFile(), "-n", "2"}, {.input = "one\n/save " + link + "\n"});
  EXPECT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(ReadWholeFile(target), HasSubstr("assistant"));
  std::filesystem::remove(target);
  const ProcessResult refused = RunTidemill(LogitsTo(link));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("link.json: expected a file name, found a link to a file that is not there"));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST(Files, LongestName_IsWritten) {
  const std::string path = TestFolder() + "/" + std::string(255, 'n');
  EXPECT_EQ(RunTidemill(LogitsTo(path)).err, "");
  EXPECT_GT(std::filesystem::file_size(path), 3U * 997 * 4);
}

TEST(Files, StandardOutputByName_IsWrittenAsItIs) {
  const std::string file = WriteFile("named_stdout", "");
  ASSERT_EQ(RunTidemill(LogitsTo(TestFolder() + "/plain")).exit_code, 0);
  const std::string bytes = ReadWholeFile(TestFolder() + "/plain");
  EXPECT_EQ(RunTidemill(LogitsTo("/dev/stdout")).out, bytes);
  EXPECT_EQ(RunTidemill(LogitsTo("/dev/stdout"), {.stdout_file = file}).err, "");
  EXPECT_EQ(ReadWholeFile(file), bytes);
  EXPECT_TRUE(std::filesystem::is_symlink("/dev/stdout"));
  const ProcessResult gone = RunTidemill(LogitsTo("/dev/stdout"), {.closed_reader = true});
  EXPECT_EQ(gone.exit_code, 141);
  EXPECT_EQ(gone.err, "");
}

TEST(Streams, FullDiskForAFile_Exits4AndLeavesTheDevice) {
  const ProcessResult result = RunTidemill(LogitsTo("/dev/full"));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("write the logits: /dev/full"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(Streams, NonBlockingInput_IsWaitedFor) {
  Process process({"tokenize", CountingModelFile(), "-"}, {.input = "hello", .nonblocking_input = true});
  process.WaitUntil([looks = 0]() mutable { return ++looks == 50; });  // it finds nothing to read yet
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, RunTidemill({"tokenize", CountingModelFile(), "hello"}).out);
}

TEST(Streams, NoStandardOutput_IsAnError) {
  const ProcessResult result = RunTidemill({"run", CountingModelFile(), "hello", "-n", "3"}, {.closed_stdout = true});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("standard output"));
}

TEST(Streams, Answer_EndsWithoutANewlineInAPipe) {
  const ProcessResult result = RunTidemill({"run", CountingModelFile(), "--raw", "-p", "hello", "-n", "3"});
  EXPECT_THAT(result.out, Not(HasSubstr("\n")));
}

TEST(Terminal, Chat_EditsAnswersAndLeaves) {
  if (const std::string why = WhyNoTerminal(); !why.empty()) GTEST_SKIP() << why;
  Process process({"chat", CountingModelFile(), "-n", "3"}, {.terminal = true});
  process.ReadTerminal(">>> ");
  process.Type("hellp\x7fo\r");
  process.ReadTerminal(">>> ");
  process.Type("/nonsense\r");
  process.ReadTerminal("no such command of chat");  // and it goes on
  process.ReadTerminal(">>> ");
  process.Type("half\x03");
  process.ReadTerminal(">>> ");
  process.Type("\x1b[A\x1b[A\r");  // hello again
  process.ReadTerminal(">>> ");
  process.Type("/stats\r");
  process.ReadTerminal("TTFT");
  process.ReadTerminal(">>> ");
  process.Type("\x04");
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2) << result.out;
  EXPECT_THAT(result.out, Not(HasSubstr(">>>")));
}

TEST(Terminal, CtrlC_StopsTheAnswerNotTheProgram) {
  if (const std::string why = WhyNoTerminal(); !why.empty()) GTEST_SKIP() << why;
  Process process({"chat", LongCountingModelFile(), "--ignore-eos", "-n", "400000"}, {.terminal = true});
  process.ReadTerminal(">>> ");
  process.Type("hello\r");
  process.ReadOut(100);
  process.Type("\x03");  // the terminal is not raw while an answer comes: it sends SIGINT
  process.ReadTerminal(">>> ");
  process.Type("/quit\r");
  EXPECT_EQ(process.Wait().exit_code, 0);
}

}  // namespace
}  // namespace tidemill::testing::streams_test
