#include "text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace tidemill::regex_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All matches, left to right; "!" and the message where a search fails.
std::vector<std::string> Matches(std::string_view expression, std::string_view text) {
  const Regex regex = Regex::Compile(expression).value();
  Regex::Scratch scratch;
  RegexBudget budget(text.size());
  std::vector<std::string> found;
  for (size_t from = 0; from <= text.size();) {
    const auto match = regex.Find(text, from, scratch, budget);
    if (!match.ok()) return {"!" + match.error().message()};
    if (!*match) break;
    found.emplace_back(text.substr((*match)->begin, (*match)->end - (*match)->begin));
    from = std::max((*match)->end, from + 1);
  }
  return found;
}

void ExpectError(std::string_view expression, ErrorCode code, const std::string& part) {
  const auto regex = Regex::Compile(expression);
  ASSERT_FALSE(regex.ok()) << expression;
  EXPECT_EQ(regex.error().code(), code) << regex.error().message();
  EXPECT_THAT(regex.error().message(), HasSubstr(part));
}

TEST(Regex, ClassesOfOniguruma_OverUnicode) {
  EXPECT_THAT(Matches(R"(\s)", "a\u00a0\u180e\u0085\u3000b"), ElementsAre("\u00a0", "\u0085", "\u3000"));
  EXPECT_THAT(Matches(R"(\w+)", "a_\u0301\u3007\u00b2 -"), ElementsAre("a_\u0301\u3007\u00b2"));
  EXPECT_THAT(Matches(R"([^\s\w]+)", "ab.- \u2014"), ElementsAre(".-", "\u2014"));
  EXPECT_THAT(Matches(R"([\S]+)", "ab \u180e"), ElementsAre("ab", "\u180e"));
  EXPECT_THAT(Matches(R"(\h+)", "xyz1aFg"), ElementsAre("1aF"));
  EXPECT_THAT(Matches(R"(\p{Han}+)", "\u4e2d\u3002\u3007"), ElementsAre("\u4e2d", "\u3007"));
  EXPECT_THAT(Matches(R"(\p{^L}+)", "a12b"), ElementsAre("12"));
  EXPECT_THAT(Matches(R"([[:punct:]]+)", "a$.b"), ElementsAre("$."));
  EXPECT_THAT(Matches(R"([\d-.]+)", "a1-.b,"), ElementsAre("1-."));
  EXPECT_THAT(Matches(R"([\s-\u3002]+)", "\u3001-\u3002 "), ElementsAre("-\u3002 "));
}

TEST(Regex, Quantifiers_AsOniguruma) {
  EXPECT_THAT(Matches(R"(\d{1,3}+)", "12345"), ElementsAre("12345"));  // repeats; in PCRE2 it would be possessive
  EXPECT_THAT(Matches(R"((ab){1,2}+c)", "abababc"), ElementsAre("abababc"));
  EXPECT_THAT(Matches(R"(\d{,2}x)", "123x"), ElementsAre("23x"));
  EXPECT_THAT(Matches(R"(\d++x)", "12x"), ElementsAre("12x"));
  EXPECT_THAT(Matches(R"(a{x})", "a{x}"), ElementsAre("a{x}"));
  EXPECT_THAT(Matches(R"(a{2,3}?)", "aaaa"), ElementsAre("aa", "aa"));
}

