#include "text/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/small_vocabulary.h"

namespace tidemill::gguf_tokenizer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes one key.
using Setter = std::function<void(testing::GgufWriter&, const std::string&)>;
using Keys = std::map<std::string, Setter>;

Setter OfString(std::string value) {
  return [value](testing::GgufWriter& writer, const std::string& key) { writer.SetString(key, value); };
}
Setter OfStrings(std::vector<std::string> values) {
  return [values](testing::GgufWriter& writer, const std::string& key) { writer.SetStrings(key, values); };
}
Setter OfInts(std::vector<int32_t> values) {
  return [values](testing::GgufWriter& writer, const std::string& key) { writer.SetArray(key, values); };
}
Setter OfFloats(std::vector<float> values) {
  return [values](testing::GgufWriter& writer, const std::string& key) { writer.SetArray(key, values); };
}
Setter OfUint(uint32_t value) {
  return [value](testing::GgufWriter& writer, const std::string& key) { writer.Set(key, value); };
}
Setter OfBool(bool value) {
  return [value](testing::GgufWriter& writer, const std::string& key) { writer.Set(key, value); };
}

Keys SmallKeys() {
  const TokenizerSpec spec = testing::SmallSpec("smollm");
  std::vector<int32_t> types;
  for (const TokenType type : spec.types) types.push_back(static_cast<int32_t>(type));
  return {{"tokenizer.ggml.model", OfString("gpt2")},
          {"tokenizer.ggml.pre", OfString("smollm")},
          {"tokenizer.ggml.tokens", OfStrings(spec.tokens)},
          {"tokenizer.ggml.token_type", OfInts(types)},
          {"tokenizer.ggml.merges", OfStrings(spec.merges)}};
}

Result<TokenizerSpec> Read(const Keys& keys) {
  testing::GgufWriter writer;
  for (const auto& [key, set] : keys) set(writer, key);
  const std::string bytes = writer.Build();
  const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  if (!file.ok()) return file.error();
  return ReadTokenizerSpec(*file);
}

void ExpectError(const Keys& keys, ErrorCode code, const std::string& part) {
  const auto spec = Read(keys);
  ASSERT_FALSE(spec.ok()) << part;
  EXPECT_EQ(spec.error().code(), code) << spec.error().message();
  EXPECT_THAT(spec.error().message(), HasSubstr(part));
  EXPECT_THAT(spec.error().message(), ::testing::StartsWith("read tokenizer: "));
}

TEST(ReadTokenizerSpec, SmallestFile_DefaultsElsewhere) {
  Keys keys = SmallKeys();
  keys.erase("tokenizer.ggml.token_type");
  const TokenizerSpec spec = Read(keys).value();
  EXPECT_EQ(spec.tokens, testing::SmallSpec("smollm").tokens);
  EXPECT_EQ(spec.merges, testing::SmallSpec("smollm").merges);
  EXPECT_TRUE(spec.types.empty());
  EXPECT_EQ(spec.pre_tokenizer, FindPreTokenizer("smollm")->steps);
  EXPECT_EQ(spec.bos_id, std::nullopt);
  EXPECT_EQ(spec.eos_id, std::nullopt);
  EXPECT_FALSE(spec.add_bos || spec.add_eos);
  EXPECT_TRUE(spec.normalizer.empty());
}

TEST(ReadTokenizerSpec, EveryKey_IsRead) {
  Keys keys = SmallKeys();
  keys["tokenizer.ggml.bos_token_id"] = OfUint(1);
  keys["tokenizer.ggml.eos_token_id"] = OfUint(2);
  keys["tokenizer.ggml.eot_token_id"] = OfUint(3);
  keys["tokenizer.ggml.eom_token_id"] = OfUint(4);
  keys["tokenizer.ggml.add_bos_token"] = OfBool(true);
  keys["tokenizer.ggml.add_eos_token"] = OfBool(true);
  keys["tokenizer.ggml.add_space_prefix"] = OfBool(true);
  const TokenizerSpec spec = Read(keys).value();
  EXPECT_EQ(spec.types, testing::SmallSpec("smollm").types);
  EXPECT_EQ(spec.bos_id, 1);
  EXPECT_EQ(spec.eos_id, 2);
  EXPECT_THAT(spec.end_of_generation_ids, ElementsAre(3, 4));
  EXPECT_TRUE(spec.add_bos && spec.add_eos);
  EXPECT_EQ(spec.pre_tokenizer.front().kind, PreTokenizerKind::kPrefixSpace);
}

