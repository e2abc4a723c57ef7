#include "text/slow_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/sentencepiece_model.h"

namespace tidemill::slow_tokenizer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Field(int number, const std::string& bytes) {
  return static_cast<char>(number << 3 | 2) + std::string(1, static_cast<char>(bytes.size())) + bytes;
}
std::string Integer(int number, int value) {
  std::string tag;
  const int whole = number << 3;
  if (whole > 0x7F) tag += static_cast<char>((whole & 0x7F) | 0x80);
  tag += static_cast<char>(whole > 0x7F ? whole >> 7 : whole);
  return tag + static_cast<char>(value);
}

// A piece with score -`rank`.
std::string Piece(const std::string& text, int rank, int type = 1) {
  const float score = -static_cast<float>(rank);
  std::string bytes(reinterpret_cast<const char*>(&score), sizeof(score));
  return Field(1, Field(1, text) + static_cast<char>(2 << 3 | 5) + bytes + Integer(3, type));
}

std::string Model(int type) {
  return Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("</s>", 0, 3) + Piece("\xE2\x96\x81", 1) + Piece("a", 2) +
         Piece("b", 3) + Piece("ab", 1) + Field(2, Integer(3, type) + Integer(40, 0));
}

void ExpectError(const Result<TokenizerSpec>& spec, ErrorCode code, const std::string& part) {
  ASSERT_FALSE(spec.ok()) << part;
  EXPECT_EQ(spec.error().code(), code) << spec.error().message();
  EXPECT_THAT(spec.error().message(), HasSubstr(part));
}

JsonDocument Config(const std::string& text) { return JsonDocument::Parse("tokenizer_config.json", text).value(); }

TEST(ReadSentencePieceModel, BothTypes_AndWhatFilesDoNotSay) {
  for (const int type : {1, 2}) {
    const TokenizerSpec spec = ReadSentencePieceModel(Model(type)).value();
    EXPECT_EQ(spec.kind, type == 1 ? VocabularyKind::kUnigram : VocabularyKind::kSentencePiece);
    EXPECT_EQ(spec.bos_id, 1);
    EXPECT_EQ(spec.eos_id, 2);
    EXPECT_EQ(spec.unk_id, 0);
    const Tokenizer tokenizer = CreateTokenizer(spec).value();
    EXPECT_THAT(tokenizer.Encode("  ab  c").value(), ElementsAre(3, 6, 3, 0));
    EXPECT_EQ(tokenizer.DecodeText(std::vector<int32_t>{3, 6}, false).value(), "ab");
  }
}

TEST(ReadSentencePieceModel, EveryCut_NeverMoreThanAnError) {
  const std::string whole = Model(2);
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto spec = ReadSentencePieceModel(std::string_view(whole).substr(0, size));
    EXPECT_TRUE(spec.ok() || spec.error().code() == ErrorCode::kCorruptFile) << size;
  }
}

TEST(ReadSentencePieceModel, WhatIsWrong_Named) {
  constexpr ErrorCode kCorrupt = ErrorCode::kCorruptFile;
  ExpectError(ReadSentencePieceModel("\x0a\x05"), kCorrupt, "byte 2: expected 5 bytes, found 0");
  ExpectError(ReadSentencePieceModel("\x0b"), kCorrupt, "byte 1: expected a field, found wire type 3");
  ExpectError(ReadSentencePieceModel(std::string(11, '\xFF')), kCorrupt, "expected an integer of at most 10 bytes");
  ExpectError(ReadSentencePieceModel(Piece("a", 1, 7)), kCorrupt, "piece 0: type: expected 1 to 6, found 7");
  ExpectError(ReadSentencePieceModel(Model(1) + Field(2, Integer(41, 99))), kCorrupt, "bos_id: expected an id below 7");
  ExpectError(ReadSentencePieceModel(Model(4)), ErrorCode::kUnsupported, "expected 1 (Unigram) or 2 (BPE), found 4");
  ExpectError(ReadSentencePieceModel(Model(1) + Field(2, Integer(24, 1))), ErrorCode::kUnsupported,
              "treat_whitespace_as_suffix");
  ExpectError(ReadSentencePieceModel(Model(1) + Field(3, Integer(5, 0))), ErrorCode::kUnsupported,
              "escape_whitespaces");
}

