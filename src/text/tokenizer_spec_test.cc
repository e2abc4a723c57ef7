#include "text/tokenizer_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <string>
#include <string_view>

#include "tests/support/small_vocabulary.h"

namespace tidemill::tokenizer_spec_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SmallSpec;

void ExpectError(TokenizerSpec spec, ErrorCode code, const std::string& part) {
  const auto tokenizer = CreateTokenizer(std::move(spec));
  ASSERT_FALSE(tokenizer.ok()) << part;
  EXPECT_EQ(tokenizer.error().code(), code) << tokenizer.error().message();
  EXPECT_THAT(tokenizer.error().message(), HasSubstr(part));
  EXPECT_THAT(tokenizer.error().message(), ::testing::StartsWith("load tokenizer: "));
}

TEST(CreateTokenizer, NoTokens_Corrupt) {
  TokenizerSpec spec;
  ExpectError(spec, ErrorCode::kCorruptFile, "expected tokens, found none");
}

TEST(CreateTokenizer, ExpressionThatIsNone_RefusedByName) {
  TokenizerSpec spec = SmallSpec("gpt-2");
  spec.pre_tokenizer = {PreTokenizerStep::Split("a(")};
  ExpectError(spec, ErrorCode::kCorruptFile, "regular expression \"a(\": byte 2: '(' without ')'");
  spec.pre_tokenizer = {PreTokenizerStep::Split("[a&&b]")};
  ExpectError(spec, ErrorCode::kUnsupported, "not read here: && before anything but [^");
}

TEST(CreateTokenizer, TypesOfOtherLength_Corrupt) {
  TokenizerSpec spec = SmallSpec("gpt-2");
  spec.types.pop_back();
  ExpectError(spec, ErrorCode::kCorruptFile, "token types: expected one for each of the ");
}

TEST(CreateTokenizer, TypeOutOfRangeOrByte_Refused) {
  TokenizerSpec spec = SmallSpec("gpt-2");
  spec.types[5] = static_cast<TokenType>(0);
  ExpectError(spec, ErrorCode::kCorruptFile, "token 5 ");
  spec.types[5] = static_cast<TokenType>(7);
  ExpectError(spec, ErrorCode::kCorruptFile, "expected a type from 1 to 6, found 7");
  spec.types[5] = TokenType::kByte;
  ExpectError(spec, ErrorCode::kUnsupported, "byte-level");
}

TEST(CreateTokenizer, IdsOutOfRange_Corrupt) {
  const TokenizerSpec good = SmallSpec("gpt-2");
  const auto past_end = static_cast<int32_t>(good.tokens.size());
  TokenizerSpec spec = good;
  spec.bos_id = past_end;
  ExpectError(spec, ErrorCode::kCorruptFile, "beginning-of-sequence token: expected an id below ");
  spec = good;
  spec.eos_id = -1;
  ExpectError(spec, ErrorCode::kCorruptFile, "end-of-sequence token: expected an id below ");
  spec = good;
  spec.end_of_generation_ids = {0, past_end};
  ExpectError(spec, ErrorCode::kCorruptFile, "end-of-generation token: expected an id below ");
}

TEST(CreateTokenizer, AddedTokenWithoutId_Corrupt) {
  TokenizerSpec spec = SmallSpec("gpt-2");
  spec.add_bos = true;
  ExpectError(spec, ErrorCode::kCorruptFile, "none is named");
  spec.add_bos = false;
  spec.add_eos = true;
  ExpectError(spec, ErrorCode::kCorruptFile, "none is named");
}

TEST(CreateTokenizer, TokenTwice_CorruptNamesBoth) {
  TokenizerSpec spec = SmallSpec("gpt-2");
  spec.tokens.push_back("he");
  spec.types.push_back(TokenType::kNormal);
  ExpectError(spec, ErrorCode::kCorruptFile, "\"he\": expected spellings that differ, found the same in token 256");
}

