// run --save-state and --load-state: an answer in two runs is the answer of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/support/tiny_model.h"

namespace tidemill::testing::saved_state_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string StateFile(const std::string& name) { return TestFolder() + "/" + name + ".state"; }

std::vector<std::string> With(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json JsonOutput(const std::vector<std::string>& arguments) {
  const ProcessResult result = RunTidemill(With(arguments, {"--json"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return json::parse(result.out, nullptr, false);
}

json Joined(json first, const json& second) {
  for (const json& item : second) first.push_back(item);
  return first;
}

void ExpectRefused(const std::vector<std::string>& arguments, int exit_code, const std::string& line) {
  const ProcessResult result = RunTidemill(arguments);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "tidemill: " + line + "\n");
}

// Four tokens of the counting model.
std::string SavedCount(const std::string& name) {
  const std::string path = StateFile(name);
  JsonOutput(
      {"run", CountingModelFile(), "--raw", "-p", "hello", "-n", "4", "--temperature", "0", "--save-state", path});
  return path;
}

TEST(SavedState, AnswerInTwoRuns_IsTheAnswerOfOne) {
  const std::vector<std::string> run = {"run",    TinyLlamaFile(), "--raw",   "-p",           "hello",
                                        "--temp", "1.2",           "--top-p", "0.95",         "--seed",
                                        "4",      "--logprobs",    "2",       "--ignore-eos", "--repetition-penalty",
                                        "1.2"};
  const json whole = JsonOutput(With(run, {"-n", "20"}));
  ASSERT_EQ(whole["ids"].size(), 20U);
  EXPECT_EQ(whole["cached_tokens"], 0);
  const std::string path = StateFile("two_runs");
  const json first = JsonOutput(With(run, {"-n", "7", "--save-state", path}));
  ASSERT_EQ(first["ids"].size(), 7U);
  const std::vector<std::vector<std::string>> ways = {{},
                                                      {"--kv-policy", "paged", "--kv-increment", "4", "--threads", "1"},
                                                      {"--kv-policy", "iterative", "--threads", "2"}};
  for (const auto& way : ways) {
    const json second = JsonOutput(With({"run", TinyLlamaFile(), "--load-state", path, "-n", "20"}, way));
    EXPECT_EQ(Joined(first["ids"], second["ids"]), whole["ids"]);
    EXPECT_EQ(first["text"].get<std::string>() + second["text"].get<std::string>(), whole["text"]);
    EXPECT_EQ(Joined(first["logprobs"], second["logprobs"]), whole["logprobs"]);
    EXPECT_EQ(second["finish_reason"], whole["finish_reason"]);
    EXPECT_EQ(second["seed"], 4);
    EXPECT_EQ(second["generated_tokens"], 13);
    EXPECT_EQ(second["prompt_tokens"], whole["prompt_tokens"].get<int>() + 7);
    EXPECT_EQ(second["cached_tokens"], whole["prompt_tokens"].get<int>() + 6);
  }
}

TEST(SavedState, SameFile_IsReadAndReplaced) {
  const std::string path = SavedCount("replaced"), before = ReadWholeFile(path);
  const std::vector<std::string> run = {"run", CountingModelFile(), "--load-state", path, "--save-state", path};
  const json next = JsonOutput(With(run, {"-n", "6"}));
  EXPECT_EQ(next["ids"].size(), 2U);
  EXPECT_NE(ReadWholeFile(path), before);
  const json last = JsonOutput(With(run, {"-n", "7"}));
  EXPECT_EQ(last["ids"], json({next["ids"][1].get<int>() + 1}));
  for (const auto& entry : std::filesystem::directory_iterator(TestFolder()))
    EXPECT_EQ(entry.path().string().find(".part."), std::string::npos) << entry.path();
}

TEST(SavedState, Prompt_GoesBehindTheSavedText) {
  const std::string path = SavedCount("more_prompt");
  const json world = JsonOutput({"run", CountingModelFile(), "--raw", "-p", " world", "-n", "3", "--temperature", "0"});
  const json answer = JsonOutput({"run", CountingModelFile(), "--load-state", path, "-p", " world", "-n", "3"});
  EXPECT_EQ(answer["ids"], world["ids"]);
  EXPECT_GT(answer["prompt_tokens"], world["prompt_tokens"]);
  EXPECT_GT(answer["cached_tokens"], 0);
}

TEST(SavedState, InterruptedAnswer_IsKept) {
  const json hello = JsonOutput({"tokenize", CountingModelFile(), "hello"});
  for (const bool reader_goes : {false, true}) {
    const std::string path = StateFile(reader_goes ? "reader_gone" : "interrupted");
    Process process({"run", LongCountingModelFile(), "--raw", "-p", "hello", "--ignore-eos", "-n", "400000",
                     "--temperature", "0", "--save-state", path});
    process.ReadOut(100);
    if (reader_goes) {
      process.CloseReader();
    } else {
      process.Signal(SIGINT);
    }
    const ProcessResult result = process.Wait();
    EXPECT_EQ(result.exit_code, reader_goes ? 141 : 130);
    EXPECT_EQ(result.err, "");
    // How many tokens there are is in the answer to who asks for fewer.
    const std::vector<std::string> run = {"run", LongCountingModelFile(), "--load-state", path};
    const ProcessResult refused = RunTidemill(With(run, {"-n", "1"}));
    const std::string before = "the answer has ended: it has ";
    const size_t found = refused.err.find(before);
    ASSERT_NE(found, std::string::npos) << refused.err;
    int tokens = 0;
    for (size_t i = found + before.size(); std::isdigit(refused.err[i]) != 0; ++i)
      tokens = tokens * 10 + (refused.err[i] - '0');
    ASSERT_GT(tokens, 10);
    const json next = JsonOutput(With(run, {"-n", std::to_string(tokens + 3)}));
    const int last = hello["ids"].back().get<int>() + tokens;
    EXPECT_EQ(next["ids"], json({(last + 1) % 997, (last + 2) % 997, (last + 3) % 997}));
  }
}

TEST(SavedState, AnsweredRequests_SayHowToGoOn) {
  const std::string path = SavedCount("ended");
  const std::string prefix = "resume request: " + path + ": the answer has ended: ";
  ExpectRefused({"run", CountingModelFile(), "--load-state", path}, 2,
                prefix + "it has 4 of at most 4 tokens; give a larger --max-new-tokens or a prompt");
  const std::string at_end = StateFile("at_end");
  JsonOutput({"run", CountingModelFile(), "--raw", "-p", "<|im_start|>", "--temperature", "0", "--save-state", at_end});
  ExpectRefused({"run", CountingModelFile(), "--load-state", at_end}, 2,
                "resume request: " + at_end +
                    ": the answer has ended: by an end-of-sequence token; give --ignore-eos or a prompt");
  EXPECT_EQ(JsonOutput({"run", CountingModelFile(), "--load-state", at_end, "--ignore-eos", "-n", "3"})["ids"],
            json({3, 4}));
}

TEST(SavedState, AnotherModelOrType_IsRefused) {
  const std::string path = SavedCount("strangers");
  const std::string prefix = "resume request: " + path + ": ";
  const std::vector<std::string> more = {"--load-state", path, "-n", "9"};
  ExpectRefused(With({"run", TinyLlamaFile()}, more), 1,
                prefix + "it was saved with another model than " + TinyLlamaFile() + "; load that one");
  const json known = JsonOutput(With({"run", CountingModelFile()}, more));
  const std::string numeric_class = known["numeric_class"];  // ".../kv-f16"
  const std::string others = numeric_class.substr(0, numeric_class.rfind("kv-")) + "kv-f32";
  ExpectRefused(With({"run", CountingModelFile(), "--kv-dtype", "f32"}, more), 1,
                prefix + "expected numeric class " + numeric_class + ", found " + others +
                    "; choose --kv-dtype, --dtype, --isa and --rope-scaling as when it was saved");
  ExpectRefused(With({"run", CountingModelFile(), "--context", "4"}, more), 1,
                prefix + std::to_string(known["prompt_tokens"].get<int>()) +
                    " tokens: the context holds 4; choose a larger --context");
}

TEST(SavedState, FilesThatAreWrong_AreRefusedBeforeTheModelIsLoaded) {
  const std::string bytes = ReadWholeFile(SavedCount("whole"));
  const std::string no_model = TestFolder() + "/no_such_model.gguf";
  const auto refuse = [&](const std::string& path, const std::string& line) {
    ExpectRefused({"run", no_model, "--load-state", path}, 1, "load a saved request: " + line);
  };
  const std::string missing = TestFolder() + "/missing.state";
  refuse(missing, "open " + missing + ": No such file or directory");
  refuse(TestFolder(), "open " + TestFolder() + ": expected a file, found a folder");
  const std::string cut = WriteFile("cut.state", bytes.substr(0, 100));
  refuse(cut, cut + ": byte 16: size: expected " + std::to_string(bytes.size()) +
                  " bytes, found 100; the file is truncated or damaged");
  std::string flipped = bytes;
  flipped[200] = static_cast<char>(flipped[200] ^ 1);
  const std::string damaged = WriteFile("damaged.state", flipped);
  refuse(damaged, damaged + ": byte 24: the checksum does not match the bytes; the file is damaged");
  const std::string other = WriteFile("other.state", "this is a text");
  refuse(other, other + ": byte 0: magic: expected TMILLREQ; this is no saved request");
  std::string newer = bytes;
  newer[8] = 4;
  const std::string later = WriteFile("later.state", newer);
  refuse(later,
         later + ": byte 8: version: expected 2 or 3, found 4; go on with the version of tidemill that saved it");
}

TEST(SavedState, FlagsThatContradict_AreUsageErrors) {
  const std::string path = SavedCount("usage");
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--chat"}, {"--system", "be brief"}}) {
    const ProcessResult result = RunTidemill(With({"run", CountingModelFile(), "--load-state", path}, flags));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("--load-state"));
    EXPECT_THAT(result.err, HasSubstr(flags[0]));
  }
}

TEST(SavedState, PlacesThatCannotBeWritten_LoseNoAnswer) {
  const std::vector<std::string> run = {"run", CountingModelFile(), "--raw", "-p", "hello", "-n", "4", "--save-state"};
  const std::string folder = TestFolder() + "/missing_folder/x.state";
  ExpectRefused(With(run, {folder}), 1, "save the state: " + folder + ": No such file or directory; check the path");
  const ProcessResult full = RunTidemill(With(run, {"/dev/full"}));
  EXPECT_EQ(full.exit_code, 4) << full.err;
  EXPECT_NE(full.out, "");
  EXPECT_EQ(full.err, "tidemill: save the state: /dev/full: No space left on device; free some and run it again\n");
}

}  // namespace
}  // namespace tidemill::testing::saved_state_test
