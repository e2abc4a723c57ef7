// What the program makes of the settings that a model's files bring: what is missing, what is obeyed and what is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/fixtures_path.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/eagle_models.h"
#include "tests/support/model_folder.h"

namespace tidemill::testing::settings_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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
}

TEST(NoTokenizer, Plan_NeedsNoText) {
  if (!testing::WhyNoMeasurement().empty()) GTEST_SKIP() << testing::WhyNoMeasurement();
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

// ---- generation_config.json ----

// Answers of a small model whose generation_config.json is `config`.
class Recommending {
 public:
  explicit Recommending(const std::string& config) {
    ChangedCheckpoint("eagle/target").WriteTo(folder_);
    folder_.Write("tokenizer.json", EagleTokenizer()).Write("generation_config.json", config);
  }
  ProcessResult Run(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"run",          folder_.path(),  "--raw", "-p",    "abcabc",
                                          "--ignore-eos", "--temperature", "0",     "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTidemill(arguments);
  }
  json Answer(const std::vector<std::string>& more = {}) const {
    const ProcessResult result = Run(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out, nullptr, false);
  }

 private:
  ModelFolder folder_;
};

TEST(GenerationConfig, Lengths_GiveWayToTheFlagInTheirOrder) {
  const Recommending tokens(R"({"max_new_tokens": 5, "max_length": 12})"), length(R"({"max_length": 12})");
  EXPECT_EQ(tokens.Answer()["generated_tokens"], 5);
  EXPECT_EQ(tokens.Answer({"-n", "7"})["generated_tokens"], 7);
  EXPECT_EQ(tokens.Answer({"--min-new-tokens", "8"})["generated_tokens"], 8);
  const json to_length = length.Answer();
  EXPECT_EQ(to_length["generated_tokens"], 12 - to_length["prompt_tokens"].get<int>());
  EXPECT_EQ(to_length["finish_reason"], "length");
  EXPECT_THAT(length.Run({}).err, HasSubstr("ended at the model's max_length of 12 tokens with the prompt; "
                                            "--max-new-tokens N allows more"));
  EXPECT_EQ(length.Answer({"-n", "30"})["generated_tokens"], 30);
  const Recommending short_length(R"({"max_length": 2})");
  const ProcessResult refused = short_length.Run({});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("max_length, of prompt and answer, is 2; shorten it or give --max-new-tokens"));
  EXPECT_EQ(short_length.Answer({"-n", "3"})["generated_tokens"], 3);
}

TEST(GenerationConfig, BannedForcedAndStopTexts_AreObeyed) {
  const auto plain = Recommending("{}").Answer({"-n", "6"})["ids"].get<std::vector<int>>();
  const std::string first = std::to_string(plain[0]), second = std::to_string(plain[1]);
  const auto ids = [](const std::string& config) {
    return Recommending(config).Answer({"-n", "6"})["ids"].get<std::vector<int>>();
  };
  EXPECT_THAT(ids("{\"suppress_tokens\": [" + first + "]}"), Not(Contains(plain[0])));
  EXPECT_NE(ids("{\"begin_suppress_tokens\": [" + first + "]}")[0], plain[0]);
  EXPECT_EQ(ids("{\"bad_words_ids\": [[" + first + ", " + second + "]]}")[0], plain[0]);
  EXPECT_NE(ids("{\"bad_words_ids\": [[" + first + ", " + second + "]]}")[1], plain[1]);
  EXPECT_EQ(ids(R"({"forced_eos_token_id": 7})").back(), 7);
  const std::string text = Recommending("{}").Answer({"-n", "6"})["text"];
  const Recommending stopping("{\"stop_strings\": [" + json(text.substr(text.size() - 1)).dump() + "]}");
  EXPECT_EQ(stopping.Answer({"-n", "6"})["finish_reason"], "stop");
  EXPECT_EQ(stopping.Answer({"-n", "6", "--stop", "no such text"})["finish_reason"], "length");
  const ProcessResult wrong = Recommending(R"({"forced_bos_token_id": 100000})").Run({});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err,
              HasSubstr("generation_config.json: generation options: forced_bos_token_id: expected a token"));
}

// ---- keys without effect ----

TEST(UnreadSettings, AreNamedOnceForEachFile) {
  const Recommending model(R"({"num_beams": 4, "penalty_alpha": 0.6, "use_cache": true})");
  const ProcessResult said = model.Run({"-n", "1"});
  EXPECT_EQ(said.exit_code, 0);
  EXPECT_THAT(said.err,
              StartsWith("tidemill: warning: generation_config.json: 2 keys are not known here and have no effect: "
                         "num_beams, penalty_alpha\n"));
  EXPECT_EQ(model.Run({"-n", "1", "--quiet"}).err, "");
  const Recommending one(R"({"num_beams": 4})");
  EXPECT_THAT(one.Run({"-n", "1"}).err,
              HasSubstr("generation_config.json: 1 key is not known here and has no effect: num_beams\n"));
}

