#include "text/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/small_vocabulary.h"
#include "text/tokenizer_document.h"
#include "tidemill/tokenizer.h"

namespace tidemill::tokenizer_json_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Added(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// SmallSpec("gpt-2") as a tokenizer.json.
json SmallJson() {
  const TokenizerSpec spec = testing::SmallSpec("gpt-2");
  json vocabulary = json::object();
  json added = json::array();
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    vocabulary[spec.tokens[id]] = id;
    if (spec.types[id] != TokenType::kNormal) {
      added.push_back(Added(static_cast<int>(id), spec.tokens[id], spec.types[id] == TokenType::kControl));
    }
  }
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", spec.merges}}}};
}

// A vocabulary of characters: "<unk>", all bytes, U+2581, "a", "b", U+2581 "a".
json CharacterJson() {
  json vocabulary = {{"<unk>", 0}};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    const auto digit = [&](int value) { return std::string(1, kHex[static_cast<size_t>(value)]); };
    vocabulary["<0x" + digit(byte / 16) + digit(byte % 16) + ">"] = byte + 1;
  }
  vocabulary["\xE2\x96\x81"] = 257;
  vocabulary["a"] = 258;
  vocabulary["b"] = 259;
  vocabulary
      ["\xE2\x96\x81"
       "a"] = 260;
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}};
  const json restore = {{"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}};
  return {
      {"added_tokens", json::array({Added(0, "<unk>", true)})},
      {"normalizer", replace},
      {"decoder",
       {{"type", "Sequence"}, {"decoders", json::array({restore, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}})}}},
      {"model",
       {{"type", "BPE"},
        {"byte_fallback", true},
        {"vocab", vocabulary},
        {"merges", json::array({json::array({"\xE2\x96\x81", "a"})})}}}};
}

void ExpectError(std::string_view text, ErrorCode code, const std::string& part) {
  const auto spec = ReadTokenizerJson(text);
  ASSERT_FALSE(spec.ok()) << part;
  EXPECT_EQ(spec.error().code(), code) << spec.error().message();
  EXPECT_THAT(spec.error().message(), HasSubstr(part));
  EXPECT_THAT(spec.error().message(), ::testing::StartsWith("read tokenizer.json: "));
}

// One part of a good file is another.
struct Change {
  const char* pointer;
  const char* value;
  ErrorCode code;
  const char* part;
};
void ExpectErrors(const json& good, const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    json document = good;
    document[json::json_pointer(change.pointer)] = json::parse(change.value);
    ExpectError(document.dump(), change.code, change.part);
  }
}

TEST(ReadTokenizerJson, SmallVocabulary_AsTheSpec) {
  const TokenizerSpec expected = testing::SmallSpec("gpt-2");
  const TokenizerSpec spec = ReadTokenizerJson(SmallJson().dump()).value();
  EXPECT_EQ(spec.kind, VocabularyKind::kByteLevel);
  EXPECT_EQ(spec.tokens, expected.tokens);
  EXPECT_EQ(spec.types, expected.types);
  EXPECT_EQ(spec.merges, expected.merges);
  EXPECT_EQ(spec.pre_tokenizer, "gpt-2");
  EXPECT_FALSE(spec.ignore_merges || spec.normalize_nfc || spec.add_bos || spec.add_eos || spec.add_space_prefix);
  EXPECT_EQ(spec.bos_id, std::nullopt);
  EXPECT_TRUE(CreateTokenizer(spec).ok());
}

TEST(ReadTokenizerJson, MergesAsPairs_TheSame) {
  json document = SmallJson();
  for (json& merge : document["model"]["merges"]) {
    const auto text = merge.get<std::string>();
    merge = json::array({text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)});
  }
  EXPECT_EQ(ReadTokenizerJson(document.dump()).value().merges, testing::SmallSpec("gpt-2").merges);
}

TEST(ReadTokenizerJson, TokensAddedBehindTheVocabulary_HaveTheirIds) {
  json document = SmallJson();
  const auto size = static_cast<int>(testing::SmallSpec("gpt-2").tokens.size());
  document["added_tokens"].push_back(Added(size + 1, "<second>", false));
  document["added_tokens"].push_back(Added(size, "<first>", true));
  const Tokenizer tokenizer = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_EQ(tokenizer.FindToken("<first>"), size);
  EXPECT_TRUE(tokenizer.IsSpecial(size));
  EXPECT_FALSE(tokenizer.IsSpecial(size + 1));
  EXPECT_THAT(tokenizer.Encode("<second>").value(), ::testing::ElementsAre(size + 1));
}

