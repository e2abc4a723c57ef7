// run --prompts: many requests, a line each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/support/tiny_model.h"

namespace tidemill::testing::prompts_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<json> Lines(const std::string& text) {
  std::vector<json> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(json::parse(text.substr(at, end - at), nullptr, false));
    at = end + 1;
  }
  return lines;
}

// As a line has it: greedy, unless the flags give a temperature, and then of all tokens.
json Single(std::vector<std::string> flags) {
  if (std::find(flags.begin(), flags.end(), "--temperature") == flags.end())
    flags.insert(flags.end(), {"--temperature", "0"});
  flags.insert(flags.begin(),
               {"run", TinyLlamaFile(), "--raw", "--json", "--quiet", "--top-k", "0", "--top-p", "1", "--min-p", "0"});
  const ProcessResult result = RunTidemill(flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

const char kFive[] =
    "{\"id\": \"a\", \"prompt\": \"the tide\", \"max_new_tokens\": 20, \"ignore_eos\": true}\n"
    "\n"
    "{\"id\": 7, \"prompt\": \"mill\", \"max_new_tokens\": 3, \"temperature\": 0.8, \"seed\": 5, \"logprobs\": 1}\n"
    "{\"ids\": [5, 6, 7], \"max_new_tokens\": 9, \"stop\": [\"q\", \"zz\"], \"logit_bias\": {\"9\": -3}}\r\n"
    "{\"prompt\": \"of water and gate\"}";  // the flags' max_new_tokens, and no end of line

ProcessResult RunFive(std::vector<std::string> flags) {
  flags.insert(flags.begin(),
               {"run", TinyLlamaFile(), "--raw", "-n", "11", "--prompts", WriteFile("five.jsonl", kFive)});
  return RunTidemill(flags);
}

TEST(Prompts, EachLine_GetsWhatASingleRunGets) {
  const ProcessResult result = RunFive({});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  const auto lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0]["id"], "a");
  EXPECT_EQ(lines[1]["id"], 7);
  EXPECT_TRUE(lines[2]["id"].is_null());
  const size_t numbers[] = {1, 3, 4, 5};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(lines[i]["line"], numbers[i]);
  const json singles[] = {Single({"-p", "the tide", "-n", "20", "--ignore-eos"}),
                          Single({"-p", "mill", "-n", "3", "--temperature", "0.8", "--seed", "5", "--logprobs", "1"}),
                          json(), Single({"-p", "of water and gate", "-n", "11"})};
  for (const size_t i : {0, 1, 3}) {
    for (const char* name :
         {"text", "ids", "prompt_tokens", "generated_tokens", "finish_reason", "seed", "numeric_class"})
      EXPECT_EQ(lines[i][name], singles[i][name]) << i << " " << name;
    EXPECT_EQ(lines[i].value("logprobs", json()), singles[i].value("logprobs", json())) << i;
  }
  EXPECT_EQ(lines[2]["prompt_tokens"], 3);
  EXPECT_LE(lines[2]["generated_tokens"], 9);
}

TEST(Prompts, OrderInstancesAndMemory_ChangeNoAnswer) {
  const auto expected = Lines(RunFive({}).out);
  ASSERT_EQ(expected.size(), 4U);
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--as-completed"},
        {"--instances", "2", "--threads", "2"},
        {"--instances", "3", "--as-completed"},
        {"--max-batch", "1"},
        {"--max-batch", "2", "--prefill-chunk", "1", "--kv-policy", "iterative", "--state-memory", "40K"}}) {
    const ProcessResult result = RunFive(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    auto lines = Lines(result.out);
    ASSERT_EQ(lines.size(), 4U) << result.out;
    if (flags.back() == "--as-completed") {
      std::sort(lines.begin(), lines.end(), [](const json& a, const json& b) { return a["line"] < b["line"]; });
    }
    for (size_t i = 0; i < 4; ++i) {
      for (const char* name : {"id", "line", "text", "ids", "finish_reason"})
        EXPECT_EQ(lines[i][name], expected[i][name]) << flags.front() << ", " << i << " " << name;
    }
  }
}

