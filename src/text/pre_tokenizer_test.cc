#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/printable_name.h"
#include "tests/fixtures_path.h"
#include "text/utf8.h"

namespace tidemill::pre_tokenizer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Split(const PreTokenizer& pre_tokenizer, std::string_view text, bool begins_input = true) {
  Words words;
  RegexBudget budget(text.size());
  pre_tokenizer.Split(text, begins_input, budget, words).value();
  std::vector<std::string> list;
  for (const ByteRange& range : words.list) list.push_back(words.text.substr(range.begin, range.end - range.begin));
  return list;
}

std::vector<std::string> Split(std::vector<PreTokenizerStep> steps, std::string_view text, bool begins_input = true) {
  return Split(PreTokenizer::Create(std::move(steps)).value(), text, begins_input);
}

PreTokenizerStep Metaspace(PrependScheme scheme, bool split) {
  return {.kind = PreTokenizerKind::kMetaspace, .replacement = "_", .scheme = scheme, .split = split};
}

TEST(PreTokenizer, EveryBehavior_AndItsInverse) {
  const auto with = [](SplitBehavior behavior, bool invert) {
    PreTokenizerStep step = PreTokenizerStep::Split("-", behavior);
    step.invert = invert;
    return Split({step}, "the-final--countdown");
  };
  using enum SplitBehavior;
  EXPECT_THAT(with(kRemoved, false), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(with(kRemoved, true), ElementsAre("-", "-", "-"));
  EXPECT_THAT(with(kIsolated, false), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(with(kMergedWithPrevious, false), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(with(kMergedWithNext, false), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(with(kContiguous, false), ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(PreTokenizer, Steps_WorkOnThePiecesOfTheOneBefore) {
  EXPECT_THAT(Split({PreTokenizerStep::Split(R"(\d)"), PreTokenizerStep::Split(R"(\s+$)")}, "a 1b "),
              ElementsAre("a", " ", "1", "b", " "));
  EXPECT_THAT(Split(std::vector<PreTokenizerStep>(), "a b"), ElementsAre("a b"));
  EXPECT_THAT(Split({PreTokenizerStep::Split("a")}, ""), IsEmpty());
}

TEST(PreTokenizer, EmptyMatches_CutAndAreNoWords) {
  EXPECT_THAT(Split({PreTokenizerStep::Split(R"((?=\d))")}, "a12"), ElementsAre("a", "1", "2"));
  EXPECT_THAT(Split({PreTokenizerStep::Split("x*", SplitBehavior::kMergedWithNext)}, "axb"), ElementsAre("a", "xb"));
}

TEST(PreTokenizer, Metaspace_SchemesAndSplit) {
  EXPECT_THAT(Split({Metaspace(PrependScheme::kAlways, true)}, "a  b"), ElementsAre("_a", "_", "_b"));
  EXPECT_THAT(Split({Metaspace(PrependScheme::kAlways, false)}, " a b", false), ElementsAre("_a_b"));
  EXPECT_THAT(Split({Metaspace(PrependScheme::kFirst, false)}, "a b", true), ElementsAre("_a_b"));
  EXPECT_THAT(Split({Metaspace(PrependScheme::kFirst, false)}, "a b", false), ElementsAre("a_b"));
  EXPECT_THAT(Split({Metaspace(PrependScheme::kNever, true)}, "a b"), ElementsAre("a", "_b"));
}

TEST(PreTokenizer, BytesThatAreNoText_StayAndHaveNoClass) {
  EXPECT_THAT(Split({PreTokenizerStep::Split(R"(\p{L}+)")}, "ab\xFF\xE4\xB8g"), ElementsAre("ab", "\xFF\xE4\xB8", "g"));
  EXPECT_THAT(Split({Metaspace(PrependScheme::kAlways, true)}, "\xFF \xC3"), ElementsAre("_\xFF", "_\xC3"));
  EXPECT_THAT(Split({{.kind = PreTokenizerKind::kSpellBytes}}, " \xFF"), ElementsAre("\u0120\u00ff"));
}

// The mask is a control character, too, and may be what a file puts in front.
TEST(PreTokenizer, ReplacementLikeTheMask_SameWordsOfBoth) {
  PreTokenizerStep metaspace = Metaspace(PrependScheme::kAlways, true);
  metaspace.replacement = "\x01";
  EXPECT_THAT(Split({PreTokenizerStep::Split("x"), metaspace, PreTokenizerStep::Split("y")}, "\xFF\xFFxy\xFF"),
              ElementsAre("\x01", "\xFF", "\xFF", "\x01x", "\x01", "y", "\xFF"));
}

TEST(PreTokenizer, KnownSteps_AreOneRule) {
  const auto rule = [](std::string_view name) {
    return PreTokenizer::Create(FindPreTokenizer(name).value().steps).value().rule();
  };
  EXPECT_EQ(rule("gpt-2"), WordRule::kGpt2);
  EXPECT_EQ(rule("smollm"), WordRule::kDigitsThenGpt2);
  EXPECT_EQ(rule("llama-bpe"), WordRule::kLlama3);
  EXPECT_EQ(rule("qwen2"), WordRule::kQwen2);
  EXPECT_EQ(rule("tekken"), std::nullopt);
}

TEST(FindPreTokenizer, EveryName_MakesSteps) {
  std::string names = KnownPreTokenizers();
  EXPECT_THAT(names, ::testing::StartsWith("default, gpt-2, "));
  std::ifstream file(std::string(TIDEMILL_FIXTURES) + "/../../docs/models.md");
  const std::string documented{std::istreambuf_iterator<char>(file), {}};
  size_t count = 0;
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(", ", at), names.size());
    const std::string name = names.substr(at, end - at);
    const auto found = FindPreTokenizer(name);
    ASSERT_TRUE(found) << name;
    EXPECT_TRUE(PreTokenizer::Create(found->steps).ok()) << name;
    EXPECT_TRUE(documented.find(" " + name + ",") != std::string::npos ||
                documented.find(" " + name + ".\n") != std::string::npos)
        << name;
    ++count;
    at = end + 2;
  }
  EXPECT_GE(count, 70u);
  for (const char* const unknown : {"", "no-such", "gpt-2 phi-2", "gpt"})
    EXPECT_FALSE(FindPreTokenizer(unknown)) << unknown;
}

// The splitters that are written out give what their expressions give.
TEST(PreTokenizer, WrittenOutRules_SameAsTheirExpressions) {
  std::mt19937 random(20261129);
  const std::vector<std::string> parts = {"a",      "Z",      " ",      "  ",        "\n",     "\r\n",   "\t",
                                          "1",      "23",     "'s",     "'LL",       "'",      ".",      "!?",
                                          "\u00e9", "\u4e2d", "\u0301", "\u3000",    "\u00a0", "\u00bd", "'\u017f",
                                          "-",      "_",      "\u2028", "\U0001f600"};
  for (const WordRule rule : {WordRule::kGpt2, WordRule::kLlama3, WordRule::kQwen2}) {
    // A group around it makes it unknown.
    const PreTokenizer slow =
        PreTokenizer::Create({PreTokenizerStep::Split("(?:" + std::string(ExpressionOf(rule)) + ")")}).value();
    ASSERT_EQ(slow.rule(), std::nullopt);
    for (int i = 0; i < 4000; ++i) {
      std::string text;
      for (size_t n = random() % 20; n > 0; --n) text += parts[random() % parts.size()];
      std::vector<std::string> fast;
      WordSplitter splitter(rule, text);
      for (std::string_view word = splitter.Next(); !word.empty(); word = splitter.Next()) fast.emplace_back(word);
      ASSERT_EQ(Split(slow, text), fast) << QuoteName(text);
    }
  }
}

// 256 KiB of each: a step that looked back or ahead from every place would run into the test's time limit.
TEST(PreTokenizer, LongRuns_LinearTime) {
  for (const char* const name : {"tekken", "deepseek-coder", "deepseek-v3", "falcon", "default", "bloom"}) {
    const PreTokenizer pre_tokenizer = PreTokenizer::Create(FindPreTokenizer(name).value().steps).value();
    for (const std::string_view unit : {"a", " ", "\n", "1", ".", "A", "\u4e2d", "\xFF", " \n"}) {
      std::string text;
      while (text.size() < (size_t{1} << 18)) text += unit;
      Words words;
      RegexBudget budget(text.size());
      const auto done = pre_tokenizer.Split(text, true, budget, words);
      ASSERT_TRUE(done.ok()) << name << ": " << QuoteName(unit) << ": " << done.error().message();
      EXPECT_EQ(words.list.back().end, text.size());
    }
  }
}

// This expression looks ahead to the end of a number at every third of its digits.
TEST(PreTokenizer, WorkThatGrowsWithTheSquare_EndsWithAnError) {
  const PreTokenizer pre_tokenizer = PreTokenizer::Create(FindPreTokenizer("tiny_aya").value().steps).value();
  Words words;
  const std::string text(size_t{1} << 18, '1');
  RegexBudget budget(text.size());
  const auto done = pre_tokenizer.Split(text, true, budget, words);
  ASSERT_FALSE(done.ok());
  EXPECT_THAT(done.error().message(), ::testing::HasSubstr("more work than its text may take"));
}

}  // namespace
}  // namespace tidemill::pre_tokenizer_test