TEST(CreateTokenizer, AddedTokenTooLong_Unsupported) {
  TokenizerSpec spec = SmallSpec("gpt-2");
  spec.tokens.emplace_back(1024, 'x');
  spec.types.push_back(TokenType::kControl);
  EXPECT_TRUE(CreateTokenizer(spec).ok());
  spec.tokens.back() += 'x';
  ExpectError(spec, ErrorCode::kUnsupported,
              "expected at most 1024 bytes in a control or user-defined token, found 1025");
}

TEST(CreateTokenizer, MergeOfAnotherShape_Corrupt) {
  for (const std::string_view merge : {"", " ", "a", "a ", " a", "a  a", "a a a", "aa"}) {
    TokenizerSpec spec = SmallSpec("gpt-2");
    spec.merges.emplace_back(merge);
    ExpectError(spec, ErrorCode::kCorruptFile, "expected two tokens with one space between them");
  }
}

TEST(CreateTokenizer, MergeOfUnknownTokens_CorruptNamesToken) {
  for (const auto& [merge, token] : {std::pair{"zz a", "\"zz\""}, {"a zz", "\"zz\""}, {"z z", "\"zz\""}}) {
    TokenizerSpec spec = SmallSpec("gpt-2");
    spec.merges.emplace_back(merge);
    ExpectError(spec, ErrorCode::kCorruptFile, std::string("expected ") + token);
  }
}

TEST(CreateTokenizer, MergeToControlToken_Corrupt) {
  TokenizerSpec spec = SmallSpec("gpt-2");
  spec.tokens.emplace_back("xy");
  spec.types.push_back(TokenType::kControl);
  spec.merges.emplace_back("x y");
  ExpectError(spec, ErrorCode::kCorruptFile, "\"xy\" among the tokens that are not control tokens");
  spec.types.back() = TokenType::kUserDefined;
  EXPECT_TRUE(CreateTokenizer(spec).ok());
}

TokenizerSpec PieceSpec() {
  TokenizerSpec spec;
  spec.kind = VocabularyKind::kSentencePiece;
  spec.spelling = TokenSpelling::kPieceSpaces;
  spec.normalizer = PieceSpaces(false);
  const auto add = [&spec](std::string name, TokenType type, float score) {
    spec.tokens.push_back(std::move(name));
    spec.types.push_back(type);
    spec.scores.push_back(score);
  };
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    add(name, TokenType::kByte, 0);
  }
  add("\xE2\x96\x81", TokenType::kNormal, -9);    // 256
  add("h", TokenType::kNormal, -8);               // 257
  add("hi", TokenType::kNormal, -2);              // 258: "i" alone is no token
  add("\xE2\x96\x81hi", TokenType::kNormal, -3);  // 259
  add("<s>", TokenType::kControl, 0);             // 260
  add("<tool>", TokenType::kUserDefined, 0);      // 261
  add("\xFFh", TokenType::kNormal, -1);           // 262: nothing makes it
  return spec;
}

TEST(CreateTokenizer, Pieces_MergeByScoreAndFallBackToBytes) {
  const Tokenizer tokenizer = CreateTokenizer(PieceSpec()).value();
  EXPECT_THAT(tokenizer.Encode("hi hi").value(), ElementsAre(258, 259));
  EXPECT_THAT(tokenizer.Encode("hih\xFFhi i").value(), ElementsAre(258, 257, 0xFF, 258, 256, 'i'));
  EXPECT_THAT(tokenizer.Encode("<s><tool>h", {.parse_special = false}).value(), ElementsAre('<', 's', '>', 261, 257));
  EXPECT_THAT(tokenizer.Encode("<s>h").value(), ElementsAre(260, 257));
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{260, 259, 'i', 261}, true).value(), "<s> hii<tool>");
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{260, 259}, false).value(), " hi");
  EXPECT_THAT(tokenizer.dropped_bytes(), IsEmpty());
}