TEST(Prompts, ALine_TakesBackWhatTheCommandLineSays) {
  const auto run = [](const std::string& line, const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"run",
                                    TinyLlamaFile(),
                                    "--raw",
                                    "-n",
                                    "30",
                                    "--prompts",
                                    WriteFile("back.jsonl", "{\"prompt\": \"mill\"" + line + "}\n")};
    all.insert(all.end(), flags.begin(), flags.end());
    return Lines(RunTidemill(all).out).at(0);
  };
  const json free = run("", {"--ignore-eos"});
  const std::string text = free["text"];
  const std::string letter(1, *std::find_if(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; }));
  const std::string first = std::to_string(free["ids"][0].get<int>());
  const std::vector<std::string> flags = {"--ignore-eos", "--stop", letter, "--logit-bias", first + "=-100"};
  EXPECT_EQ(run(", \"logit_bias\": {}", flags)["finish_reason"], "stop");
  const json biased = run(", \"stop\": []", flags), taken_back = run(", \"stop\": [], \"logit_bias\": {}", flags);
  EXPECT_EQ(biased["ids"].size(), 30U);
  EXPECT_NE(biased["ids"][0], free["ids"][0]);
  EXPECT_EQ(taken_back["ids"], free["ids"]);
  const auto count = [](const std::string& more) {  // until the end of a sequence
    const std::string file = WriteFile("count.jsonl", "{\"prompt\": \"<|im_start|>\"" + more + "}\n");
    return Lines(RunTidemill({"run", CountingModelFile(), "--raw", "-n", "30", "--ignore-eos", "--prompts", file}).out)
        .at(0);
  };
  EXPECT_EQ(count("")["ids"].size(), 30U);
  EXPECT_LT(count(", \"ignore_eos\": false")["ids"].size(), 30U);
}

