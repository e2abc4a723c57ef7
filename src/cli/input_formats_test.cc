// What commands read from files: lists of ids, conversations, bench settings, /proc/cpuinfo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/bench_child.h"
#include "cli/conversation.h"
#include "cli/cpu_info.h"
#include "cli/files.h"
#include "cli/id_lists.h"
#include "cli/json.h"
#include "tests/support/cpu_seconds.h"

namespace tidemill::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParsedJson, ManyMembersAndElements_TakeTimeInProportion) {
  const auto seconds = [](size_t count) {
    std::string list = "[", members = "{";
    for (size_t i = 0; i < count; ++i) {
      list += "{},";
      members += "\"" + std::to_string(i) + "\": 1,";
    }
    list.back() = ']';
    members.back() = '}';
    const double start = testing::CpuSeconds();
    for (const std::string& text : {list, members}) EXPECT_TRUE(ParseJson("x", text).ok());
    return testing::CpuSeconds() - start;
  };
  EXPECT_LT(seconds(200'000), 40 * seconds(20'000)) << "a hundred times as long where each looks at all others";
}

TEST(ParsedJson, IsWhatTheLibraryReads) {
  const std::string text =
      R"({"z": [1, -2, 3.5, "a\u00e4", true, null, {}, [[]]], "a": {"b": {"c": 18446744073709551615}}, "": 1e300})";
  auto found = ParseJson("x", text);
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ((**found).dump(), Json::parse(text).dump());
  auto scalar = ParseJson("x", " 7 ");
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ(**scalar, 7);
  for (const char* wrong : {"", "{", "[1,]", "{\"a\" 1}", "1 2", "1e999", "\"\xff\""}) {
    const auto result = ParseJson("x", wrong);
    ASSERT_FALSE(result.ok()) << wrong;
    EXPECT_THAT(result.error().message(), HasSubstr("x: expected JSON, found a "));
  }
  const auto zero = ParseJson("x", std::string_view("{}\0", 3));
  ASSERT_FALSE(zero.ok());
  EXPECT_EQ(zero.error().message(), "x: expected JSON, found a zero byte at byte 2");
}

// A program that was killed leaves such a file, and the next one may have its number, as each in a container of its own has.
TEST(OutputFile, TemporaryFileOfAnother_StaysAndStopsNobody) {
  const std::string path = ::testing::TempDir() + "output_file_of_" + std::to_string(getpid());
  const std::string left = path + ".part." + std::to_string(getpid());
  std::ofstream(left) << "left";
  SignalWatch signals;
  Output out(STDOUT_FILENO, signals);
  auto file = OutputFile::Create("write", path, out);
  ASSERT_TRUE(file.ok()) << file.error().message();
  ASSERT_TRUE((*file)->Write("new").ok());
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(std::filesystem::file_size(path), 3U);
  EXPECT_EQ(std::filesystem::file_size(left), 4U);
  std::filesystem::remove(path);
  std::filesystem::remove(left);
}

TEST(IdLists, OneListAndLists_AreToldApart) {
  const auto one = ParseIdLists("x", "[1, 2, 3]");
  ASSERT_TRUE(one.ok());
  EXPECT_FALSE(one->is_nested);
  EXPECT_THAT(one->lists, ElementsAre(ElementsAre(1, 2, 3)));
  const auto nested = ParseIdLists("x", "[[1], [2, 2147483647]]");
  ASSERT_TRUE(nested.ok());
  EXPECT_TRUE(nested->is_nested);
  EXPECT_THAT(nested->lists, ElementsAre(ElementsAre(1), ElementsAre(2, 2147483647)));
}

TEST(IdLists, WrongInput_NamesTheFileAndThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"", "mistake at byte"},
                                                                  {"[1, 2", "mistake at byte"},
                                                                  {"{}", "expected a JSON list, found object"},
                                                                  {"[]", "found an empty list"},
                                                                  {"[[1], []]", "list 1: expected at least one id"},
                                                                  {"[1, -2]", "found -2 at index 1"},
                                                                  {"[1.5]", "found 1.5 at index 0"},
                                                                  {"[2147483648]", "found 2147483648 at index 0"},
                                                                  {"[\"a\"]", "found \"a\" at index 0"},
                                                                  {"[1, [2]]", "found array at index 1"},
                                                                  {"[[1], 2]", "list 1: expected a list"}};
  for (const auto& [json, expected] : cases) {
    const auto result = ParseIdLists("ids.json", json);
    ASSERT_FALSE(result.ok()) << json;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(result.error().message().starts_with("read the ids: ids.json: ")) << result.error().message();
    EXPECT_THAT(result.error().message(), HasSubstr(expected));
  }
}

