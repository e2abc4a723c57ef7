#include "base/json_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tidemill::json_document_test {
namespace {

using std::string_literals::operator""s;
using ::testing::ElementsAre;

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
constexpr int64_t kIntMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kIntMax = std::numeric_limits<int64_t>::max();

JsonDocument Parsed(const std::string& text) {
  auto document = JsonDocument::Parse("config.json", text);
  EXPECT_TRUE(document.ok()) << document.error().message();
  return std::move(document).value();
}

template <typename T>
void ExpectError(const Result<T>& result, ErrorCode code, const std::string& message) {
  ASSERT_FALSE(result.ok()) << message;
  EXPECT_EQ(ErrorCodeName(result.error().code()), ErrorCodeName(code));
  EXPECT_EQ(result.error().message(), message);
}

// What config.json has, in short.
constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "rms_norm_eps": 1e-05, "rope_theta": 10000,
  "tie_word_embeddings": false, "use_cache": true, "pad_token_id": null, "eos_token_id": [1, 2], "bos_token_id": 1,
  "rope_parameters": {"full_attention": {"rope_theta": 1000000.0, "rope_type": "default"}, "sliding_attention": {}},
  "mixed": [1, "a", null, [2.5], {"content": "x"}], "name.with.dots": 7, "name": {"with": {"dots": 8}, "x": 9},
  "escaped \"key\"\n": "caf\u00e9", "": "empty", "negative": -3, "big": 18446744073709551615, "bigger": 18446744073709551616
})";

TEST(JsonDocument, Values_AnswerToTheirGetters) {
  const JsonDocument config = Parsed(kConfig);
  EXPECT_EQ(config.name(), "config.json");
  EXPECT_EQ(config.GetUint("hidden_size", 64, 64).value(), 64U);
  EXPECT_EQ(config.GetInt("negative", -3, -3).value(), -3);
  EXPECT_EQ(config.GetUint("big", 0, kMax).value(), kMax);
  EXPECT_EQ(config.GetFloat("rms_norm_eps").value(), 1e-5);
  EXPECT_EQ(config.GetFloat("rope_theta").value(), 10000.0);
  EXPECT_EQ(config.GetFloat("negative").value(), -3.0);
  EXPECT_EQ(config.GetFloat("big").value(), 0x1p64);
  EXPECT_EQ(config.GetFloat("bigger").value(), 0x1p64);
  EXPECT_FALSE(config.GetBool("tie_word_embeddings").value());
  EXPECT_TRUE(config.GetBool("use_cache").value());
  EXPECT_THAT(config.GetStrings("architectures").value(), ElementsAre("LlamaForCausalLM"));
  EXPECT_THAT(config.GetInts("eos_token_id").value(), ElementsAre(1, 2));
  EXPECT_THAT(config.GetFloats("eos_token_id").value(), ElementsAre(1.0, 2.0));
  EXPECT_THAT(config.GetOneOrMoreInts("eos_token_id").value(), ElementsAre(1, 2));
  EXPECT_THAT(config.GetOneOrMoreInts("bos_token_id").value(), ElementsAre(1));
  EXPECT_EQ(config.GetString("escaped \"key\"\n").value(), "caf\xC3\xA9");
}

TEST(JsonDocument, Paths_LeadThroughObjects) {
  const JsonDocument config = Parsed(kConfig);
  EXPECT_EQ(config.GetFloat("rope_parameters.full_attention.rope_theta").value(), 1e6);
  EXPECT_EQ(config.GetUint("name.with.dots", 0, 9).value(), 7U);  // a key of its own comes first
  EXPECT_EQ(config.GetUint("name.x", 0, 9).value(), 9U);
  const JsonValue rope = config.GetObject("rope_parameters").value();
  EXPECT_EQ(rope.GetString("full_attention.rope_type").value(), "default");
  EXPECT_THAT(rope.Keys(), ElementsAre("full_attention", "sliding_attention"));
  for (const char* path :
       {"gone", "rope_parameters.gone", "rope_parameters.full_attention.rope_theta.x", "hidden_size.", ".hidden_size",
        "rope_parameters.", ".", "..", "hidden", "hidden_size2", "mixed.0"}) {
    EXPECT_FALSE(config.Find(path).has_value()) << path;
    EXPECT_FALSE(config.Has(path)) << path;
    EXPECT_FALSE(config.IsNull(path)) << path;
  }
  EXPECT_TRUE(config.Find("")->is_object());  // itself
  EXPECT_TRUE(config.Has("rope_parameters.sliding_attention"));
  EXPECT_FALSE(config.Has("pad_token_id"));
  EXPECT_TRUE(config.IsNull("pad_token_id"));
}

