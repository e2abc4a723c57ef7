#include "text/normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidemill::normalizer_test {
namespace {

using ::testing::HasSubstr;

Result<std::string> Normalize(std::vector<NormalizerStep> steps, std::string_view text, size_t max_bytes = 1000) {
  const Normalizer normalizer = Normalizer::Create(std::move(steps)).value();
  Regex::Scratch scratch;
  RegexBudget budget(text.size());
  return normalizer.Normalize(text, max_bytes, scratch, budget);
}

std::string One(NormalizerKind kind, std::string_view text) { return Normalize({{.kind = kind}}, text).value(); }

NormalizerStep Replace(std::string pattern, std::string content, bool is_literal = false) {
  return {.kind = NormalizerKind::kReplace,
          .pattern = std::move(pattern),
          .is_literal = is_literal,
          .content = std::move(content)};
}

TEST(Normalizer, EachStep) {
  EXPECT_EQ(One(NormalizerKind::kNfc, "e\u0301"), "\u00e9");
  EXPECT_EQ(One(NormalizerKind::kNfd, "\u00e9"), "e\u0301");
  EXPECT_EQ(One(NormalizerKind::kLowercase, "\u00c9\u0130A\xFF"), "\u00e9i\u0307a\xFF");
  EXPECT_EQ(One(NormalizerKind::kStripLeft, " \u3000 a "), "a ");
  EXPECT_EQ(One(NormalizerKind::kStripRight, " a\u3000\n"), " a");
  EXPECT_EQ(One(NormalizerKind::kStripRight, "\xE3\x80"), "\xE3\x80");
  EXPECT_EQ(One(NormalizerKind::kSpacesForWhite, "a\t\u00a0b"), "a  b");
  EXPECT_EQ(One(NormalizerKind::kIsolateHan, "a\u4e2db"), "a \u4e2d b");
  EXPECT_EQ(Normalize({{.kind = NormalizerKind::kPrepend, .content = "_"}}, "a").value(), "_a");
  EXPECT_EQ(Normalize({{.kind = NormalizerKind::kPrepend, .content = "_"}}, "").value(), "");
}

TEST(Normalizer, Replace_TextsAndExpressions) {
  EXPECT_EQ(Normalize({Replace("a.", "x", true)}, "a.ab a.").value(), "xab x");
  EXPECT_EQ(Normalize({Replace("a.", "x")},
                      "a.ab\xFF"
                      "a.")
                .value(),
            "xx\xFFx");
  EXPECT_EQ(Normalize({Replace(R"(\s+)", " ")}, "a \n b").value(), "a b");
  EXPECT_EQ(Normalize({Replace("x*", "-")}, "ab").value(), "-a-b-");
}

TEST(Normalizer, BertRemoves_ControlsButLineBreaks) {
  EXPECT_EQ(Normalize({Replace(std::string(kBertRemoves), "")},
                      "a\x01\t\n\u200d\ufffd\ue000"
                      "b")
                .value(),
            "a\t\nb");
}

TEST(Normalizer, TextThatGrows_Refused) {
  const auto grown = Normalize({Replace("a", std::string(100, 'b'))}, "aaaaaaaaaaaaaaaaaaaa", 1000);
  ASSERT_FALSE(grown.ok());
  EXPECT_EQ(grown.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(grown.error().message(), HasSubstr("normalize a text of 20 bytes: expected at most 1000 then"));
}

TEST(Normalizer, EmptyPattern_Refused) {
  EXPECT_EQ(Normalizer::Create({Replace("", "x", true)}).error().code(), ErrorCode::kUnsupported);
}

TEST(CharsMap, SizesThatContradict_Corrupt) {
  const auto create = [](std::string_view bytes) { return CharsMap::Create(bytes, CharsMapSearch::kLongest); };
  EXPECT_TRUE(create("").ok());
  EXPECT_TRUE(create(std::string_view("\0\0\0\0", 4)).ok());
  for (const std::string& bytes : {std::string("\x01"), std::string("\x08\0\0\0abcd", 8),
                                   std::string("\x03\0\0\0abc", 7), std::string("\xFC\xFF\xFF\xFF", 4)}) {
    const auto map = create(bytes);
    ASSERT_FALSE(map.ok());
    EXPECT_EQ(map.error().code(), ErrorCode::kCorruptFile);
    EXPECT_THAT(map.error().message(), HasSubstr("character map: expected the size of its trie"));
  }
}

TEST(CharsMap, AnyTrie_StaysInside) {
  std::string bytes("\x10\0\0\0", 4);
  for (int i = 0; i < 16; ++i) bytes += static_cast<char>(0xFF - i);
  bytes += "text";
  for (const CharsMapSearch search : {CharsMapSearch::kLongest, CharsMapSearch::kGraphemes}) {
    const CharsMap map = CharsMap::Create(bytes, search).value();
    Regex::Scratch scratch;
    RegexBudget budget(100);
    EXPECT_EQ(map.Map("a\xFF\u00e9\r\n", 100, scratch, budget).value(), "a\xFF\u00e9\r\n");
  }
}

}  // namespace
}  // namespace tidemill::normalizer_test