TEST(ReadTokenizerJson, Template_SaysWhatIsAdded) {
  json document = SmallJson();
  const auto token = [](const char* name, int id) -> json { return {{"id", name}, {"ids", {id}}}; };
  document["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       json::parse(R"([{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"</s>"}}])")},
      {"special_tokens", {{"<s>", token("<s>", 270)}, {"</s>", token("</s>", 271)}}}};
  const TokenizerSpec spec = ReadTokenizerJson(document.dump()).value();
  EXPECT_TRUE(spec.add_bos && spec.add_eos);
  EXPECT_EQ(spec.bos_id, 270);
  EXPECT_EQ(spec.eos_id, 271);
  ExpectErrors(
      document,
      {{"/post_processor/single/1", R"({"SpecialToken":{"id":"<s>"}})", ErrorCode::kUnsupported,
        "at most one token before"},
       {"/post_processor/single/0", R"({"Sequence":{"id":"A"}})", ErrorCode::kUnsupported, "the text once"},
       {"/post_processor/single/0", "7", ErrorCode::kUnsupported, "the text once"},
       {"/post_processor/single", "7", ErrorCode::kCorruptFile, "single: expected a list"},
       {"/post_processor/special_tokens/<s>/ids", "[1, 2]", ErrorCode::kUnsupported, "\"<s>\": expected one id"},
       {"/post_processor/special_tokens/<s>/ids", "[4294967296]", ErrorCode::kCorruptFile, "out of range"},
       {"/post_processor/special_tokens", "{}", ErrorCode::kUnsupported, "\"<s>\": expected one id"}});
}

TEST(ReadTokenizerJson, WhatIsNotSupported_RefusedByName) {
  constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;
  ExpectErrors(
      SmallJson(),
      {{"/model/type", "\"Unigram\"", kUnsupported, "model: type \"Unigram\": expected BPE"},
       {"/model/dropout", "0.1", kUnsupported, "dropout"},
       {"/model/continuing_subword_prefix", "\"##\"", kUnsupported, "continuing_subword_prefix \"##\""},
       {"/model/end_of_word_suffix", "\"</w>\"", kUnsupported, "end_of_word_suffix \"</w>\""},
       {"/normalizer", R"({"type":"Lowercase"})", kUnsupported,
        "normalizer: expected none or NFC, found \"Lowercase\""},
       {"/normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Strip"}]})", kUnsupported,
        "\"NFC\", \"Strip\""},
       {"/pre_tokenizer", "null", kUnsupported,
        "pre_tokenizer: expected ByteLevel, after Digits or Split or nothing, found none"},
       {"/pre_tokenizer", R"({"type":"Metaspace"})", kUnsupported, "found \"Metaspace\""},
       {"/pre_tokenizer/add_prefix_space", "true", kUnsupported, "add_prefix_space: expected false"},
       {"/pre_tokenizer/use_regex", "false", kUnsupported, "use_regex: expected true"},
       {"/post_processor", R"({"type":"RobertaProcessing"})", kUnsupported, "found \"RobertaProcessing\""},
       {"/decoder", "null", kUnsupported, "decoder: expected ByteLevel, found none"},
       {"/decoder/type", "\"WordPiece\"", kUnsupported, "found \"WordPiece\""},
       {"/added_tokens/0/lstrip", "true", kUnsupported, "added token \"<s>\": lstrip: expected false"},
       {"/added_tokens/0/rstrip", "true", kUnsupported, "added token \"<s>\": rstrip: expected false"},
       {"/added_tokens/0/single_word", "true", kUnsupported, "added token \"<s>\": single_word: expected false"},
       {"/added_tokens/0/normalized", "true", kUnsupported, "expected all of them normalized or none"},
       {"/model/vocab/h", "9999", kUnsupported, "token \"h\": expected ids without gaps"},
       {"/model/merges/0", R"(["a b", "c"])", kUnsupported, "merge 0: expected tokens without spaces, found \"a b\""}});
}