TEST(JsonDocument, Elements_KnowWhereTheyStand) {
  const JsonDocument config = Parsed(kConfig);
  const std::vector<JsonValue> elements = config.GetArray("mixed").value().Elements();
  ASSERT_EQ(elements.size(), 5U);
  EXPECT_TRUE(elements[0].is_integer());
  EXPECT_TRUE(elements[1].is_string());
  EXPECT_TRUE(elements[2].is_null());
  EXPECT_TRUE(elements[3].is_array());
  EXPECT_EQ(elements[3].Elements()[0].path(), "mixed[3][0]");
  EXPECT_TRUE(elements[3].Elements()[0].is_number());
  EXPECT_EQ(elements[4].Find("content")->path(), "mixed[4].content");
  EXPECT_EQ(elements[4].GetString("content").value(), "x");
  EXPECT_EQ(config.path(), "");
  EXPECT_TRUE(config.Find("hidden_size")->Elements().empty());
  EXPECT_TRUE(config.Find("hidden_size")->Keys().empty());
  ExpectError(elements[4].GetUint("content", 0, 5), ErrorCode::kCorruptFile,
              "config.json: \"mixed[4].content\": expected an integer of 0 to 5, found \"x\"");
  ExpectError(elements[1].GetUint("", 0, 5), ErrorCode::kCorruptFile,
              "config.json: \"mixed[1]\": expected an integer of 0 to 5, found \"a\"");
  ExpectError(config.GetUint("", 0, 5), ErrorCode::kCorruptFile,
              "config.json: expected an integer of 0 to 5, found an object");
}

TEST(JsonDocument, AnyRoot_MayBeAnyValue) {
  const auto parsed = [](std::string_view text) { return JsonDocument::Parse("x", text, {.any_root = true}); };
  EXPECT_EQ(parsed(" 7 ")->GetUint("", 0, 9).value(), 7U);
  EXPECT_EQ(parsed("\"a\\u0041\"")->GetString("").value(), "aA");
  EXPECT_TRUE(parsed("null")->is_null());
  const auto list = parsed("[1,[2]]");
  EXPECT_EQ(list->size(), 2U);
  EXPECT_EQ(list->num_values(), 4U);
  EXPECT_EQ(list->Elements()[1].Elements()[0].path(), "[1][0]");
}

TEST(JsonDocument, Values_SayWhatTheyAre) {
  const JsonDocument config = Parsed(kConfig);
  const std::pair<const char*, const char*> cases[] = {
      {"architectures", "an array"},   {"rope_parameters", "an object"},
      {"use_cache", "true"},           {"tie_word_embeddings", "false"},
      {"pad_token_id", "null"},        {"negative", "-3"},
      {"big", "18446744073709551615"}, {"bigger", "18446744073709551616"},
      {"rms_norm_eps", "1e-05"},       {"", "\"empty\""}};
  for (const auto& [key, text] : cases) EXPECT_EQ(config.Member(key)->Describe(), text);
  EXPECT_EQ(config.Member("bigger")->text(), "18446744073709551616");  // a float as it was written
  EXPECT_EQ(config.Member("big")->text(), "");
  EXPECT_FALSE(config.Member("rope_parameters.full_attention"));
  const auto members = config.Find("name")->Members();
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[1].first, "x");
  EXPECT_EQ(members[1].second.GetUint("", 0, 9).value(), 9U);
}