#if !TIDEMILL_SLOWED_DOWN  // a sanitizer or an emulator needs more addresses than there are
// Wherever it ends: each line has a result, or one error says why, and nothing dies of it.
TEST(Prompts, WithoutMemory_LinesFailAndTheProgramDoesNot) {
  std::string lines;
  for (size_t i = 0; i < 20; ++i) {
    std::string ids = "5";
    for (size_t j = 0; j < (i == 7 ? 300'000 : 3); ++j) ids += ", " + std::to_string(j % 50);
    lines += "{\"ids\": [" + ids + "], \"max_new_tokens\": 30, \"logprobs\": 20, \"ignore_eos\": true}\n";
  }
  const std::string file = WriteFile("no_memory.jsonl", lines);
  size_t failed = 0;
  for (uint64_t bytes = 16 << 20; bytes < uint64_t{96} << 20; bytes += 1'800'001) {
    const ProcessResult result =
        RunTidemill({"run", TinyLlamaFile(), "--threads", "1", "--prompts", file}, {.address_bytes = bytes});
    if (result.exit_code == 127) continue;  // not even for its libraries
    EXPECT_FALSE(result.was_killed_by_signal) << bytes << ": " << result.err;
    EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 5)
        << bytes << ": " << result.exit_code << " " << result.err;
    if (result.exit_code != 5) continue;
    const auto results = Lines(result.out);
    EXPECT_EQ(results.size(), 20U) << bytes;
    for (const json& line : results) failed += line.contains("error") && line["error"]["code"] == "OutOfMemory";
  }
  EXPECT_GT(failed, 0U) << "no limit was met while lines ran";
}
#endif

// No instance takes a line that it cannot run yet: it would wait for a whole answer while another instance has room.
TEST(Prompts, Instances_TakeNoLineThatWouldWait) {
  const std::string model = WriteFile("long_context.gguf", BuildTinyLlama({.context = 2048}));
  std::string lines;
  for (size_t i = 0; i < 8; ++i) lines += "{\"prompt\": \"mill\", \"max_new_tokens\": 1000, \"ignore_eos\": true}\n";
  const std::string file = WriteFile("eight.jsonl", lines);
  for (size_t attempt = 0; attempt < 10; ++attempt) {
    const ProcessResult result = RunTidemill(
        {"run", model, "--raw", "--prompts", file, "--max-batch", "4", "--instances", "2", "--threads", "2"});
    const auto results = Lines(result.out);
    ASSERT_EQ(results.size(), 8U) << result.err;
    for (const json& line : results)
      EXPECT_LT(line["timings"]["ttft_ms"], line["timings"]["decode_ms"]) << "attempt " << attempt;
  }
}

TEST(Drafts, ChangeNoAnswer) {
  std::vector<std::string> flags = {"-p", "the tide the tide the tide the", "-n", "60", "--ignore-eos", "--logprobs",
                                    "2"};
  size_t drafted = 0;
  for (const char* temperature : {"0", "0.7"}) {
    flags.insert(flags.end(), {"--temperature", temperature, "--seed", "1"});
    const json plain = Single(flags);
    EXPECT_FALSE(plain.contains("draft"));
    for (const char* most : {"1", "8", "64"}) {
      auto with = flags;
      with.insert(with.end(), {"--draft", "ngram", "--ngram-min", "1", "--draft-max", most});
      const json found = Single(with);
      for (const char* name : {"text", "ids", "logprobs", "finish_reason"}) EXPECT_EQ(found[name], plain[name]) << most;
      drafted += found.value("draft", json::object()).value("drafted", size_t{0});
    }
    flags.resize(flags.size() - 4);
  }
  EXPECT_GT(drafted, 0U);
  EXPECT_EQ(RunTidemill({"run", TinyLlamaFile(), "-p", "x", "--draft-max", "3"}).exit_code, 2);
  EXPECT_EQ(RunTidemill({"run", TinyLlamaFile(), "-p", "x", "--draft", "ngram", "--draft-max", "65"}).exit_code, 2);
  EXPECT_EQ(RunTidemill({"run", TinyLlamaFile(), "-p", "x", "--draft", "magic"}).exit_code, 2);
}

TEST(Prompts, BadLines_CostOnlyThemselves) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{\"prompt\": \"x\"", "expected JSON, found a syntax error"},
      {"[1]", "expected a JSON object, found an array"},
      {"{}", "expected one of \"prompt\", \"messages\" and \"ids\", found none"},
      {"{\"prompt\": \"x\", \"ids\": [1]}", "found 2"},
      {"{\"prompt\": 5}", "\"prompt\": expected a string, found 5"},
      {"{\"ids\": []}", "expected at least one id"},
      {"{\"ids\": [5, 999999]}", "id 999999: expected 0 to"},
      {"{\"ids\": [[5], [6]]}", "expected one list of ids"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": 3}]}", "expected a string, a list of parts or null, found 3"},
      {"{\"messages\": [{\"content\": \"x\"}]}", "expected a string, found an object"},
      {"{\"messages\": []}", "expected at least one message, found an empty list"},
      {"{\"prompt\": \"x\", \"tools\": []}", "expected \"messages\" beside them, found none"},
      {"{\"messages\": [{\"role\": \"user\"}], \"tools\": 1}", "\"tools\": expected a list of tools, found 1"},
      {"{\"prompt\": \"x\", \"max_new_tokens\": 0}", "--max-new-tokens"},
      {"{\"prompt\": \"x\", \"max_new_tokens\": 2.5}", "expected a whole number, found 2.5"},
      {"{\"prompt\": \"x\", \"max_new_token\": 2}", "did you mean \"max_new_tokens\"?"},
      {"{\"prompt\": \"x\", \"temperature\": \"hot\"}", "expected a number, found \"hot\""},
      {"{\"prompt\": \"x\", \"prompt\": \"y\"}", "expected each key of an object once, found \"prompt\""},
      {"{\"prompt\": \"x\", \"stop\": 3}", "a string or a list of strings"},
      {"{\"prompt\": \"x\", \"seed\": -1}", "a whole number from 0"},
      {"{\"prompt\": \"x\", \"logit_bias\": {\"a\": 1}}", "an object of id and bias"},
      {"{\"prompt\": \"x\", \"temperature\": 1e999}", "expected a number within the range of a double"},
      {"{\"prompt\": \"\xff\"}", "expected JSON, found a syntax error"},
      {std::string(100000, '[') + std::string(100000, ']'), "expected at most 64 levels of nesting, found more"},
      {"{\"messages\": " + std::string(100000, '['), "expected at most 64 levels of nesting, found more"}};
  std::string file;
  for (const auto& [line, message] : bad) {
    file += line + "\n{\"id\": \"good\", \"prompt\": \"the tide\", \"max_new_tokens\": 4, \"ignore_eos\": true}\n";
  }
  const ProcessResult result =
      RunTidemill({"run", TinyLlamaFile(), "--raw", "--prompts", WriteFile("bad.jsonl", file)});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.err, "");
  const auto lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 2 * bad.size());
  const json good = Single({"-p", "the tide", "-n", "4", "--ignore-eos"});
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(lines[2 * i]["line"], 2 * i + 1);
    EXPECT_THAT(lines[2 * i].value("error", json::object()).value("message", ""), HasSubstr(bad[i].second))
        << bad[i].first.substr(0, 80);
    EXPECT_EQ(lines[2 * i + 1]["ids"], good["ids"]);
  }
}

