#include "tidemill/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fixtures_path.h"
#include "tests/support/small_vocabulary.h"
#include "tests/support/smollm2_vocabulary.h"
#include "text/tokenizer_spec.h"

namespace tidemill::tokenizer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kRules[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};

Tokenizer Small(std::string_view pre_tokenizer = "gpt-2") {
  return CreateTokenizer(testing::SmallSpec(pre_tokenizer)).value();
}

const Tokenizer& SmolLm2() {
  static const Tokenizer tokenizer = CreateTokenizer(testing::ReadSmolLm2Spec(TIDEMILL_FIXTURES)).value();
  return tokenizer;
}

// The tokens, as the vocabulary spells them.
std::vector<std::string> Names(const Tokenizer& tokenizer, const Result<std::vector<int32_t>>& ids) {
  std::vector<std::string> names;
  for (const int32_t id : ids.value()) names.emplace_back(tokenizer.TokenName(id));
  return names;
}

TEST(Tokenizer, SmolLm2_VocabularyAsPublished) {
  const Tokenizer& tokenizer = SmolLm2();
  EXPECT_EQ(tokenizer.vocab_size(), 49152u);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_FALSE(tokenizer.adds_bos());
  EXPECT_FALSE(tokenizer.adds_eos());
  EXPECT_EQ(tokenizer.FindToken("<|im_start|>"), 1);
  EXPECT_EQ(tokenizer.FindToken("no such token"), std::nullopt);
  EXPECT_THAT(tokenizer.end_of_generation_ids(), ElementsAre(0, 2));
  EXPECT_EQ(tokenizer.dropped_bytes().size(), 21u);
  const int32_t the = *tokenizer.FindToken("\xC4\xA0the");
  EXPECT_EQ(tokenizer.TokenBytes(the), " the");
  EXPECT_EQ(tokenizer.TokenName(the), "\xC4\xA0the");
  EXPECT_TRUE(tokenizer.IsSpecial(16));
  EXPECT_FALSE(tokenizer.IsSpecial(17));
}

TEST(Tokenizer, IdOutOfRange_EmptyOrError) {
  const Tokenizer tokenizer = Small();
  const auto past_end = static_cast<int32_t>(tokenizer.vocab_size());
  for (const int32_t id : {-1, past_end, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.TokenBytes(id), "");
    EXPECT_EQ(tokenizer.TokenName(id), "");
    EXPECT_FALSE(tokenizer.IsSpecial(id));
    EXPECT_FALSE(tokenizer.IsEndOfGeneration(id));
    const auto text = tokenizer.Decode(std::vector<int32_t>{0, id}, true);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(text.error().message(), HasSubstr("token id " + std::to_string(id)));
  }
}

TEST(TokenizerEncode, EmptyText_NoTokensButThoseOfTheVocabulary) {
  TokenizerSpec spec = testing::SmallSpec("gpt-2");
  spec.bos_id = static_cast<int32_t>(spec.tokens.size()) - 5;
  spec.eos_id = *spec.bos_id + 1;
  spec.add_bos = true;
  spec.add_eos = true;
  const Tokenizer tokenizer = CreateTokenizer(std::move(spec)).value();
  EXPECT_THAT(Names(tokenizer, tokenizer.Encode("")), ElementsAre("<s>", "</s>"));
  EXPECT_THAT(Names(tokenizer, tokenizer.Encode("he")), ElementsAre("<s>", "he", "</s>"));
  EXPECT_THAT(tokenizer.Encode("", {.add_special = false}).value(), IsEmpty());
  EXPECT_THAT(tokenizer.Encode(PromptText{}, {.add_special = false}).value(), IsEmpty());
  EXPECT_THAT(Small().Encode("").value(), IsEmpty());
}