TEST(JsonDocument, Keys_KeepTheOrderOfTheFile) {
  EXPECT_THAT(Parsed(R"({"z":1,"a":{"q":1},"m":[1,{"r":2}],"b":2})").Keys(), ElementsAre("z", "a", "m", "b"));
  EXPECT_TRUE(Parsed("{}").Keys().empty());
}

TEST(JsonDocument, WhatNobodyAskedFor_IsUnread) {
  const auto document = JsonDocument::Parse(
      "f",
      R"({"z": 1, "a": {"x": 1, "y": {"deep": 1}, "n": null}, "list": [1], "l2": {"q": 1}, "m": {"r": 1}, "h": 1})");
  ASSERT_TRUE(document.ok());
  const auto unread = [&] {
    std::vector<std::string> paths;
    for (const JsonValue& value : document->Unread()) paths.push_back(value.path());
    return paths;
  };
  EXPECT_EQ(unread(), (std::vector<std::string>{"z", "a", "list", "l2", "m", "h"}));
  EXPECT_TRUE(document->Has("h"));
  EXPECT_TRUE(document->Peek("h").has_value());
  EXPECT_FALSE(document->Find("l2.missing").has_value());
  EXPECT_TRUE(document->GetUint("a.x", 0, 1).ok());
  EXPECT_TRUE(document->GetInts("list").ok());
  EXPECT_EQ(document->Find("m")->Members().size(), 1U);
  EXPECT_EQ(unread(), (std::vector<std::string>{"z", "a.y", "l2.q", "h"}));
  EXPECT_TRUE(document->Member("z").has_value());
  EXPECT_TRUE(document->GetUintOr("h", 0, 0, 1).ok());
  EXPECT_EQ(unread(), (std::vector<std::string>{"a.y", "l2.q"}));
}