TEST(UnreadSettings, InspectListsThem) {
  ModelFolder folder;
  ChangedCheckpoint("eagle/target").Replace("{", "{\"what_is_this\": 1, ").WriteTo(folder);
  folder.Write("tokenizer.json", EagleTokenizer()).Write("generation_config.json", R"({"num_beams": 4})");
  EXPECT_THAT(Done({"inspect", folder.path(), "--unread"}).out,
              AllOf(HasSubstr("no effect       config.json: what_is_this\n"),
                    HasSubstr("no effect       generation_config.json: num_beams\n")));
  const json info = json::parse(Done({"inspect", folder.path(), "--unread", "--json"}).out, nullptr, false);
  EXPECT_EQ(info["unread"],
            json::parse(R"({"config.json": ["what_is_this"], "generation_config.json": ["num_beams"]})"));
  EXPECT_THAT(Done({"inspect", CountingModelFile(), "--unread"}).out, HasSubstr("no effect       no key\n"));
  for (const std::string& model : {kWithoutTokenizer, kGgufWithoutTokenizer})
    EXPECT_THAT(Done({"inspect", model, "--unread"}).out, HasSubstr("no effect       no key\n"));
}

TEST(UnreadSettings, OfDrafters_AreNamedAsTheirs) {
  const Recommending model("{}");
  ModelFolder head, other;
  ChangedCheckpoint("eagle/eagle3").Replace("{", "{\"what_is_this\": 1, \"attention_bias\": false, ").WriteTo(head);
  EXPECT_THAT(model.Run({"-n", "2", "--draft", head.path()}).err,
              StartsWith("tidemill: warning: draft head: config.json: 1 key is not known here and has no effect: "
                         "what_is_this\n"));
  ChangedCheckpoint("eagle/target").WriteTo(other);
  other.Write("tokenizer.json", EagleTokenizer()).Write("generation_config.json", R"({"num_beams": 4})");
  EXPECT_THAT(model.Run({"-n", "2", "--draft", other.path()}).err,
              HasSubstr("draft model: generation_config.json: 1 key is not known here and has no effect: num_beams\n"));
}

TEST(UnreadSettings, OfATokenizer_AreNamedByTokenize) {
  ModelFolder folder;
  folder.Write("tokenizer.json", EagleTokenizer()).Write("tokenizer_config.json", R"({"what_is_this": 1})");
  const char* expected =
      "tidemill: warning: tokenizer_config.json: 1 key is not known here and has no effect: what_is_this\n";
  EXPECT_EQ(Done({"tokenize", folder.path(), "abc"}).err, expected);
  EXPECT_EQ(Done({"detokenize", folder.path(), "5"}).err, expected);
}

// ---- log-probabilities, bans and stop texts ----

TEST(Logprobs, HaveTheTextAndBytesOfTokens) {
  const ProcessResult result = RunTidemill({"run", TinyLlamaFile(), "--raw", "-p", "hello", "-n", "12", "--temperature",
                                            "0", "--ignore-eos", "--json", "--logprobs", "3"});
  const json answer = json::parse(result.out, nullptr, false);
  ASSERT_EQ(answer["logprobs"].size(), 12U);
  for (const json& token : answer["logprobs"]) {
    ASSERT_EQ(token["top_logprobs"].size(), 3U);
    EXPECT_EQ(token.size(), 5U);
    std::vector<json> all = token["top_logprobs"];
    all.push_back(token);
    for (const json& one : all) {
      std::string bytes;
      for (const int byte : one["bytes"]) bytes += static_cast<char>(byte);
      const bool is_ascii = std::all_of(bytes.begin(), bytes.end(), [](char c) { return (c & 0x80) == 0; });
      EXPECT_EQ(one["token"].get<std::string>(), is_ascii ? bytes : "\uFFFD") << one;
      const ProcessResult text = RunTidemill({"detokenize", TinyLlamaFile(), "--keep-special", one["id"].dump()});
      EXPECT_EQ(text.out.substr(0, bytes.size()), bytes) << one;
    }
  }
}

TEST(LogitBias, MinusInfinity_Bans) {
  const std::vector<std::string> count = {"run", CountingModelFile(), "--raw", "-p", "a", "-n", "3", "--json"};
  const auto ids = [&count](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = count;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json::parse(Done(arguments).out, nullptr, false)["ids"].get<std::vector<int>>();
  };
  const int next = ids({})[0];
  EXPECT_NE(ids({"--logit-bias", std::to_string(next) + "=-inf"})[0], next);
  const std::string line =
      "{\"prompt\": \"a\", \"max_new_tokens\": 1, \"logit_bias\": {\"" + std::to_string(next) + "\": \"-inf\"}}\n";
  const ProcessResult many = RunTidemill({"run", CountingModelFile(), "--raw", "--prompts", "-"}, {.input = line});
  EXPECT_EQ(many.exit_code, 0) << many.out;
  EXPECT_NE(json::parse(many.out, nullptr, false)["ids"][0], next);
}

TEST(Stop, TextOfASpecialToken_EndsThere) {
  const std::vector<std::string> count = {"run", CountingModelFile(), "--raw",  "-p",     "<|endoftext|>", "-n",
                                          "9",   "--ignore-eos",      "--json", "--stop", "<|im_end|>"};
  const json answer = json::parse(Done(count).out, nullptr, false);
  EXPECT_EQ(answer["finish_reason"], "stop");
  EXPECT_EQ(answer["ids"].size(), 2U);  // <|im_start|>, <|im_end|>
}

}  // namespace
}  // namespace tidemill::testing::settings_test