Keys SentencePieceKeys() {
  return {{"tokenizer.ggml.model", OfString("llama")},
          {"tokenizer.ggml.tokens", OfStrings({"<unk>", "<s>", "a", "\xE2\x96\x81"})},
          {"tokenizer.ggml.token_type", OfInts({2, 3, 1, 1})},
          {"tokenizer.ggml.scores", OfFloats({0, 0, -1, -2.5})}};
}

TEST(ReadTokenizerSpec, SentencePiece_ScoresAndItsDefaults) {
  Keys keys = SentencePieceKeys();
  const TokenizerSpec spec = Read(keys).value();
  EXPECT_EQ(spec.kind, VocabularyKind::kSentencePiece);
  EXPECT_THAT(spec.scores, ElementsAre(0, 0, -1, -2.5));
  EXPECT_TRUE(spec.merges.empty());
  EXPECT_EQ(spec.normalizer, PieceSpaces(true));
  EXPECT_EQ(spec.leading_space, LeadingSpace::kOneDropped);
  EXPECT_FALSE(spec.add_bos);
  keys["tokenizer.ggml.pre"] = OfString("default");
  keys["tokenizer.ggml.bos_token_id"] = OfUint(1);
  EXPECT_TRUE(Read(keys).value().add_bos);
  keys["tokenizer.ggml.add_bos_token"] = OfBool(false);
  keys["tokenizer.ggml.add_space_prefix"] = OfBool(false);
  EXPECT_FALSE(Read(keys).value().add_bos);
  EXPECT_EQ(Read(keys).value().normalizer, PieceSpaces(false));
  keys.erase("tokenizer.ggml.scores");
  ExpectError(keys, ErrorCode::kNotFound, "tokenizer.ggml.scores");
}

TEST(ReadTokenizerSpec, ReadSpec_MakesATokenizer) {
  const Tokenizer tokenizer = CreateTokenizer(Read(SmallKeys()).value()).value();
  const std::vector<int32_t> ids = tokenizer.Encode("hello<|im_end|>").value();
  EXPECT_EQ(tokenizer.Decode(ids, true).value(), "hello<|im_end|>");
  EXPECT_EQ(ids.back(), tokenizer.FindToken("<|im_end|>"));
}

TEST(ReadTokenizerSpec, Llama3Rule_BeginsTextsUnlessTheFileSaysNo) {
  Keys keys = SmallKeys();
  keys["tokenizer.ggml.pre"] = OfString("llama-bpe");
  EXPECT_FALSE(Read(keys).value().add_bos);
  keys["tokenizer.ggml.bos_token_id"] = OfUint(1);
  EXPECT_TRUE(Read(keys).value().add_bos);
  keys["tokenizer.ggml.add_bos_token"] = OfBool(false);
  EXPECT_FALSE(Read(keys).value().add_bos);
}