TEST(JsonDocument, MissingOrNull_IsTheFallback) {
  const JsonDocument config = Parsed(R"({"n":3,"f":0.5,"b":true,"s":"x","null":null,"o":{"null":null}})");
  for (const char* path : {"gone", "null", "o.null", "o.gone", "gone.gone"}) {
    EXPECT_EQ(config.GetUintOr(path, 7, 0, 1).value(), 7U) << path;
    EXPECT_EQ(config.GetIntOr(path, -7, 0, 1).value(), -7) << path;
    EXPECT_EQ(config.GetFloatOr(path, 0.25).value(), 0.25) << path;
    EXPECT_TRUE(config.GetBoolOr(path, true).value()) << path;
    EXPECT_EQ(config.GetStringOr(path, "y").value(), "y") << path;
  }
  EXPECT_EQ(config.GetUintOr("n", 7, 0, 9).value(), 3U);
  EXPECT_EQ(config.GetIntOr("n", 7, 0, 9).value(), 3);
  EXPECT_EQ(config.GetFloatOr("f", 7).value(), 0.5);
  EXPECT_TRUE(config.GetBoolOr("b", false).value());
  EXPECT_EQ(config.GetStringOr("s", "y").value(), "x");
  EXPECT_EQ(config.GetUintOr("n", 7, 0, 2).error().code(), ErrorCode::kCorruptFile);  // there and wrong
  EXPECT_EQ(config.GetIntOr("s", 7, 0, 2).error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(config.GetFloatOr("s", 7).error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(config.GetBoolOr("n", false).error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(config.GetStringOr("n", "y").error().code(), ErrorCode::kCorruptFile);
}

TEST(JsonDocument, WrongValues_AreNamed) {
  const JsonDocument config = Parsed(
      R"({"s":"x","n":30,"f":4.0,"null":null,"neg":-1,"big":18446744073709551616,"o":{},"a":[1,"b",2.5],"t":true,"long":")" +
      std::string(100, 'x') + R"("})");
  const std::pair<Error, std::string> cases[] = {
      {config.GetUint("gone", 1, 9).error(), "\"gone\": expected an integer of 1 to 9, found no such key"},
      {config.GetUint("s", 1, 1048576).error(), "\"s\": expected an integer of 1 to 1048576, found \"x\""},
      {config.GetUint("n", 31, 40).error(), "\"n\": expected an integer of 31 to 40, found 30"},
      {config.GetUint("n", 1, 29).error(), "\"n\": expected an integer of 1 to 29, found 30"},
      {config.GetUint("f", 0, 9).error(), "\"f\": expected an integer of 0 to 9, found 4.0"},
      {config.GetUint("neg", 0, kMax).error(), "\"neg\": expected an integer of 0 to 18446744073709551615, found -1"},
      {config.GetUint("big", 0, 1).error(), "\"big\": expected an integer of 0 to 1, found 18446744073709551616"},
      {config.GetUint("null", 0, 1).error(), "\"null\": expected an integer of 0 to 1, found null"},
      {config.GetUint("o", 0, 1).error(), "\"o\": expected an integer of 0 to 1, found an object"},
      {config.GetInt("neg", 0, 1).error(), "\"neg\": expected an integer of 0 to 1, found -1"},
      {config.GetInt("gone", -1, 1).error(), "\"gone\": expected an integer of -1 to 1, found no such key"},
      {config.GetFloat("s").error(), "\"s\": expected a number, found \"x\""},
      {config.GetFloat("t").error(), "\"t\": expected a number, found true"},
      {config.GetFloat("gone.gone").error(), "\"gone.gone\": expected a number, found no such key"},
      {config.GetBool("n").error(), "\"n\": expected true or false, found 30"},
      {config.GetString("n").error(), "\"n\": expected a string, found 30"},
      {config.GetString("a").error(), "\"a\": expected a string, found an array"},
      {config.GetInts("a").error(),
       "\"a[1]\": expected an integer of -9223372036854775808 to 9223372036854775807, found \"b\""},
      {config.GetInts("n").error(), "\"n\": expected an array of integers, found 30"},
      {config.GetOneOrMoreInts("s").error(), "\"s\": expected an integer or an array of integers, found \"x\""},
      {config.GetOneOrMoreInts("gone").error(),
       "\"gone\": expected an integer or an array of integers, found no such key"},
      {config.GetFloats("a").error(), "\"a[1]\": expected a number, found \"b\""},
      {config.GetStrings("a").error(), "\"a[0]\": expected a string, found 1"},
      {config.GetStrings("o").error(), "\"o\": expected an array of strings, found an object"},
      {config.GetObject("a").error(), "\"a\": expected an object, found an array"},
      {config.GetArray("o").error(), "\"o\": expected an array, found an object"},
      {config.GetBool("long").error(), "\"long\": expected true or false, found \"" + std::string(80, 'x') + "...\""},
      {config.Unexpected("n", "a divisor of 64"), "\"n\": expected a divisor of 64, found 30"},
      {config.GetBool("a\nb").error(), "\"a\\x0ab\": expected true or false, found no such key"},
  };
  for (const auto& [error, message] : cases) {
    EXPECT_EQ(error.message(), "config.json: " + message);
    const bool missing = message.ends_with("no such key");
    EXPECT_EQ(error.code(), missing ? ErrorCode::kNotFound : ErrorCode::kCorruptFile) << message;
  }
}

TEST(JsonDocument, Integers_AreExactToTheLastBit) {
  const JsonDocument numbers = Parsed(
      R"({"min":-9223372036854775808,"max":9223372036854775807,"above":9223372036854775808,"odd":9007199254740993,"zero":-0})");
  EXPECT_EQ(numbers.GetInt("min", kIntMin, kIntMax).value(), kIntMin);
  EXPECT_EQ(numbers.GetInt("max", kIntMin, kIntMax).value(), kIntMax);
  EXPECT_FALSE(numbers.GetInt("above", kIntMin, kIntMax).ok());
  EXPECT_EQ(numbers.GetUint("above", 0, kMax).value(), uint64_t{1} << 63);
  EXPECT_EQ(numbers.GetUint("odd", 0, kMax).value(), 9007199254740993U);
  EXPECT_EQ(numbers.GetUint("zero", 0, kMax).value(), 0U);
}

TEST(JsonDocument, Move_KeepsValuesAndViews) {
  JsonDocument first = Parsed(R"({"a":"text","b":["\u0041"]})");
  const JsonValue b = first.GetArray("b").value();
  const std::string_view text = first.GetString("a").value();
  const JsonDocument second = std::move(first);
  EXPECT_EQ(text, "text");
  EXPECT_EQ(b.Elements()[0].GetString("").value(), "A");
  EXPECT_EQ(second.GetString("a").value(), "text");
}

TEST(JsonDocument, WhatIsNoDocument_IsRefusedWithItsPlace) {
  const std::pair<std::string, std::string> cases[] = {
      {"",
       "byte 0: expected JSON, found a syntax error while parsing value - unexpected end of input; expected '[', '{', "
       "or a "
       "literal"},
      {"[]", "byte 0: expected an object, found an array"},
      {" 1", "byte 1: expected an object, found 1"},
      {"\"x\"", "byte 0: expected an object, found \"x\""},
      {"null", "byte 0: expected an object, found null"},
      {"{\"a\":1,\"a\":1}", "byte 7: expected each key of an object once, found \"a\", which also stands at byte 1"},
      {"{\"x\":[{\"a\":1,\"b\":2,\"\\u0061\":1}]}",
       "byte 19: expected each key of an object once, found \"a\", which also stands at byte 7"},
      {"{\"time_step_limit\": [0.0, Infinity]}",
       "byte 26: expected JSON, found Infinity, which only Python writes; replace it by a number"},
      {"{\"a\": NaN}", "byte 6: expected JSON, found NaN, which only Python writes; replace it by a number"},
      {"{} // comment", "byte 3: expected JSON, found a syntax error while parsing value - invalid literal"},
      {"{\"a\":1}\0"s, "byte 7: expected JSON, found a zero byte"},
      {"{\"a\":\"\xFF\"}",
       "byte 6: expected JSON, found a syntax error while parsing value - invalid string: ill-formed UTF-8 "
       "byte"},
  };
  for (const auto& [text, message] : cases) {
    ExpectError(JsonDocument::Parse("config.json", text), ErrorCode::kCorruptFile, "config.json: " + message);
  }
}

TEST(JsonDocument, Limits_AreUnsupported) {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(static_cast<size_t>(depth - 1), '[') +
           std::string(static_cast<size_t>(depth - 1), ']') + "}";
  };
  EXPECT_TRUE(JsonDocument::Parse("config.json", nested(64)).ok());
  ExpectError(JsonDocument::Parse("config.json", nested(65)), ErrorCode::kUnsupported,
              "config.json: byte 68: expected at most 64 levels of nesting, found more");
  ExpectError(JsonDocument::Parse("config.json", "{\"a\":[1,2]}", {.max_values = 3}), ErrorCode::kUnsupported,
              "config.json: byte 8: expected at most 3 values, found more");
  EXPECT_TRUE(JsonDocument::Parse("config.json", "{\"a\":[1,2]}", {.max_values = 4}).ok());
  ExpectError(JsonDocument::Parse("config.json", "{}" + std::string(15, ' '), {.max_bytes = 16}),
              ErrorCode::kUnsupported, "config.json: expected at most 16 bytes, found 17");
  ExpectError(JsonDocument::Parse("config.json", std::string((16 << 20) + 1, ' ')), ErrorCode::kUnsupported,
              "config.json: expected at most 16777216 bytes, found 16777217");
}

TEST(JsonDocument, ManyKeys_AreFound) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i)
    text += (i == 0 ? "\"k" : ",\"k") + std::to_string(i * 7919 % 100'000) + "\":" + std::to_string(i);
  const JsonDocument document = Parsed(text + "}");
  EXPECT_EQ(document.Keys().size(), 100'000U);
  for (uint64_t i = 0; i < 100'000; i += 997) {
    EXPECT_EQ(document.GetUint("k" + std::to_string(i * 7919 % 100'000), 0, kMax).value(), i);
  }
}

}  // namespace
}  // namespace tidemill::json_document_test