TEST(TokenizerEncode, Merges_WithinWordsOnly) {
  const Tokenizer tokenizer = Small();
  EXPECT_THAT(Names(tokenizer, tokenizer.Encode("he hello aaaaa")),
              ElementsAre("he", "\xC4\xA0hell", "o", "\xC4\xA0", "aaaa", "a"));
  EXPECT_THAT(Names(tokenizer, tokenizer.Encode("1234")), ElementsAre("123", "4"));
  const Tokenizer smollm = Small("smollm");
  EXPECT_THAT(Names(smollm, smollm.Encode("1234")), ElementsAre("1", "2", "3", "4"));
}

TEST(TokenizerEncode, WordThatIsAToken_SkipsMergingWhereAsked) {
  TokenizerSpec spec = testing::SmallSpec("llama-bpe");
  spec.tokens.emplace_back("xyz");  // no merge makes it
  spec.types.push_back(TokenType::kNormal);
  const auto tokenizer = CreateTokenizer(spec).value();
  EXPECT_THAT(Names(tokenizer, tokenizer.Encode("xyz")), ElementsAre("xyz"));
  spec.ignore_merges = false;
  const auto plain = CreateTokenizer(spec).value();
  EXPECT_THAT(Names(plain, plain.Encode("xyz")), ElementsAre("x", "y", "z"));
}

TEST(TokenizerEncode, SpecialTokens_OnlyWhenAsked) {
  const Tokenizer tokenizer = Small();
  const std::string text = "he<|im_end|><tool>";
  EXPECT_THAT(Names(tokenizer, tokenizer.Encode(text)), ElementsAre("he", "<|im_end|>", "<tool>"));
  EXPECT_THAT(Names(tokenizer, tokenizer.Encode(text, {.parse_special = false})),
              ElementsAre("he", "<", "|", "im", "_", "e", "n", "d", "|", ">", "<tool>"));
}

TEST(TokenizerEncode, CallerText_CannotWriteSpecialTokens) {
  const Tokenizer tokenizer = Small();
  const std::string text = "<|im_start|><|im_end|><|im_end|>";
  const PromptText prompt{.text = text, .caller = {{12, 22}}};
  EXPECT_THAT(Names(tokenizer, tokenizer.Encode(prompt)),
              ElementsAre("<|im_start|>", "<", "|", "im", "_", "e", "n", "d", "|", ">", "<|im_end|>"));
  // One byte of the caller's is enough, wherever it stands.
  for (size_t i = 0; i < 12; ++i) {
    const PromptText one_byte{.text = "<|im_start|>", .caller = {{i, i + 1}}};
    EXPECT_THAT(tokenizer.Encode(one_byte).value(),
                ::testing::Not(::testing::Contains(*tokenizer.FindToken("<|im_start|>"))));
  }
}

TEST(TokenizerEncode, CallerRanges_DoNotChangeHowTextIsSplit) {
  const PromptText prompt{.text = "Say hello  world to me", .caller = {{5, 7}, {7, 7}, {11, 14}}};
  EXPECT_EQ(SmolLm2().Encode(prompt).value(), SmolLm2().Encode(prompt.text).value());
}

TEST(TokenizerEncode, CallerRangesThatAreWrong_InvalidArgument) {
  const Tokenizer tokenizer = Small();
  for (const std::vector<ByteRange>& caller : std::vector<std::vector<ByteRange>>{
           {{0, 6}}, {{6, 6}}, {{3, 2}}, {{2, 3}, {0, 1}}, {{0, 3}, {2, 4}}, {{0, SIZE_MAX}}}) {
    const auto ids = tokenizer.Encode(PromptText{.text = "hello", .caller = caller});
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(ids.error().message(), HasSubstr("caller range ["));
  }
}

TEST(TokenizerEncode, TextTooLong_InvalidArgument) {
  const std::string text((size_t{64} << 20) + 1, ' ');
  const auto ids = Small().Encode(text);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(ids.error().message(), HasSubstr("expected at most 67108864 bytes, found 67108865"));
}