TEST(ReadTokenizerJson, PreTokenizers_KnownOnesAndOthers) {
  const auto with = [](const std::string& steps) {
    json document = SmallJson();
    document["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::parse(steps)}};
    return document.dump();
  };
  const std::string bytes = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  const std::string words = R"({"type":"ByteLevel","add_prefix_space":false})";
  const auto split = [](const std::string& expression, const std::string& how) {
    return json({{"type", "Split"},
                 {"pattern", {{"Regex", expression}}},
                 {"behavior", how},
                 {"invert", how == "Removed"}})
        .dump();
  };
  const std::string qwen2 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const auto rule_of = [](const std::string& document) { return ReadTokenizerJson(document).value().pre_tokenizer; };
  EXPECT_EQ(rule_of(with(R"([{"type":"Digits","individual_digits":true},)" + words + "]")), "smollm");
  EXPECT_EQ(rule_of(with("[" + split(qwen2, "Isolated") + "," + bytes + "]")), "qwen2");
  EXPECT_EQ(rule_of(with("[" + split(qwen2, "Removed") + "," + bytes + "]")), "qwen2");
  const auto refuse = [&](const std::string& steps, const std::string& part) {
    ExpectError(with(steps), ErrorCode::kUnsupported, part);
  };
  refuse("[" + split(qwen2 + "|x", "Isolated") + "," + bytes + "]", "regular expression \"(?i:");
  refuse("[" + split(qwen2, "MergedWithNext") + "," + bytes + "]",
         "expected behavior Isolated, found \"MergedWithNext\"");
  refuse("[" + split(qwen2, "Isolated") + "," + words + "]", "use_regex: expected false, found true");
  refuse(R"([{"type":"Split","pattern":{"String":" "},"behavior":"Isolated"},)" + bytes + "]", "expected a Regex");
  refuse(R"([{"type":"Digits"},)" + words + "]", "individual_digits: expected true");
  refuse(R"([{"type":"Whitespace"},)" + words + "]", "found \"Whitespace\", \"ByteLevel\"");
  ExpectError(with("[7]"), ErrorCode::kCorruptFile, "pre_tokenizer: expected an object");
}

TEST(ReadTokenizerJson, PartsThatContradict_Corrupt) {
  constexpr ErrorCode kCorrupt = ErrorCode::kCorruptFile;
  ExpectErrors(SmallJson(), {{"/model", "7", kCorrupt, "model: expected an object"},
                             {"/model/vocab", "7", kCorrupt, "model.vocab: expected an object of tokens and ids"},
                             {"/model/merges", "7", kCorrupt, "model.merges: expected a list"},
                             {"/model/vocab/h", "-1", kCorrupt, "token \"h\": expected an id, found another value"},
                             {"/model/vocab/h", "0", kCorrupt, "expected one token, found also"},
                             {"/model/vocab/h", "{}", kCorrupt, "token \"h\": expected an id, found another value"},
                             {"/model/merges/0", R"(["a"])", kCorrupt, "merge 0: expected two strings"},
                             {"/model/merges/0", R"(["a","b","c"])", kCorrupt, "merge 0: expected two strings"},
                             {"/model/merges/0", R"([["a"],"b"])", kCorrupt, "merge 0: expected two strings"},
                             {"/model/merges/0", "7", kCorrupt, "merge 0: expected two strings"},
                             {"/added_tokens", "7", kCorrupt, "added_tokens: expected a list"},
                             {"/added_tokens/0", "7", kCorrupt, "added_tokens: entry 0: expected an object"},
                             {"/added_tokens/0/content", "\"\"", kCorrupt, "entry 0: expected some content"},
                             {"/added_tokens/0/content", "\"<other>\"", kCorrupt, "found also \"<s>\""},
                             {"/added_tokens/0/id", "\"7\"", kCorrupt, "id: expected a number"},
                             {"/added_tokens/0/special", "7", kCorrupt, "special: expected true or false"},
                             {"/decoder", "7", kCorrupt, "decoder: expected an object"},
                             {"/decoder", "{}", kCorrupt, "decoder: type: expected a string"}});
}

TEST(ReadTokenizerJson, UnknownTokenWithoutAllBytes_Unsupported) {
  json document = SmallJson();
  document["model"]["unk_token"] = "<s>";
  EXPECT_TRUE(ReadTokenizerJson(document.dump()).ok());
  document["model"]["vocab"].erase("z");
  document["model"]["vocab"]["zz"] = static_cast<int>('z');
  ExpectError(document.dump(), ErrorCode::kUnsupported,
              "unk_token: expected none, or a vocabulary with all 256 bytes, found 255");
}

TEST(ReadTokenizerJson, Nfc_TextIsNormalisedBetweenAddedTokens) {
  json document = SmallJson();
  document["normalizer"] = {{"type", "NFC"}};
  const Tokenizer tokenizer = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_EQ(tokenizer.Encode("e\xCC\x81").value(), tokenizer.Encode("\xC3\xA9").value());
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("<tool>\xCC\xB8").value(), true).value(), "<tool>\xCC\xB8");
  for (json& added : document["added_tokens"]) added["normalized"] = true;
  ExpectError(document.dump(), ErrorCode::kUnsupported, "normalized: expected false where there is a normalizer");
}