TEST(Regex, AnchorsBoundariesAndOptions) {
  EXPECT_THAT(Matches(R"(\s+$)", "a \nb "), ElementsAre(" ", " "));
  EXPECT_THAT(Matches(R"(\d{1,3}(?=(?:\d{3})*\b))", "1234567"), ElementsAre("1", "234", "567"));
  EXPECT_THAT(Matches(R"((?i:'S))", "'s '\u017f"), ElementsAre("'s", "'\u017f"));
  EXPECT_THAT(Matches("(?m:a.b)", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(Matches("(?i)ab|cd", "CD AB"), ElementsAre("CD", "AB"));
  EXPECT_THAT(Matches("(?<name>a)b", "ab"), ElementsAre("ab"));
  EXPECT_THAT(Matches("a(?#comment)b", "ab"), ElementsAre("ab"));
  EXPECT_THAT(Matches("\\u0041\\x{42}", "AB"), ElementsAre("AB"));
}

TEST(Regex, ClassWithoutAnother) {
  EXPECT_THAT(Matches(R"([\p{L}&&[^\p{Han}]]+)", "ab\u4e2dc"), ElementsAre("ab", "c"));
  EXPECT_THAT(Matches(R"(x[a-z&&[^m]]*n)", "xabn xamn"), ElementsAre("xabn"));
}

TEST(Regex, WhatIsNotRead_RefusedByName) {
  constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;
  ExpectError("[a&&b]", kUnsupported, "&& before anything but [^");
  ExpectError("[a[bc]]", kUnsupported, "[ in a class");
  ExpectError(R"(a{2}?)", kUnsupported, "{n}?");
  ExpectError(R"(a\Kb)", kUnsupported, "\\K");
  ExpectError(R"(\Gb)", kUnsupported, "\\G");
  ExpectError("(*LIMIT_MATCH=1)a", kUnsupported, "(*");
  ExpectError("(?~a)", kUnsupported, "this kind of group");
  ExpectError("a(?i)b", kUnsupported, "an option for the rest of a group");
  ExpectError(R"([\W])", kUnsupported, "\\W in a class");
  ExpectError(std::string(kMaxExpressionBytes + 1, 'a'), kUnsupported, "expected at most 16384 bytes, found 16385");
  ExpectError(std::string(101, '(') + std::string(101, ')'), kUnsupported, "groups nested deeper than 100");
}

TEST(Regex, WhatIsNoExpression_Corrupt) {
  constexpr ErrorCode kCorrupt = ErrorCode::kCorruptFile;
  ExpectError("(", kCorrupt, "'(' without ')'");
  ExpectError(")", kCorrupt, "')' without '('");
  ExpectError("[a", kCorrupt, "'[' without ']'");
  ExpectError("*a", kCorrupt, "a quantifier without anything to repeat");
  ExpectError("a\\", kCorrupt, "'\\' at the end");
  ExpectError("[b-a]", kCorrupt, "range out of order");
  ExpectError("\\p{NoSuchThing}", kCorrupt, "unknown property");
  ExpectError("\\u12", kCorrupt, "\\u without four digits");
  ExpectError("(?<name", kCorrupt, "a name without '>'");
  ExpectError("a\xFF", kCorrupt, "UTF-8");
}

TEST(Regex, MatchesFarAway_AreFound) {
  for (const size_t far : {size_t{1022}, size_t{1023}, size_t{1024}, size_t{1025}, size_t{1026}, size_t{5000}}) {
    EXPECT_THAT(Matches("x|$", std::string(far, 'a') + "x"), ElementsAre("x", ""));
    EXPECT_THAT(Matches("(?<=\u00e9)x", std::string(far, 'a') + "\u00e9x"), ElementsAre("x"));
    EXPECT_THAT(Matches("\u00e9+", std::string(far, 'a') + "\u00e9\u00e9"), ElementsAre("\u00e9\u00e9"));
  }
}

// Work that grows faster than its text ends with an error, in a few seconds.
TEST(Regex, HostileExpressions_BoundedWork) {
  const std::string refused = "more work than its text may take";
  for (const std::string_view expression : {"(a+)+$", "(a|aa)+$"}) {
    const auto found = Matches(expression, std::string(60, 'a') + "c");
    ASSERT_EQ(found.size(), 1u) << expression;
    EXPECT_THAT(found.front(), HasSubstr(refused)) << expression;
  }
  // Loops over one character, which PCRE2 counts as one step each.
  std::string alternatives = "(?=";
  for (int i = 0; i < 1000; ++i) alternatives += "\\p{L}++1|";
  alternatives += "b)";
  const auto start = std::chrono::steady_clock::now();
  const auto found = Matches(alternatives, std::string(100'000, 'a') + " 1");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found.front(), HasSubstr(refused));
}

}  // namespace
}  // namespace tidemill::regex_test