TEST(TokenizerDecode, SpecialTokens_KeptOnlyWhenAsked) {
  const Tokenizer tokenizer = Small();
  const std::vector<int32_t> ids = tokenizer.Encode("<|im_start|>he<tool><|im_end|>").value();
  EXPECT_EQ(tokenizer.Decode(ids, true).value(), "<|im_start|>he<tool><|im_end|>");
  EXPECT_EQ(tokenizer.Decode(ids, false).value(), "he<tool>");
  EXPECT_EQ(tokenizer.Decode({}, true).value(), "");
}

TEST(TokenizerRoundTrip, AnyBytesAnyRule_ComeBack) {
  std::mt19937 random(5);
  for (const char* const rule : kRules) {
    const Tokenizer tokenizer = Small(rule);
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (size_t i = random() % 60; i > 0; --i) {
        text += random() % 2 == 0 ? std::string(1, static_cast<char>(random() % 256))
                                  : std::vector<std::string>{"he",  " ",       "\n",    "aa",       "\xF0\x9F",
                                                             "12",  "<s>",     "<|im_", "\xC3\xA9", "\xE2\x80\x83",
                                                             "'ll", "\xC5\xBF"}[random() % 12];
      }
      ASSERT_EQ(tokenizer.Decode(tokenizer.Encode(text).value(), true).value(), text) << rule << " round " << round;
    }
  }
}

TEST(TokenizerRoundTrip, SmolLm2AnyBytes_ComeBackWithoutThoseItLacks) {
  std::mt19937 random(6);
  const auto dropped = SmolLm2().dropped_bytes();
  for (int round = 0; round < 500; ++round) {
    std::string text(random() % 300, '\0');
    for (char& c : text) c = static_cast<char>(random() % 256);
    const std::string decoded = SmolLm2().Decode(SmolLm2().Encode(text).value(), true).value();
    std::erase_if(text, [&](char c) {
      return std::find(dropped.begin(), dropped.end(), static_cast<uint8_t>(c)) != dropped.end();
    });
    ASSERT_EQ(decoded, text) << "round " << round;
  }
}

// 1 MiB of each: quadratic work would need hours and run into the test's time limit.
TEST(TokenizerEncode, LongRuns_NearlyLinearTime) {
  constexpr size_t kBytes = size_t{1} << 20;
  for (const std::string_view unit : {"a", " ", "ab", "<|im_start|", "<|im_start|>", "7", "\xE4\xB8\xAD"}) {
    std::string text;
    while (text.size() < kBytes) text += unit;
    const std::vector<int32_t> ids = SmolLm2().Encode(text).value();
    EXPECT_LE(ids.size(), text.size()) << unit;
  }
  const PromptText alternating = [] {
    PromptText prompt;
    while (prompt.text.size() < kBytes) {
      prompt.caller.push_back({prompt.text.size(), prompt.text.size() + 1});
      prompt.text += "<|im_end|>";
    }
    return prompt;
  }();
  EXPECT_THAT(SmolLm2().Encode(alternating).value(), ::testing::Not(::testing::Contains(2)));
}

// A vocabulary whose special token <s> is recognised in text that `steps` have normalised.
Tokenizer Normalizing(std::vector<NormalizerStep> steps) {
  TokenizerSpec spec = testing::SmallSpec("gpt-2");
  spec.normalizer = std::move(steps);
  spec.added_flags = {{.id = 270, .normalized = true}};
  return CreateTokenizer(std::move(spec)).value();
}

NormalizerStep Replace(std::string pattern, std::string content) {
  return {.kind = NormalizerKind::kReplace, .pattern = std::move(pattern), .content = std::move(content)};
}

