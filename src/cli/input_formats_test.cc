// What commands read from files: lists of ids, conversations, /proc/cpuinfo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/conversation.h"
#include "cli/cpu_info.h"
#include "cli/files.h"
#include "cli/id_lists.h"
#include "cli/json.h"
#include "tests/support/cpu_seconds.h"

namespace tidemill::cli::input_formats_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(ParseJson, ManyMembersAndElements_TakeTimeInProportion) {
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

TEST(ParseJson, Faults_AreTheCallers) {
  const auto scalar = ParseJson("x", " 7 ");
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ(scalar->GetUint("", 0, 9).value(), 7U);
  for (const char* wrong : {"", "{", "[1,]", "{\"a\" 1}", "1 2", "\"\xff\""}) {
    const auto result = ParseJson("x", wrong);
    ASSERT_FALSE(result.ok()) << wrong;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(result.error().message(), MatchesRegex("x: byte [0-9]+: expected JSON, found a .*"));
  }
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
  const std::vector<std::pair<std::string, std::string>> cases = {{"", "expected JSON, found a syntax error"},
                                                                  {"[1, 2", "expected JSON, found a syntax error"},
                                                                  {"{}", "expected a JSON list, found an object"},
                                                                  {"[]", "found an empty list"},
                                                                  {"[[1], []]", "list 1: expected at least one id"},
                                                                  {"[1, -2]", "found -2 at index 1"},
                                                                  {"[1.5]", "found 1.5 at index 0"},
                                                                  {"[2147483648]", "found 2147483648 at index 0"},
                                                                  {"[\"a\"]", "found \"a\" at index 0"},
                                                                  {"[1, [2]]", "found an array at index 1"},
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
      {"[", "expected JSON, found a syntax error"},
      {"{}", "found an object"},
      {"[1]", "message 0: expected an object, found 1"},
      {R"([{"role":"user","content":"a"},{"role":"user"}])", "message 1: expected a string \"content\", found none"},
      {R"([{"role":1,"content":"a"}])", "message 0: expected a string \"role\", found 1"}};
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
    EXPECT_THAT(messages.error().message(), HasSubstr("expected at most 64 levels of nesting, found more"));
  }
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
}  // namespace tidemill::cli::input_formats_test