TEST(Prompts, LongerThanTheMemory_IsRefusedInItsLine) {
  const std::string file = WriteFile("large.jsonl",
                                     "{\"id\": 1, \"prompt\": \"tide\", \"max_new_tokens\": 200}\n"
                                     "{\"id\": 2, \"prompt\": \"tide\", \"max_new_tokens\": 2}\n");
  const ProcessResult result = RunTidemill(
      {"run", TinyLlamaFile(), "--raw", "--kv-policy", "iterative", "--state-memory", "20K", "--prompts", file});
  EXPECT_EQ(result.exit_code, 5);
  const auto lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["error"]["code"], "OutOfMemory");
  EXPECT_THAT(lines[0]["error"]["message"], HasSubstr("expected at most 20480 bytes of state"));
  EXPECT_EQ(lines[1]["id"], 2);
  EXPECT_FALSE(lines[1].contains("error"));
}

TEST(Prompts, StandardInputAndStats) {
  const ProcessResult result =
      RunTidemill({"run", TinyLlamaFile(), "--raw", "-n", "5", "--prompts", "-", "--stats"}, {.input = kFive});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Lines(result.out).size(), 4U);
  EXPECT_THAT(result.err, HasSubstr("requests              4, 0 failed"));
  EXPECT_THAT(result.err, HasSubstr("grown "));
  EXPECT_THAT(result.err, HasSubstr("page faults: "));
  EXPECT_THAT(result.err, HasSubstr("inter-token"));
}

TEST(Prompts, WrongUsage) {
  const std::string file = WriteFile("one.jsonl", "{\"prompt\": \"x\"}\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--prompts", file, "-p", "y"}, "--prompts: expected no other prompt"},
      {{"--as-completed", "-p", "y"}, "--prompts"},
      {{"--instances", "2", "-p", "y"}, "--prompts"},
      {{"--prompts", file, "--instances", "0"}, "--instances"},
      {{"--prompts", file, "--allow-repetition"}, "--allow-repetition excludes --prompts"},
      {{"--prompts", file, "--state-memory", "4X"}, "--state-memory: expected bytes, as in 1000000, 512M or 4G"},
      {{"--prompts", file, "--state-memory", "0"}, "--state-memory"},
      {{"--prompts", file, "--state-memory", "99999999999T"}, "--state-memory"},
      {{"--prompts", file, "--max-batch", "1025"}, "--max-batch"}};
  for (const auto& [flags, message] : cases) {
    std::vector<std::string> all = {"run", TinyLlamaFile()};
    all.insert(all.end(), flags.begin(), flags.end());
    const ProcessResult result = RunTidemill(all);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
  for (const std::string& path : {WriteFile("x", "") + ".none", TestFolder()}) {
    const ProcessResult result = RunTidemill({"run", TinyLlamaFile(), "--prompts", path});
    EXPECT_EQ(result.exit_code, 1) << path;
    EXPECT_THAT(result.err, HasSubstr("tidemill: read the prompts: " + path));
  }
}