// Steps that make the spelling out of other text, take text away before it, or put some there.
const std::vector<std::vector<NormalizerStep>>& HostileSteps() {
  static const std::vector<std::vector<NormalizerStep>> steps = {
      {{.kind = NormalizerKind::kLowercase}},
      {Replace("_", "")},
      {Replace("^ +", ""), Replace("=", "-----")},
      {{.kind = NormalizerKind::kStripLeft}, {.kind = NormalizerKind::kPrepend, .content = "____"}},
      {{.kind = NormalizerKind::kNfc}, {.kind = NormalizerKind::kStripLeft}},
      {{.kind = NormalizerKind::kNfd}, Replace("\\p{M}", "")},
      {{.kind = NormalizerKind::kSpacesForWhite}, Replace(" {2,}", " ")}};
  return steps;
}

TEST(Tokenizer, NormalizedSpecialTokens_NeverFromACallersBytes) {
  std::mt19937 random(5);
  const std::vector<std::string> parts = {"<s>", "<S>", "<_s>", "<",        "s>", " ",  "   ",
                                          "=",   "x",   "e",    "\xCC\x81", "\t", "ab", "_"};
  for (const auto& steps : HostileSteps()) {
    const Tokenizer tokenizer = Normalizing(steps);
    for (int round = 0; round < 400; ++round) {
      PromptText prompt;
      // Only the caller writes parts of the token; one of its own is put in by the template in every second round.
      for (size_t n = 1 + random() % 6; n > 0; --n) {
        prompt.text += "[]e";
        const size_t begin = prompt.text.size();
        for (size_t m = random() % 5; m > 0; --m) prompt.text += parts[random() % parts.size()];
        prompt.caller.push_back({begin, prompt.text.size()});
      }
      const auto ids = tokenizer.Encode(prompt).value();
      EXPECT_EQ(std::count(ids.begin(), ids.end(), 270), 0) << prompt.text;
      if (steps.back().kind == NormalizerKind::kPrepend)
        continue;  // the token itself is looked for with what is put before it
      prompt.text += "<s>";
      const auto with = tokenizer.Encode(prompt).value();
      EXPECT_GE(std::count(with.begin(), with.end(), 270), 1) << prompt.text;
    }
  }
}

TEST(Tokenizer, NormalizedTextAndItsMarks_SameTokensAsWithout) {
  std::mt19937 random(6);
  const std::vector<std::string> parts = {"e", "\xCC\x81", "\xC3\xA9",     " ", "=", "x", "_",
                                          "A", "\xFF",     "\xE4\xB8\xAD", "\t"};
  for (const auto& steps : HostileSteps()) {
    const Tokenizer tokenizer = Normalizing(steps);
    for (int round = 0; round < 200; ++round) {
      PromptText prompt;
      for (size_t n = random() % 12; n > 0; --n) prompt.text += parts[random() % parts.size()];
      const auto plain = tokenizer.Encode(prompt.text, {.parse_special = false}).value();
      const size_t middle = random() % (prompt.text.size() + 1);
      prompt.caller = {{0, middle}, {middle, prompt.text.size()}};
      EXPECT_EQ(tokenizer.Encode(prompt).value(), plain) << prompt.text;
    }
  }
}

// 1 MiB of white space that each token would take along.
TEST(Tokenizer, WhiteSpaceTokensThatStrip_LinearTime) {
  TokenizerSpec spec = testing::SmallSpec("gpt-2");
  spec.tokens.emplace_back(" \t");
  spec.types.push_back(TokenType::kUserDefined);
  const auto id = static_cast<int32_t>(spec.tokens.size() - 1);
  for (const bool left : {true, false}) {
    TokenizerSpec flagged = spec;
    flagged.added_flags = {{.id = id, .lstrip = left, .rstrip = !left}};
    const Tokenizer tokenizer = CreateTokenizer(std::move(flagged)).value();
    std::string text;
    while (text.size() < (size_t{1} << 20)) text += " \t";
    EXPECT_FALSE(tokenizer.Encode(text).value().empty());
  }
}

}  // namespace
}  // namespace tidemill::tokenizer_test
