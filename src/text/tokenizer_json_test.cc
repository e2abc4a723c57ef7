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
  EXPECT_EQ(spec.pre_tokenizer, FindPreTokenizer("gpt-2")->steps);
  EXPECT_TRUE(spec.normalizer.empty());
  EXPECT_FALSE(spec.ignore_merges || spec.add_bos || spec.add_eos);
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
      {{"/post_processor/single/1", R"({"SpecialToken":{"id":"<s>"}})", ErrorCode::kUnsupported, "the text once"},
       {"/post_processor/single/0", R"({"Sequence":{"id":"A"}})", ErrorCode::kUnsupported, "the text once"},
       {"/post_processor/single/0", "7", ErrorCode::kUnsupported, "the text once"},
       {"/post_processor/single", "7", ErrorCode::kCorruptFile, "single: expected a list"},
       {"/post_processor/special_tokens/<s>/ids", "[]", ErrorCode::kCorruptFile, "\"<s>\": ids: expected a list"},
       {"/post_processor/special_tokens/<s>/ids", "[4294967296]", ErrorCode::kCorruptFile, "numbers below 2^31"},
       {"/post_processor/special_tokens", "{}", ErrorCode::kCorruptFile, "\"<s>\": ids: expected a list"}});
  document["post_processor"]["special_tokens"]["<s>"]["ids"] = {270, 272};
  const Tokenizer tokenizer = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_THAT(tokenizer.Encode("h").value(), ::testing::ElementsAre(270, 272, 'h', 271));
}

TEST(ReadTokenizerJson, RobertaProcessing_OneTokenBeforeAndOneBehind) {
  json document = SmallJson();
  document["post_processor"] = json::parse(R"({"type":"RobertaProcessing","sep":["</s>",271],"cls":["<s>",270]})");
  const Tokenizer tokenizer = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_THAT(tokenizer.Encode("h").value(), ::testing::ElementsAre(270, 'h', 271));
  ExpectErrors(document, {{"/post_processor/cls", "7", ErrorCode::kCorruptFile, "cls: expected a token and its id"}});
}

TEST(ReadTokenizerJson, WhatIsNotSupported_RefusedByName) {
  constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;
  ExpectErrors(
      SmallJson(),
      {{"/model/type", "\"Phonemes\"", kUnsupported, "model: type \"Phonemes\": expected BPE, Unigram, WordPiece"},
       {"/model/dropout", "0.1", kUnsupported, "dropout"},
       {"/model/continuing_subword_prefix", "\"##\"", kUnsupported, "continuing_subword_prefix \"##\""},
       {"/model/end_of_word_suffix", "\"</w>\"", kUnsupported, "end_of_word_suffix \"</w>\""},
       {"/normalizer", R"({"type":"NFKC"})", kUnsupported, "normalizer: expected NFC, NFD, "},
       {"/normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nmt"}]})", kUnsupported,
        "found \"Nmt\""},
       {"/normalizer", R"({"type":"ByteLevel"})", kUnsupported, "found \"ByteLevel\""},
       {"/normalizer", R"({"type":"NFKD"})", kUnsupported, "found \"NFKD\""},
       {"/pre_tokenizer", R"({"type":"UnicodeScripts"})", kUnsupported, "found \"UnicodeScripts\""},
       {"/pre_tokenizer", R"({"type":"FixedLength","length":5})", kUnsupported, "found \"FixedLength\""},
       {"/pre_tokenizer", "null", kUnsupported, "pre_tokenizer: expected ByteLevel once, found none"},
       {"/post_processor", R"({"type":"Sequence","processors":[{"type":"Other"}]})", kUnsupported, "found \"Other\""},
       {"/decoder", "null", kUnsupported, "decoder: expected ByteLevel, found none"},
       {"/decoder/type", "\"WordPiece\"", kUnsupported, "found \"WordPiece\""},
       {"/model/vocab/h", "99999", kUnsupported, "token \"h\": expected an id below "},
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
  const auto split = [](std::string_view expression, const std::string& how) {
    return json({{"type", "Split"},
                 {"pattern", {{"Regex", expression}}},
                 {"behavior", how},
                 {"invert", how == "Removed"}})
        .dump();
  };
  const std::string_view qwen2 = ExpressionOf(WordRule::kQwen2);
  const auto rule_of = [](const std::string& document) {
    return PreTokenizer::Create(ReadTokenizerJson(document).value().pre_tokenizer).value().rule();
  };
  EXPECT_EQ(rule_of(with(R"([{"type":"Digits","individual_digits":true},)" + words + "]")), WordRule::kDigitsThenGpt2);
  EXPECT_EQ(rule_of(with("[" + split(qwen2, "Isolated") + "," + bytes + "]")), WordRule::kQwen2);
  EXPECT_EQ(rule_of(with("[" + split(qwen2, "Removed") + "," + bytes + "]")), WordRule::kQwen2);
  for (const std::string& steps :
       {"[" + split(qwen2, "MergedWithNext") + "," + bytes + "]", "[" + split(qwen2, "Isolated") + "," + words + "]",
        R"([{"type":"Split","pattern":{"String":" "},"behavior":"Isolated"},)" + bytes + "]",
        R"([{"type":"Digits"},)" + words + "]", R"([{"type":"Whitespace"},)" + words + "]"}) {
    EXPECT_EQ(rule_of(with(steps)), std::nullopt) << steps;
  }
  ExpectError(with("[7]"), ErrorCode::kCorruptFile, "pre_tokenizer: expected an object");
  ExpectError(with("[" + words + "," + words + "]"), ErrorCode::kUnsupported, "expected ByteLevel once");
  ExpectError(with("[" + split("x", "Shuffled") + "," + words + "]"), ErrorCode::kCorruptFile,
              "behavior: expected Removed, Isolated, ");
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

