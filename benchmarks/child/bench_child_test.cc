// The settings that bench_child reads, and what it answers.
#include "benchmarks/child/bench_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <streambuf>

#include "tests/cli/model_files.h"
#include "tests/fixtures_path.h"

namespace tidemill::child::bench_child_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestFolder;
using testing::TinyLlamaFile;
using testing::WriteFile;

struct Answers {
  ErrorCode code;
  std::string error;  // empty: none
  std::string out;
};

Answers Answer(const std::string& input, const std::string& isa = "") {
  std::istringstream in(input);
  std::ostringstream out;
  const Result<void> result = AnswerAll(in, out, isa);
  return {result.ok() ? ErrorCode::kInternal : result.error().code(), result.ok() ? "" : result.error().message(),
          out.str()};
}

std::vector<json> Lines(const std::string& text) {
  std::vector<json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

TEST(ChildSettings, EveryMember_IsRead) {
  const auto settings =
      ParseChildSettings(R"({"engine":"e","model":"/m.gguf","threads":2,"prompt_tokens":[512],"depth":[0,9],
    "batch":[],"gen_tokens":8,"batch_prompt":[3,7],"repeats":1,"seed":5,"text":null,"flash_attn":true,"kv_type":"f32",
    "read_rate":true,"n_batch":2048,"kv_unified":false,"unheard_of":{}})");
  ASSERT_TRUE(settings.ok()) << settings.error().message();
  EXPECT_EQ(settings->engine, "e");
  EXPECT_EQ(settings->model, "/m.gguf");
  EXPECT_EQ(settings->threads, 2U);
  EXPECT_THAT(settings->prompt_tokens, ElementsAre(512));
  EXPECT_THAT(settings->depth, ElementsAre(0, 9));
  EXPECT_TRUE(settings->batch.empty());
  EXPECT_EQ(settings->gen_tokens, 8U);
  EXPECT_EQ(settings->batch_prompt, std::pair(size_t{3}, size_t{7}));
  EXPECT_EQ(settings->repeats, 1U);
  EXPECT_EQ(settings->seed, 5U);
  EXPECT_TRUE(settings->flash_attn);
  EXPECT_EQ(settings->kv_type, "f32");
  EXPECT_TRUE(settings->read_rate);
}