TEST(ReadTokenizerSpec, MissingKeys_NotFound) {
  for (const char* const key : {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    Keys keys = SmallKeys();
    keys.erase(key);
    ExpectError(keys, ErrorCode::kNotFound, key);
  }
}

TEST(ReadTokenizerSpec, NoSplittingRule_TheDefaultOne) {
  Keys keys = SmallKeys();
  keys.erase("tokenizer.ggml.pre");
  EXPECT_EQ(Read(keys).value().pre_tokenizer, FindPreTokenizer("default")->steps);
  keys["tokenizer.ggml.pre"] = OfString("no-such-rule");
  ExpectError(keys, ErrorCode::kUnsupported, "tokenizer.ggml.pre \"no-such-rule\": expected a name of docs/models.md");
}

TEST(ReadTokenizerSpec, Unigram_EndsTextsAndKnowsTheUnknown) {
  Keys keys = SentencePieceKeys();
  keys["tokenizer.ggml.model"] = OfString("t5");
  keys["tokenizer.ggml.eos_token_id"] = OfUint(1);
  keys["tokenizer.ggml.unknown_token_id"] = OfUint(0);
  keys["tokenizer.ggml.remove_extra_whitespaces"] = OfBool(true);
  keys["tokenizer.ggml.add_space_prefix"] = OfBool(true);
  const Tokenizer tokenizer = CreateTokenizer(Read(keys).value()).value();
  EXPECT_THAT(tokenizer.Encode("  a  a ").value(), ElementsAre(3, 2, 3, 2, 1));
  EXPECT_THAT(tokenizer.Encode("abba").value(), ElementsAre(3, 2, 0, 2, 1));
  EXPECT_EQ(tokenizer.DecodeText(std::vector<int32_t>{3, 2, 3, 2, 1}, false).value(), "a a");
}

TEST(ReadTokenizerSpec, WordPiece_WordsBeginWithThePieceSpace) {
  const Keys keys = {
      {"tokenizer.ggml.model", OfString("bert")},
      {"tokenizer.ggml.tokens", OfStrings({"[CLS]", "[SEP]", "[UNK]", "\xE2\x96\x81tide", "s", "\xE2\x96\x81."})},
      {"tokenizer.ggml.token_type", OfInts({3, 3, 3, 1, 1, 1})},
      {"tokenizer.ggml.cls_token_id", OfUint(0)},
      {"tokenizer.ggml.seperator_token_id", OfUint(1)},
      {"tokenizer.ggml.unknown_token_id", OfUint(2)}};
  const Tokenizer tokenizer = CreateTokenizer(Read(keys).value()).value();
  EXPECT_THAT(tokenizer
                  .Encode("Tides. T\xC3\xAD"
                          "de xs")
                  .value(),
              ElementsAre(0, 3, 4, 5, 3, 2, 1));
}

TEST(ReadTokenizerSpec, OtherTokenizerModels_UnsupportedByName) {
  for (const char* const model : {"rwkv", "plamo2", ""}) {
    Keys keys = SmallKeys();
    keys["tokenizer.ggml.model"] = OfString(model);
    ExpectError(keys, ErrorCode::kUnsupported, "tokenizer.ggml.model \"" + std::string(model) + "\"");
  }
}

TEST(ReadTokenizerSpec, TypesOfOtherLengthOrRange_Corrupt) {
  Keys keys = SmallKeys();
  keys["tokenizer.ggml.token_type"] = OfInts({1, 1, 3});
  ExpectError(keys, ErrorCode::kCorruptFile, "tokens, found 3");
  std::vector<int32_t> types(testing::SmallSpec("smollm").tokens.size(), 1);
  for (const int32_t type : {0, 7, -1, 257}) {
    types[9] = type;
    keys["tokenizer.ggml.token_type"] = OfInts(types);
    ExpectError(keys, ErrorCode::kCorruptFile, "token 9 ");
  }
}

TEST(ReadTokenizerSpec, IdsOutOfRange_CorruptNamesKey) {
  for (const char* const name : {"bos", "eos", "eot", "eom"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    Keys keys = SmallKeys();
    keys[key] = OfUint(static_cast<uint32_t>(testing::SmallSpec("smollm").tokens.size()));
    ExpectError(keys, ErrorCode::kCorruptFile, key);
    keys[key] = OfUint(UINT32_MAX);
    ExpectError(keys, ErrorCode::kCorruptFile, key);
  }
}

TEST(ReadTokenizerSpec, ValuesOfAnotherKind_Corrupt) {
  for (const char* const key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
                                "tokenizer.ggml.merges", "tokenizer.ggml.token_type", "tokenizer.ggml.add_bos_token"}) {
    Keys keys = SmallKeys();
    keys[key] = OfUint(1);
    ExpectError(keys, ErrorCode::kCorruptFile, key);
  }
}

TEST(ReadTokenizerSpec, NoTokens_Corrupt) {
  Keys keys = SmallKeys();
  keys["tokenizer.ggml.tokens"] = OfStrings({});
  ExpectError(keys, ErrorCode::kCorruptFile, "expected 1 to 2^31 - 1 tokens, found 0");
}

}  // namespace
}  // namespace tidemill::gguf_tokenizer_test