TEST(Conversation, WrittenAndReadBack_IsTheSame) {
  std::vector<ChatMessage> messages = {
      {.role = "system", .content = "be \"brief\"\n", .more_json = ""},
      {.role = "user", .content = "\xc3\xa4 \xf0\x9f\x8c\x8a", .more_json = R"({"name":"x"})"}};
  const auto read = MessagesFromJson("f", MessagesToJson(messages));
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read->at(i).role, messages[i].role);
    EXPECT_EQ(read->at(i).content, messages[i].content);
    EXPECT_EQ(read->at(i).more_json, messages[i].more_json);
  }
}

TEST(Conversation, WrongMessages_AreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[", "mistake at byte"},
      {"{}", "found object"},
      {"[1]", "message 0: expected an object, found number"},
      {R"([{"role":"user","content":"a"},{"role":"user"}])", "message 1: expected a string \"content\", found none"},
      {R"([{"role":1,"content":"a"}])", "message 0: expected a string \"role\", found number"}};
  for (const auto& [json, expected] : cases) {
    const auto result = MessagesFromJson("chat.json", json);
    ASSERT_FALSE(result.ok()) << json;
    EXPECT_THAT(result.error().message(), HasSubstr("chat.json: "));
    EXPECT_THAT(result.error().message(), HasSubstr(expected));
  }
}

// Who writes a value out again needs stack for each level.
TEST(Conversation, DeepNesting_IsRefused) {
  for (const std::string& inner : {std::string(100000, '[') + std::string(100000, ']'), std::string(100000, '[')}) {
    const auto messages =
        MessagesFromJson("m.json", "[{\"role\": \"user\", \"content\": \"a\", \"x\": " + inner + "}]");
    ASSERT_FALSE(messages.ok());
    EXPECT_THAT(messages.error().message(), HasSubstr("m.json: expected JSON, found more than 64 levels"));
  }
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
  for (const std::string json :
       {"", "[]", "{}", R"({"model":1})", R"({"model":"m","threads":0})", R"({"model":"m","depth":[-1]})",
        R"({"model":"m","depth":5})", R"({"model":"m","batch":[0]})", R"({"model":"m","repeats":1.5})",
        R"({"model":"m","batch_prompt":[9,3]})", R"({"model":"m","batch_prompt":[9]})",
        R"({"model":"m","flash_attn":1})"}) {
    const auto settings = ParseChildSettings(json);
    ASSERT_FALSE(settings.ok()) << json;
    EXPECT_EQ(settings.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_THAT(ParseChildSettings(R"({"model":"m","seed":1,"seed":2})").error().message(),
              HasSubstr("read the bench settings: expected JSON, found the member \"seed\" twice"));
  EXPECT_THAT(ParseChildSettings("[1]").error().message(), HasSubstr("expected one JSON object, found array"));
  const std::string deep = R"({"model":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_THAT(ParseChildSettings(deep).error().message(), HasSubstr("found more than 64 levels"));
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

TEST(CpuInfo, NameAndFlags_AreOfTheFirstCpu) {
  const CpuInfo info = ParseCpuInfo(
      "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: Some CPU 9\n"
      "flags\t\t: fpu avx2 fma f16c avx512f avx512_vnni\n\nprocessor\t: 1\n"
      "cpu family\t: 6\nmodel\t: 85\nmodel name\t: Another\nflags\t: none\n");
  EXPECT_EQ(info.name, "Some CPU 9, family 26 model 2");
  EXPECT_THAT(info.flags, ElementsAre("fpu", "avx2", "fma", "f16c", "avx512f", "avx512_vnni"));
  EXPECT_THAT(FeaturesOf(info, "avx2").used, ElementsAre("AVX2", "FMA", "F16C"));
  EXPECT_THAT(FeaturesOf(info, "avx2").unused, ElementsAre("AVX512", "AVX512_VNNI"));
  EXPECT_TRUE(FeaturesOf(info, "baseline").used.empty());
  EXPECT_EQ(ParseCpuInfo("").name, "unknown CPU");
  EXPECT_EQ(ParseCpuInfo("model name\t: Some CPU 9\n").name, "Some CPU 9");
  EXPECT_EQ(ParseCpuInfo("model name\t: Some CPU 9\nmodel\t: 2\n").name, "Some CPU 9");
}

}  // namespace
}  // namespace tidemill::cli