TEST(ChildSettings, WrongMembers_AreNamed) {
  for (const std::string text :
       {"", "[]", "{}", R"({"model":1})", R"({"model":"m","threads":0})", R"({"model":"m","depth":[-1]})",
        R"({"model":"m","depth":5})", R"({"model":"m","batch":[0]})", R"({"model":"m","repeats":1.5})",
        R"({"model":"m","batch_prompt":[9,3]})", R"({"model":"m","batch_prompt":[9]})",
        R"({"model":"m","flash_attn":1})"}) {
    const auto settings = ParseChildSettings(text);
    ASSERT_FALSE(settings.ok()) << text;
    EXPECT_EQ(settings.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_THAT(ParseChildSettings(R"({"model":"m","seed":1,"seed":2})").error().message(),
              HasSubstr("read the bench settings: byte 22: expected each key of an object once, found \"seed\""));
  EXPECT_THAT(ParseChildSettings("[1]").error().message(), HasSubstr("expected one JSON object, found an array"));
  const std::string deep = R"({"model":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_THAT(ParseChildSettings(deep).error().message(), HasSubstr("expected at most 64 levels of nesting"));
  EXPECT_EQ(ParseChildSettings(R"({"model":"m","text":"t.txt"})").error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(ParseChildSettings(R"({"model":"m","threads":"2"})").error().message(),
              HasSubstr("\"threads\": expected a whole number from 1 to 256, found \"2\""));
}

TEST(ChildSettings, PathWithAZeroByte_IsRefused) {
  EXPECT_THAT(ParseChildSettings(R"({"model":"m.gguf\u0000x"})").error().message(),
              HasSubstr("found a zero byte in it"));
}

TEST(JsonBrackets, AreOpenWhereAnObjectGoesOn) {
  const auto open_behind = [](std::initializer_list<std::string_view> lines) {
    JsonBrackets brackets;
    for (const std::string_view line : lines) brackets.Add(line);
    return brackets.open();
  };
  EXPECT_TRUE(open_behind({"{"}));
  EXPECT_TRUE(open_behind({"{\"a\":[1", ",2]"}));
  EXPECT_TRUE(open_behind({R"({"a":"}")"}));
  EXPECT_TRUE(open_behind({R"({"a":"\"}")"}));
  EXPECT_FALSE(open_behind({"{\"a\":[1", ",2]}"}));
  // What no line can mend is not waited for.
  EXPECT_FALSE(open_behind({R"({"model":"x",})"}));
  EXPECT_FALSE(open_behind({"{\"a"}));
  EXPECT_FALSE(open_behind({"nul"}));
  EXPECT_FALSE(open_behind({"}"}));
  EXPECT_FALSE(open_behind({""}));
}

TEST(BatchPrompts, Lengths_AreSpreadOverTheRange) {
  ChildSettings settings;
  settings.batch_prompt = {100, 200};
  std::vector<size_t> lengths = BatchPrompts(settings, 4);
  std::sort(lengths.begin(), lengths.end());
  EXPECT_THAT(lengths, ElementsAre(112, 137, 162, 187));
  EXPECT_THAT(BatchPrompts(settings, 1), ElementsAre(150));
}

TEST(BenchChild, EveryMember_IsInTheResult) {
  const json settings = {{"engine", "ours"}, {"model", TinyLlamaFile()},
                         {"threads", 1},     {"prompt_tokens", {16}},
                         {"depth", {0, 8}},  {"gen_tokens", 4},
                         {"batch", {3}},     {"batch_prompt", {4, 12}},
                         {"repeats", 2},     {"seed", 1},
                         {"text", nullptr},  {"flash_attn", true},
                         {"kv_type", "f16"}, {"n_batch", 2048},
                         {"ubatch", 512},    {"rounds", 1}};
  const Answers result = Answer(settings.dump());
  ASSERT_TRUE(result.error.empty()) << result.error;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["engine"], "ours");
  EXPECT_EQ(report["threads"], 1);
  EXPECT_EQ(report["load_s"].size(), 2U);
  EXPECT_EQ(report["ttft_s"].size(), 2U);
  EXPECT_GT(report["ttft_s"][0], report["load_s"][0]);
  for (const char* name : {"description", "parameters", "tensor_bytes", "vocab_size", "trained_context"}) {
    EXPECT_TRUE(report["model"].contains(name)) << name;
  }
  ASSERT_EQ(report["tests"].size(), 4U);
  const char* tests[] = {"prefill", "decode", "decode", "batch"};
  for (size_t i = 0; i < 4; ++i) {
    const json& test = report["tests"][i];
    EXPECT_EQ(test["test"], tests[i]);
    EXPECT_EQ(test["flash_attn"], true);
    ASSERT_EQ(test["samples"].size(), 2U);
    for (const char* name : {"tokens_per_s", "tokens_per_cpu_s", "seconds", "others_cores"})
      EXPECT_TRUE(test["samples"][0].contains(name));
    for (const char* name : {"peak_rss_mib", "anon_rss_mib", "beyond_trained_context"})
      EXPECT_TRUE(test.contains(name)) << name;
  }
  EXPECT_EQ(report["tests"][0]["disagreement"], 0.0);  // bits do not depend on chunks or batch mates
  EXPECT_FALSE(report["tests"][1].contains("disagreement"));
  EXPECT_FALSE(report["tests"][1].contains("read_gb_per_s"));
  EXPECT_EQ(report["tests"][3]["disagreement"], 0.0);
  EXPECT_EQ(report["tests"][3]["prompt_tokens"], json({5, 10}));
}

TEST(BenchChild, ReadRate_StandsBesideADecodeAlone) {
  const json settings = {{"model", TinyLlamaFile()}, {"threads", 2}, {"prompt_tokens", {4}}, {"depth", {8}},
                         {"gen_tokens", 4},          {"repeats", 1}, {"read_rate", true}};
  const Answers result = Answer(settings.dump());
  ASSERT_TRUE(result.error.empty()) << result.error;
  const json report = json::parse(result.out);
  EXPECT_FALSE(report["tests"][0].contains("read_gb_per_s"));
  EXPECT_GT(report["tests"][1]["read_gb_per_s"], 0.0);
  // A step reads every weight but the embedding's other rows, and the state.
  EXPECT_GT(report["tests"][1]["bytes_per_step"], 0.3 * report["model"]["tensor_bytes"].get<double>());
}

TEST(BenchChild, WithoutThreads_AllAreUsed) {
  const json settings = {
      {"model", TinyLlamaFile()}, {"depth", {8}}, {"gen_tokens", 4}, {"repeats", 1}, {"read_rate", true}};
  const Answers result = Answer(settings.dump());
  ASSERT_TRUE(result.error.empty()) << result.error;
  const json report = json::parse(result.out);
  EXPECT_GE(report["threads"], 1);
  EXPECT_GT(report["tests"][0]["read_gb_per_s"], 0.0);
}

TEST(BenchChild, SeveralSettings_AnsweredInOrderByOneLoadedModel) {
  json settings = {{"model", TinyLlamaFile()}, {"threads", 1}, {"depth", {8}}, {"gen_tokens", 4},
                   {"batch_prompt", {4, 12}},  {"repeats", 1}, {"seed", 1}};
  std::string input = settings.dump() + "\n";
  settings["depth"] = {12};  // fills four more
  input += settings.dump() + "\n\n";
  settings["depth"] = json::array();
  settings["batch"] = {2};
  input += settings.dump(2) + "\n" + settings.dump() + "\n";
  settings["threads"] = 5;  // more than a small machine has cores
  input += settings.dump();
  const Answers result = Answer(input);
  ASSERT_TRUE(result.error.empty()) << result.error;
  const std::vector<json> answers = Lines(result.out);
  ASSERT_EQ(answers.size(), 5U);
  const char* tests[] = {"decode", "decode", "batch", "batch", "batch"};
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_EQ(answers[i]["tests"].size(), 1U);
    EXPECT_EQ(answers[i]["tests"][0]["test"], tests[i]);
    EXPECT_EQ(answers[i]["threads"], i < 4 ? 1 : 5);
    EXPECT_EQ(answers[i]["load_s"], answers[0]["load_s"]);  // one load serves all
  }
  EXPECT_EQ(answers[0]["tests"][0]["depth"], 8);
  EXPECT_EQ(answers[1]["tests"][0]["depth"], 12);
  EXPECT_EQ(answers[3]["tests"][0]["disagreement"], 0.0);
}

TEST(BenchChild, DepthPastTheKeptContext_StartsOver) {
  json settings = {{"model", TinyLlamaFile()}, {"threads", 1}, {"depth", {0}}, {"gen_tokens", 4}, {"repeats", 1}};
  std::string input = settings.dump() + "\n";
  settings["depth"] = {300};
  input += settings.dump() + "\n";
  settings["gen_tokens"] = 700;
  const Answers result = Answer(input + settings.dump());
  ASSERT_TRUE(result.error.empty()) << result.error;
  const std::vector<json> answers = Lines(result.out);
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[1]["tests"][0]["depth"], 300);
  EXPECT_EQ(answers[2]["tests"][0]["beyond_trained_context"], true);
}

TEST(BenchChild, Isa_IsTheFlags) {
  const json settings = {{"model", TinyLlamaFile()}, {"threads", 1}, {"prompt_tokens", {4}}, {"repeats", 1}};
  const Answers result = Answer(settings.dump(), "baseline");
  ASSERT_TRUE(result.error.empty()) << result.error;
  const json report = json::parse(result.out);
  EXPECT_THAT(report["system_info"].get<std::string>(), HasSubstr(", baseline, "));
  EXPECT_EQ(report["isa"]["used"], json::array());
  EXPECT_THAT(Answer(settings.dump(), "mmx").error, HasSubstr("mmx"));
}

// What asks may wait for an answer before it asks again.
TEST(BenchChild, Alive_AnswersBeforeTheNextLineIsThere) {
  struct Asker : std::streambuf {
    explicit Asker(const std::ostringstream* out) : out_(out) {}
    int_type underflow() override {
      if (asked_ == 2) return traits_type::eof();
      EXPECT_EQ(Lines(out_->str()).size(), static_cast<size_t>(asked_));
      ++asked_;
      setg(text_.data(), text_.data(), text_.data() + text_.size());
      return traits_type::to_int_type(text_[0]);
    }
    const std::ostringstream* out_;
    std::string text_ = "{\"info\": true}\n";
    int asked_ = 0;
  };
  std::ostringstream out;
  Asker asker(&out);
  std::istream in(&asker);
  ASSERT_TRUE(AnswerAll(in, out, "").ok());
  EXPECT_EQ(Lines(out.str()).size(), 2U);
}

TEST(BenchChild, LaterSettingsWrong_EndsWithTheirError) {
  const Answers result = Answer("{\"info\": true}\n{\"info\": 1}\n{\"info\": true}\n");
  EXPECT_EQ(result.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Lines(result.out).size(), 1U);
  EXPECT_THAT(result.error, HasSubstr("\"info\""));
}

TEST(BenchChild, Info_NeedsNoModel) {
  const Answers result = Answer(R"({"engine":"x","info":true,"verbose":false})");
  ASSERT_TRUE(result.error.empty()) << result.error;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["engine"], "x");
  EXPECT_TRUE(report["isa"]["used"].is_array());
  EXPECT_TRUE(report["isa"]["unused"].is_array());
}