TEST(CreateTokenizer, PiecesWithSpacePrefix_OncePerStretch) {
  TokenizerSpec spec = PieceSpec();
  spec.normalizer = PieceSpaces(true);
  spec.leading_space = LeadingSpace::kOneDropped;
  const Tokenizer tokenizer = CreateTokenizer(std::move(spec)).value();
  EXPECT_THAT(tokenizer.Encode("").value(), IsEmpty());
  EXPECT_THAT(tokenizer.Encode("hi<tool>hi").value(), ElementsAre(259, 261, 259));
  EXPECT_THAT(tokenizer.Encode(" hi").value(), ElementsAre(256, 259));
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{256, 259}, false).value(), "  hi");
  EXPECT_EQ(tokenizer.DecodeText(std::vector<int32_t>{256, 259}, false).value(), " hi");
  EXPECT_EQ(tokenizer.DecodeText(std::vector<int32_t>{260, 259}, false).value(), "hi");
  EXPECT_EQ(tokenizer.DecodeText(std::vector<int32_t>{260, 259}, true).value(), "<s> hi");
}

TEST(CreateTokenizer, PiecesThatContradict_Refused) {
  TokenizerSpec spec = PieceSpec();
  spec.scores.pop_back();
  ExpectError(spec, ErrorCode::kCorruptFile, "scores: expected one for each of the 263 tokens, found 262");
  spec = PieceSpec();
  spec.scores[3] = std::numeric_limits<float>::quiet_NaN();
  ExpectError(spec, ErrorCode::kCorruptFile, "scores: expected finite numbers");
  spec = PieceSpec();
  spec.tokens[10] = "<0x1>";
  ExpectError(spec, ErrorCode::kCorruptFile,
              "token 10 \"<0x1>\": expected a token of type byte to be spelled like <0x0A>");
  spec = PieceSpec();
  spec.tokens[258] = std::string(513, 'h');
  ExpectError(spec, ErrorCode::kUnsupported, "expected at most 512 bytes, found 513");
}

// 1 MiB of each: quadratic work would need hours and run into the test's time limit.
TEST(CreateTokenizer, PiecesOfLongRuns_NearlyLinearTime) {
  const Tokenizer tokenizer = CreateTokenizer(PieceSpec()).value();
  for (const std::string_view unit : {"h", " ", "hi", " hi", "<", "\xFF", "\xE4\xB8\xAD"}) {
    std::string text;
    while (text.size() < (size_t{1} << 20)) text += unit;
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text).value(), true).value(), text) << unit;
  }
}

TEST(CreateTokenizer, NoTypes_AllNormal) {
  TokenizerSpec spec = SmallSpec("gpt-2");
  spec.types.clear();
  const Tokenizer tokenizer = CreateTokenizer(std::move(spec)).value();
  EXPECT_FALSE(tokenizer.IsSpecial(*tokenizer.FindToken("<s>")));
  EXPECT_THAT(tokenizer.Encode("<s>").value(), ElementsAre('<', 's', '>'));
}

TEST(CreateTokenizer, MissingByte_DroppedAndNamed) {
  TokenizerSpec spec = SmallSpec("gpt-2");
  spec.tokens['z'] = "a token that stands for itself";
  const Tokenizer tokenizer = CreateTokenizer(std::move(spec)).value();
  EXPECT_THAT(tokenizer.dropped_bytes(), ElementsAre('z'));
  EXPECT_EQ(tokenizer.TokenBytes('z'), "a token that stands for itself");
  EXPECT_THAT(tokenizer.Encode("z").value(), IsEmpty());
  EXPECT_THAT(tokenizer.Encode("hze").value(), ElementsAre(256));  // as the original: its neighbours become neighbours
}

TEST(CreateTokenizer, EndOfGeneration_EosNamedAndWellKnownControlTokens) {
  TokenizerSpec spec = SmallSpec("gpt-2");
  spec.eos_id = 5;
  spec.end_of_generation_ids = {9, 5, 7};
  spec.tokens.emplace_back("<|eot_id|>");  // not a control token: only text that looks like one
  spec.types.push_back(TokenType::kNormal);
  const Tokenizer tokenizer = CreateTokenizer(std::move(spec)).value();
  EXPECT_THAT(tokenizer.end_of_generation_ids(),
              ElementsAre(5, 7, 9, *tokenizer.FindToken("</s>"), *tokenizer.FindToken("<|im_end|>")));
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(7));
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(8));
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(-1));
}

}  // namespace
}  // namespace tidemill::tokenizer_spec_test