TEST(Prompts, Terminal_ShowsHowFarTheyAre) {
  if (const std::string why = WhyNoTerminal(); !why.empty()) GTEST_SKIP() << why;
  const std::string line = "{\"prompt\": \"hello\", \"ignore_eos\": true, \"max_new_tokens\": 400000}\n";
  const std::string first = "{\"prompt\": \"hello\", \"max_new_tokens\": 1}\n\n";
  Process process(
      {"run", LongCountingModelFile(), "--raw", "--prompts", WriteFile("progress.jsonl", first + line + line)},
      {.terminal = true});
  process.ReadTerminal("1 of 3 requests, ");
  process.ReadTerminal(" tokens/s, ");
  process.ReadTerminal(" s left");
  process.Signal(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, HasSubstr("stopped by a signal: 1 of 3 requests finished, 2 cut short"));
}

TEST(Prompts, Sigint_WritesWhatWasGenerated) {
  const std::string line = "{\"prompt\": \"hello\", \"ignore_eos\": true, \"max_new_tokens\": 400000}\n";
  const std::string first = "{\"id\": \"short\", \"prompt\": \"hello\", \"max_new_tokens\": 1}\n";
  for (const size_t max_batch : {4, 2}) {
    Process process({"run", LongCountingModelFile(), "--raw", "--max-batch", std::to_string(max_batch), "--prompts",
                     WriteFile("endless.jsonl", first + line + line + line)});
    process.ReadOut(10);
    process.Signal(SIGINT);
    const ProcessResult result = process.Wait();
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_THAT(result.err, HasSubstr("warning: stopped by a signal: 1 request finished, "));
    const auto lines = Lines(result.out);
    if (max_batch == 4) {
      ASSERT_EQ(lines.size(), 4U);
    } else {  // the third is begun when the first one has ended, which is when the signal comes
      ASSERT_GE(lines.size(), 2U);
      ASSERT_LE(lines.size(), 3U) << "of the last line nothing was begun";
    }
    EXPECT_EQ(lines[0]["finish_reason"], "length");
    for (size_t i = 1; i < lines.size(); ++i) EXPECT_EQ(lines[i]["finish_reason"], "cancelled");
    EXPECT_GT(lines[1]["generated_tokens"], 0);
  }
}

TEST(Prompts, ReaderThatWentAway_EndsWhatRuns) {
  const std::string line = "{\"prompt\": \"hello\", \"ignore_eos\": true, \"max_new_tokens\": 400000}\n";
  const std::string file = WriteFile("nobody.jsonl", "{\"prompt\": \"hello\", \"max_new_tokens\": 1}\n" + line + line);
  const ProcessResult result =
      RunTidemill({"run", LongCountingModelFile(), "--raw", "--prompts", file}, {.closed_reader = true});
  EXPECT_EQ(result.exit_code, 141);
  EXPECT_EQ(result.err, "");
}

// An instance that waits for input keeps no other one from running what came.
TEST(Prompts, InstanceThatWaitsForInput_HoldsNobodyUp) {
  Process process({"run", CountingModelFile(), "--raw", "--instances", "2", "--threads", "2", "--prompts", "-"},
                  {.input = "{\"prompt\": \"hello\", \"max_new_tokens\": 100, \"ignore_eos\": true}\n"});
  process.ReadOutBeforeEnd(10);
  const auto lines = Lines(process.Wait().out);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["generated_tokens"], 100);
}

TEST(Prompts, SigintWhileWaitingForInput_Ends) {
  Process process({"run", CountingModelFile(), "--raw", "--prompts", "-"},
                  {.input = "{\"prompt\": \"hello\", \"max_new_tokens\": 1}\n"});
  process.ReadOutBeforeEnd(10);
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait().exit_code, 130);
}

}  // namespace
}  // namespace tidemill::testing::prompts_test