TEST(ReadTokenizerJson, ByteWithoutToken_TheUnknownOneOrNone) {
  json document = SmallJson();
  document["model"]["vocab"].erase("z");
  document["model"]["vocab"]["zz"] = static_cast<int>('z');
  const Tokenizer without = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_THAT(without.Encode("azzb").value(), ::testing::ElementsAre('a', 'b'));
  EXPECT_THAT(without.dropped_bytes(), ::testing::ElementsAre('z'));
  document["model"]["unk_token"] = "<s>";
  const Tokenizer with = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_THAT(with.Encode("azzb").value(), ::testing::ElementsAre('a', 270, 270, 'b'));
  document["model"]["fuse_unk"] = true;
  const Tokenizer fused = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_THAT(fused.Encode("azzb").value(), ::testing::ElementsAre('a', 270, 'b'));
}

TEST(ReadTokenizerJson, IdsWithGaps_TokensThatNothingBecomes) {
  json document = SmallJson();
  document["added_tokens"].push_back(Added(300, "<late>", true));
  const Tokenizer tokenizer = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_EQ(tokenizer.vocab_size(), 301u);
  EXPECT_THAT(tokenizer.Encode("<late>").value(), ::testing::ElementsAre(300));
  EXPECT_EQ(tokenizer.TokenBytes(290), "");
}

TEST(ReadTokenizerJson, Nfc_TextIsNormalisedBetweenAddedTokens) {
  json document = SmallJson();
  document["normalizer"] = {{"type", "NFC"}};
  const Tokenizer tokenizer = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_EQ(tokenizer.Encode("e\xCC\x81").value(), tokenizer.Encode("\xC3\xA9").value());
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("<tool>\xCC\xB8").value(), true).value(), "<tool>\xCC\xB8");
  document["added_tokens"].push_back(Added(275, "\xC3\xA9!", false));
  document["added_tokens"].back()["normalized"] = true;
  const Tokenizer normalized = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_THAT(normalized.Encode("e\xCC\x81!").value(), ::testing::ElementsAre(275));
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
  EXPECT_EQ(ReadTokenizerJson(document.dump()).value().normalizer, PieceSpaces(true));
  document["decoder"]["decoders"].push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  const Tokenizer tokenizer = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_THAT(tokenizer.Encode("a").value(), ::testing::ElementsAre(260));
  EXPECT_THAT(tokenizer.Encode("").value(), ::testing::IsEmpty());
  EXPECT_THAT(tokenizer.Encode("a<unk>b").value(), ::testing::ElementsAre(260, 0, 257, 259));
}

TEST(ReadTokenizerJson, CharactersWithOtherSteps_RefusedByName) {
  constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;
  ExpectErrors(CharacterJson(),
               {{"/decoder/decoders/3", R"({"type":"Strip","content":" ","start":2,"stop":0})", kUnsupported,
                 "\"Fuse\", \"Strip\""},
                {"/decoder", R"({"type":"CTC"})", kUnsupported, "found \"CTC\""},
                {"/decoder", R"({"type":"ByteLevel"})", kUnsupported, "expected ByteLevel in pre_tokenizer, too"}});
  json document = CharacterJson();
  document["model"]["vocab"].erase("<0x0A>");
  document["model"]["vocab"]["other"] = 11;
  const Tokenizer tokenizer = CreateTokenizer(ReadTokenizerJson(document.dump()).value()).value();
  EXPECT_THAT(tokenizer.dropped_bytes(), ::testing::ElementsAre('\n'));
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
