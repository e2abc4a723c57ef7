// What the program makes of the settings that a model's files bring: what is missing, what is obeyed and what is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/fixtures_path.h"

namespace tidemill::testing::settings_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kWithoutTokenizer = std::string(TIDEMILL_FIXTURES) + "/families/qwen3";
const std::string kGgufWithoutTokenizer = std::string(TIDEMILL_FIXTURES) + "/families/gguf/qwen3.gguf";

ProcessResult Done(const std::vector<std::string>& arguments) {
  ProcessResult result = RunTidemill(arguments);
  EXPECT_EQ(result.exit_code, 0) << arguments[0] << ": " << result.err;
  return result;
}

TEST(NoTokenizer, WhatNeedsNoText_Works) {
  const std::string ids = WriteFile("ids.json", "[1, 2, 3]");
  for (const std::string& model : {kWithoutTokenizer, kGgufWithoutTokenizer}) {
    const std::string out = TestFolder() + "/logits.safetensors";
    Done({"logits", model, "--ids", ids, "--out", out});
    EXPECT_THAT(ReadWholeFile(out), HasSubstr("\"shape\":[3,128]"));
    const auto info = json::parse(Done({"inspect", model, "--json"}).out, nullptr, false);
    EXPECT_THAT(info["tokenizer"].get<std::string>(), HasSubstr("none"));
  }
  const auto plan = json::parse(Done({"plan", kWithoutTokenizer, "--json"}).out, nullptr, false);
  EXPECT_EQ(plan["model"]["family"], "qwen3");
}

TEST(NoTokenizer, TextCommands_SayWhatIsMissing) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"run", kWithoutTokenizer, "-p", "x"},
                                                    {"tokenize", kWithoutTokenizer, "x"},
                                                    {"detokenize", kWithoutTokenizer, "1"},
                                                    {"chat", kWithoutTokenizer}}) {
    const ProcessResult result = RunTidemill(arguments);
    EXPECT_EQ(result.exit_code, 1) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("tokenizer.json: not in the folder; text needs it")) << arguments[0];
  }
  const ProcessResult result = RunTidemill({"run", kGgufWithoutTokenizer, "-p", "x"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("tokenizer.ggml.model"));
}

}  // namespace
}  // namespace tidemill::testing::settings_test
