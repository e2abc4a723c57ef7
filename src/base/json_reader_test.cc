#include "base/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidemill::json_reader_test {
namespace {

using std::string_literals::operator""s;

// Each event as "BYTE KIND SOURCE", and what else it carries.
std::vector<std::string> Events(const std::string& text, const JsonLimits& limits = {}) {
  std::vector<std::string> events;
  const auto read = ReadJson(text, limits, [&](const JsonEvent& event) -> Result<void> {
    constexpr const char* kKinds[] = {"null", "bool", "int", "float", "string", "key", "{", "}", "[", "]"};
    std::string line = std::to_string(event.at) + " " + kKinds[static_cast<int>(event.kind)];
    if (event.kind <= JsonKind::kKey) line += " " + std::string(event.source);
    if (event.kind == JsonKind::kString || event.kind == JsonKind::kKey) line += " -> " + std::string(event.text);
    if (event.kind == JsonKind::kInteger && event.negative) line += " negative";
    events.push_back(line);
    return {};
  });
  if (!read.ok()) {
    events.push_back(std::string(ErrorCodeName(read.error().code())) + ": " + read.error().message());
  }
  return events;
}

std::string LastEvent(const std::string& text, const JsonLimits& limits = {}) { return Events(text, limits).back(); }

TEST(JsonReader, Events_SayWhereTheyStandAndWhatWasWritten) {
  EXPECT_THAT(
      Events("{\"a\": [1, -20,3.5e1 ], \"b\\n\\u00e9\" :\n{ } , \"c\":[true,false,null]}"),
      ::testing::ElementsAre("0 {", "1 key \"a\" -> a", "6 [", "7 int 1", "10 int -20 negative", "14 float 3.5e1",
                             "20 ]", "23 key \"b\\n\\u00e9\" -> b\n\xC3\xA9", "37 {", "39 }", "43 key \"c\" -> c",
                             "47 [", "48 bool true", "53 bool false", "59 null null", "63 ]", "64 }"));
  EXPECT_THAT(Events(" 12"), ::testing::ElementsAre("1 int 12"));
  EXPECT_THAT(Events("12 "), ::testing::ElementsAre("0 int 12"));
  EXPECT_THAT(Events("\"\\ud83c\\udf0a\""), ::testing::ElementsAre("0 string \"\\ud83c\\udf0a\" -> \xF0\x9F\x8C\x8A"));
  EXPECT_THAT(Events("[0]", {.first_byte = 8}), ::testing::ElementsAre("8 [", "9 int 0", "10 ]"));
}

TEST(JsonReader, Numbers_AreExactWhereTheyFit) {
  const auto number = [](const std::string& text) {
    JsonEvent found;
    EXPECT_TRUE(ReadJson(text, {},
                         [&](const JsonEvent& event) -> Result<void> {
                           found = event;
                           return {};
                         })
                    .ok())
        << text;
    return found;
  };
  EXPECT_EQ(number("18446744073709551615").integer, UINT64_MAX);
  EXPECT_EQ(number("18446744073709551616").kind, JsonKind::kFloat);
  EXPECT_EQ(number("18446744073709551616").number, 0x1p64);
  EXPECT_EQ(number("-9223372036854775808").integer, uint64_t{1} << 63);
  EXPECT_TRUE(number("-9223372036854775808").negative);
  EXPECT_EQ(number("-9223372036854775809").kind, JsonKind::kFloat);
  EXPECT_FALSE(number("-0").negative);
  EXPECT_EQ(number("1e-5").number, 1e-5);
  EXPECT_EQ(number("7").number, 7.0);
  EXPECT_EQ(number("-7").number, -7.0);
}

TEST(JsonReader, WhatIsNotJson_IsRefusedWithItsPlace) {
  const std::pair<std::string, std::string> cases[] = {
      {"",
       "byte 0: expected JSON, found a syntax error while parsing value - unexpected end of input; expected '[', '{', "
       "or a literal"},
      {"{",
       "byte 1: expected JSON, found a syntax error while parsing object key - unexpected end of input; expected "
       "string literal"},
      {"[1,]",
       "byte 3: expected JSON, found a syntax error while parsing value - unexpected ']'; expected '[', '{', or a "
       "literal"},
      {"{\"a\":1,}",
       "byte 7: expected JSON, found a syntax error while parsing object key - unexpected '}'; expected string "
       "literal"},
      {"{a:1}", "byte 1: expected JSON, found a syntax error while parsing object key - invalid literal"},
      {"[1] x", "byte 4: expected JSON, found a syntax error while parsing value - invalid literal"},
      {"[1] 2",
       "byte 4: expected JSON, found a syntax error while parsing value - unexpected number literal; expected end "
       "of input"},
      {"[tru]", "byte 4: expected JSON, found a syntax error while parsing value - invalid literal"},
      {"[01]",
       "byte 2: expected JSON, found a syntax error while parsing array - unexpected number literal; expected ']'"},
      {"['a']", "byte 1: expected JSON, found a syntax error while parsing value - invalid literal"},
      {"[\"a\nb\"]",
       "byte 3: expected JSON, found a syntax error while parsing value - invalid string: control character "
       "U+000A (LF) must be escaped to \\u000A or \\n"},
      {"[\"\xC3(\"]",
       "byte 3: expected JSON, found a syntax error while parsing value - invalid string: ill-formed UTF-8 "
       "byte"},
      {"[\"\\ud800\"]",
       "byte 8: expected JSON, found a syntax error while parsing value - invalid string: surrogate "
       "U+D800..U+DBFF must be followed by U+DC00..U+DFFF"},
      {"[\"\\x\"]",
       "byte 3: expected JSON, found a syntax error while parsing value - invalid string: forbidden character "
       "after backslash"},
      {"[\"abc",
       "byte 5: expected JSON, found a syntax error while parsing value - invalid string: missing closing quote"},
      {"[1 /* a */]", "byte 3: expected JSON, found a syntax error while parsing array - invalid literal"},
      {"[1]\0[2]"s, "byte 3: expected JSON, found a zero byte"},
      {"\xEF\xBB\xBF[1]", "byte 0: expected JSON, found a byte order mark; save the file without it"},
      {"[NaN]", "byte 1: expected JSON, found NaN, which only Python writes; replace it by a number"},
      {"{\"a\": Infinity}", "byte 6: expected JSON, found Infinity, which only Python writes; replace it by a number"},
      {"[0.0, -Infinity]", "byte 6: expected JSON, found -Infinity, which only Python writes; replace it by a number"},
      {"[1e999]", "byte 1: expected a number within the range of a double, found a larger one"},
      {"[nan]", "byte 2: expected JSON, found a syntax error while parsing value - invalid literal"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(LastEvent(text), "CorruptFile: " + message);
}

TEST(JsonReader, Limits_AreUnsupported) {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(LastEvent(deep), "127 ]");
  EXPECT_EQ(LastEvent("[" + deep + "]"), "Unsupported: byte 64: expected at most 64 levels of nesting, found more");
  EXPECT_EQ(LastEvent(std::string(1 << 20, '[')),
            "Unsupported: byte 64: expected at most 64 levels of nesting, found more");
  EXPECT_EQ(LastEvent("[1,2,{\"a\":3}]", {.max_values = 5}), "12 ]");
  EXPECT_EQ(LastEvent("[1,2,{\"a\":3}]", {.max_values = 4}),
            "Unsupported: byte 10: expected at most 4 values, found more");
}

TEST(JsonReader, HandlersError_EndsTheReading) {
  size_t events = 0;
  const auto read = ReadJson("[1, 2, 3, x", {}, [&](const JsonEvent& event) -> Result<void> {
    ++events;
    if (event.source == "2") return Error(ErrorCode::kNotFound, "two");
    return {};
  });
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().message(), "two");
  EXPECT_EQ(read.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(events, 3U);
}

}  // namespace
}  // namespace tidemill::json_reader_test