TEST(ReadTokenizerJson, Characters_FallBackToBytes) {
  const Tokenizer tokenizer = CreateTokenizer(ReadTokenizerJson(CharacterJson().dump()).value()).value();
  EXPECT_THAT(tokenizer.Encode("a a\xC3\xA9").value(), ::testing::ElementsAre(258, 260, 0xC3 + 1, 0xA9 + 1));
  EXPECT_EQ(tokenizer.TokenBytes(260), " a");
  EXPECT_EQ(tokenizer.TokenBytes(11), "\n");
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("\xFF  a\xE4\xB8").value(), true).value(), "\xFF  a\xE4\xB8");
}

TEST(ReadTokenizerJson, CharactersWithPrefix_SpaceBeforeTheText) {
  json document = CharacterJson();
  document["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers", json::array({{{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}}, document["normalizer"]})}};
  EXPECT_TRUE(ReadTokenizerJson(document.dump()).value().add_space_prefix);
  document["decoder"]["decoders"].push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  const Tokenizer tokenizer = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_THAT(tokenizer.Encode("a").value(), ::testing::ElementsAre(260));
  EXPECT_THAT(tokenizer.Encode("").value(), ::testing::IsEmpty());
  EXPECT_THAT(tokenizer.Encode("a<unk>b").value(), ::testing::ElementsAre(260, 0, 257, 259));
}

TEST(ReadTokenizerJson, CharactersWithOtherSteps_RefusedByName) {
  constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;
  ExpectErrors(
      CharacterJson(),
      {{"/normalizer", "null", kUnsupported, "normalizer: expected Replace of spaces by U+2581 with byte_fallback"},
       {"/normalizer/content", "\"_\"", kUnsupported, "found \"Replace\""},
       {"/pre_tokenizer", R"({"type":"Metaspace"})", kUnsupported,
        "pre_tokenizer: expected none with byte_fallback, found \"Metaspace\""},
       {"/decoder/decoders/3", R"({"type":"Strip","content":" ","start":1,"stop":0})", kUnsupported,
        "ByteFallback and Fuse"},
       {"/decoder", R"({"type":"ByteLevel"})", kUnsupported, "found \"ByteLevel\""},
       {"/model/ignore_merges", "true", kUnsupported, "ignore_merges: expected false with byte_fallback"}});
  json document = CharacterJson();
  document["model"]["vocab"].erase("<0x0A>");
  document["model"]["vocab"]["other"] = 11;
  const auto tokenizer = CreateTokenizer(ReadTokenizerJson(document.dump()).value());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_THAT(tokenizer.error().message(),
              HasSubstr("expected a token of type byte for every byte, found none for byte 10"));
}

TEST(ReadTokenizerJson, NotJson_Corrupt) {
  for (const std::string_view text : {"", "{", "[]", "7", "{} x", "\xFF", "{\"a\":\"\xFF\"}", "{\"a\":\"\\ud800\"}"})
    ExpectError(text, ErrorCode::kCorruptFile, "expected ");
  ExpectError(R"({"a":1,"a":2})", ErrorCode::kCorruptFile, "byte 7: expected each key of an object once, found \"a\"");
  ExpectError(R"({"model":{"vocab":{},"vocab":{}}})", ErrorCode::kCorruptFile, "key \"vocab\": expected it once");
  ExpectError(
      R"({"model":{"vocab":{"a":0,"a":0},"merges":[]},"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}})",
      ErrorCode::kCorruptFile, "token \"a\": id 0: expected one token, found also \"a\"");
}

TEST(ReadTokenizerJson, AboveTheLimits_Unsupported) {
  ExpectError(std::string(kMaxDocumentBytes + 1, ' '), ErrorCode::kUnsupported, "expected at most 67108864 bytes");
  const auto nested = [](size_t depth) { return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}"; };
  ExpectError(nested(kMaxJsonDepth - 1), ErrorCode::kCorruptFile, "model: expected an object");
  ExpectError(nested(kMaxJsonDepth), ErrorCode::kUnsupported, "expected at most 64 levels of nesting");
  ExpectError(nested(1000000), ErrorCode::kUnsupported, "expected at most 64 levels of nesting");
  std::string many = "{\"a\":[0";
  for (size_t i = 0; i < kMaxDocumentValues; ++i) many += ",0";
  ExpectError(many + "]}", ErrorCode::kUnsupported, "expected at most 1048576 values");
}

}  // namespace
}  // namespace tidemill::tokenizer_json_test
