#include "text/word_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tidemill::word_splitter_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Split(WordRule rule, std::string_view text) {
  WordSplitter splitter(rule, text);
  std::vector<std::string> words;
  for (std::string_view word = splitter.Next(); !word.empty(); word = splitter.Next()) words.emplace_back(word);
  return words;
}

TEST(FindWordRule, KnownAndUnknownExpressions_RuleOrNothing) {
  for (const WordRule rule : {WordRule::kGpt2, WordRule::kLlama3, WordRule::kQwen2})
    EXPECT_EQ(FindWordRule(ExpressionOf(rule)), rule);
  EXPECT_EQ(FindWordRule(""), std::nullopt);
  EXPECT_EQ(FindWordRule(R"(\p{N})"), std::nullopt);
}

TEST(WordSplitter, Gpt2_WordsNumbersAndRest) {
  EXPECT_THAT(Split(WordRule::kGpt2, "Hello world, it's 2024!"),
              ElementsAre("Hello", " world", ",", " it", "'s", " 2024", "!"));
  EXPECT_THAT(Split(WordRule::kGpt2, ""), IsEmpty());
  EXPECT_THAT(Split(WordRule::kGpt2, "'S '' 're"), ElementsAre("'", "S", " ''", " '", "re"));
}

TEST(WordSplitter, Gpt2SpaceRun_LeavesOneSpaceToTheNextWord) {
  EXPECT_THAT(Split(WordRule::kGpt2, "a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(Split(WordRule::kGpt2, "a \n\tb"), ElementsAre("a", " \n", "\t", "b"));
  EXPECT_THAT(Split(WordRule::kGpt2, "a   "), ElementsAre("a", "   "));
  EXPECT_THAT(Split(WordRule::kGpt2, " "), ElementsAre(" "));
}

TEST(WordSplitter, Smollm_EachNumberAloneAndStretchesEndThere) {
  EXPECT_THAT(Split(WordRule::kDigitsThenGpt2, "x  12 y"), ElementsAre("x", "  ", "1", "2", " y"));
  EXPECT_THAT(Split(WordRule::kDigitsThenGpt2, "7"), ElementsAre("7"));
}

TEST(WordSplitter, Llama3_GroupsOfThreeDigitsAndLineBreaks) {
  EXPECT_THAT(Split(WordRule::kLlama3, "I'LL 12345;\n\n  x"),
              ElementsAre("I", "'LL", " ", "123", "45", ";\n\n", " ", " x"));
  EXPECT_THAT(Split(WordRule::kQwen2, "12 \t\n\n x"), ElementsAre("1", "2", " \t\n\n", " x"));
}

TEST(WordSplitter, InvalidBytes_NeitherLetterNorNumberNorSpace) {
  for (const WordRule rule : {WordRule::kGpt2, WordRule::kDigitsThenGpt2, WordRule::kLlama3, WordRule::kQwen2}) {
    EXPECT_THAT(Split(rule, "a\xFF\xC3. b"), ElementsAre("a", "\xFF\xC3.", " b"));
    EXPECT_THAT(Split(rule, "a \xE4\xB8"), ElementsAre("a", " \xE4\xB8"));
  }
}

TEST(WordSplitter, RandomBytes_WordsJoinToTheText) {
  std::mt19937 random(11);
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (size_t i = random() % 40; i > 0; --i) {
      text.push_back(static_cast<char>(random() % 3 == 0 ? random() % 256
                                                         : std::string_view(" \n\r'sa1.\xC5\xBF")[random() % 10]));
    }
    for (const WordRule rule : {WordRule::kGpt2, WordRule::kDigitsThenGpt2, WordRule::kLlama3, WordRule::kQwen2}) {
      std::string joined;
      for (const std::string& word : Split(rule, text)) joined += word;
      ASSERT_EQ(joined, text) << "round " << round;
    }
  }
}

// 1 MiB of each: a rule that looked back or ahead from every place would need hours and run into the test's time limit.
TEST(WordSplitter, LongRuns_LinearTime) {
  constexpr size_t kBytes = size_t{1} << 20;
  for (const std::string_view unit :
       {"a", " ", "\n", " \n", "'", "1", ".", "a ", "  a", "\xE3\x80\x80", "\xF0\x9F", "\n x"}) {
    std::string text;
    while (text.size() < kBytes) text += unit;
    for (const WordRule rule : {WordRule::kGpt2, WordRule::kDigitsThenGpt2, WordRule::kLlama3, WordRule::kQwen2}) {
      WordSplitter splitter(rule, text);
      size_t bytes = 0;
      for (std::string_view word = splitter.Next(); !word.empty(); word = splitter.Next()) bytes += word.size();
      EXPECT_EQ(bytes, text.size()) << unit;
    }
  }
}

}  // namespace
}  // namespace tidemill::word_splitter_test