TEST(ReadSlowTokenizer, SentencePieceModel_TokensThatItsClassAdds) {
  const std::string bpe = Model(2), unigram = Model(1);
  const auto ids = [](const std::string& model, const std::string& config) {
    const JsonDocument document = Config(config);
    return CreateTokenizer(ReadSlowTokenizer({.sentencepiece = model, .tokenizer_config = &document}).value())
        .value()
        .Encode("ab")
        .value();
  };
  EXPECT_THAT(ids(bpe, R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":true})"), ElementsAre(1, 3, 6));
  EXPECT_THAT(ids(bpe, R"({"tokenizer_class":"LlamaTokenizerFast","add_eos_token":true})"), ElementsAre(3, 6, 2));
  EXPECT_THAT(ids(unigram, R"({"tokenizer_class":"T5Tokenizer"})"), ElementsAre(3, 6, 2));
  EXPECT_THAT(CreateTokenizer(ReadSlowTokenizer({.sentencepiece = bpe}).value()).value().Encode("ab").value(),
              ElementsAre(1, 3, 6));
  const JsonDocument other = Config(R"({"tokenizer_class":"XLMRobertaTokenizer"})");
  ExpectError(ReadSlowTokenizer({.sentencepiece = bpe, .tokenizer_config = &other}), ErrorCode::kUnsupported,
              "\"tokenizer_class\": expected LlamaTokenizer, CodeLlamaTokenizer, GemmaTokenizer or T5Tokenizer for a "
              "folder without "
              "tokenizer.json, found \"XLMRobertaTokenizer\"; save it once with transformers' AutoTokenizer");
}

TEST(ReadSlowTokenizer, AddedTokens_FromEitherFile) {
  const std::string model = Model(2);
  const JsonDocument decoder =
      Config(R"({"added_tokens_decoder":{"8":{"content":"<x>","special":true,"lstrip":true}}})");
  const Tokenizer tokenizer =
      CreateTokenizer(ReadSlowTokenizer({.sentencepiece = model, .tokenizer_config = &decoder}).value()).value();
  EXPECT_THAT(tokenizer.Encode("ab <x>").value(), ElementsAre(3, 6, 8));
  EXPECT_TRUE(tokenizer.IsSpecial(8));
  const JsonDocument list = JsonDocument::Parse("added_tokens.json", R"({"<y>":7})").value();
  const Tokenizer second =
      CreateTokenizer(ReadSlowTokenizer({.sentencepiece = model, .added_tokens = &list}).value()).value();
  EXPECT_EQ(second.FindToken("<y>"), 7);
  EXPECT_TRUE(second.IsSpecial(7));
}

// A model may call a token user-defined that its folder calls special.
TEST(ReadSlowTokenizer, UserDefinedPieceThatIsSpecial_NotForCallers) {
  const std::string model = Model(2) + Piece("<end>", 0, 4);
  const JsonDocument config = Config(R"({"added_tokens_decoder":{"7":{"content":"<end>","special":true}}})");
  const Tokenizer tokenizer =
      CreateTokenizer(ReadSlowTokenizer({.sentencepiece = model, .tokenizer_config = &config}).value()).value();
  EXPECT_TRUE(tokenizer.IsSpecial(7));
  EXPECT_THAT(tokenizer.Encode(PromptText{"<end>", {{0, 5}}}).value(), ::testing::Not(::testing::Contains(7)));
}

TEST(ReadSlowTokenizer, VocabularyAndMerges_BothOrNone) {
  ExpectError(ReadSlowTokenizer({.vocab_json = "{}"}), ErrorCode::kNotFound, "merges.txt: not in the folder");
  ExpectError(ReadSlowTokenizer({.merges_txt = "a b"}), ErrorCode::kNotFound, "vocab.json: not in the folder");
  ExpectError(ReadSlowTokenizer({.vocab_json = "[]", .merges_txt = ""}), ErrorCode::kCorruptFile, "vocab.json");
  ExpectError(ReadSlowTokenizer({.vocab_json = R"({"a":"b"})", .merges_txt = ""}), ErrorCode::kCorruptFile, "\"a\"");
  const Tokenizer tokenizer = CreateTokenizer(ReadSlowTokenizer({.vocab_json = R"({"a":0,"b":1,"ab":2})",
                                                                 .merges_txt = "#version: 0.2\r\na b\r\n\n"})
                                                  .value())
                                  .value();
  EXPECT_THAT(tokenizer.Encode("abc").value(), ElementsAre(2));
  const JsonDocument other = Config(R"({"tokenizer_class":"CLIPTokenizer"})");
  ExpectError(ReadSlowTokenizer({.vocab_json = "{}", .merges_txt = "", .tokenizer_config = &other}),
              ErrorCode::kUnsupported, "found \"CLIPTokenizer\"");
}

}  // namespace
}  // namespace tidemill::slow_tokenizer_test