TEST(BenchChild, PastLearnedPositions_NamesHowManyThereAre) {
  const std::string opt = TestFolder() + "/opt";
  std::filesystem::copy(std::string(TIDEMILL_FIXTURES) + "/families/opt", opt,
                        std::filesystem::copy_options::recursive);
  WriteFile("opt/tokenizer.json",
            R"({"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
            R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"d":3},"merges":[]}})");
  json settings = {{"model", opt}, {"threads", 1}, {"repeats", 1}, {"gen_tokens", 4}};
  const auto error_of = [&](const json& test) {
    json all = settings;
    all.update(test);
    return Answer(all.dump());
  };
  EXPECT_EQ(error_of({{"depth", {124}}}).error, "");
  for (const json& test :
       {json{{"depth", {125}}}, json{{"prompt_tokens", {129}}}, json{{"batch", {2}}, {"batch_prompt", {1, 248}}}}) {
    const Answers answers = error_of(test);
    EXPECT_EQ(answers.code, ErrorCode::kInvalidArgument) << test;
    EXPECT_THAT(answers.error, HasSubstr("bench: a test of")) << test;
    EXPECT_THAT(answers.error, HasSubstr("expected at most 128")) << test;
  }
}

TEST(BenchChild, MissingModel_IsNamed) {
  const Answers answers = Answer(R"({"model": "/nowhere.gguf"})");
  EXPECT_EQ(answers.code, ErrorCode::kNotFound);
  EXPECT_THAT(answers.error, HasSubstr("/nowhere.gguf"));
}

}  // namespace
}  // namespace tidemill::child::bench_child_test
