#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tidemill::utf8_test {
namespace {

TEST(DecodeUtf8, EveryCodePoint_SurvivesEncoding) {
  std::string bytes;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    bytes.clear();
    AppendUtf8(c, bytes);
    const Utf8Char decoded = DecodeUtf8(bytes);
    ASSERT_EQ(decoded.status, Utf8Status::kValid) << static_cast<uint32_t>(c);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.length, bytes.size());
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const Utf8Char part = DecodeUtf8(std::string_view(bytes).substr(0, cut));
      ASSERT_EQ(part.status, Utf8Status::kIncomplete) << static_cast<uint32_t>(c) << " cut at " << cut;
      ASSERT_EQ(part.length, cut);
    }
  }
}

TEST(DecodeUtf8, InvalidLead_TakesOneByte) {
  for (const std::string_view bytes : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_EQ(DecodeUtf8(bytes).status, Utf8Status::kInvalid) << bytes;
    EXPECT_EQ(DecodeUtf8(bytes).length, 1) << bytes;
  }
}

// Unicode 16.0, tables 3-8 to 3-11.
TEST(ReplaceInvalidUtf8, ExamplesOfTheStandard_OneReplacementPerMaximalSubpart) {
  const auto replacements = [](size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += kReplacementUtf8;
    return text;
  };
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), replacements(8) + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), replacements(8) + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), replacements(5) + "A" + replacements(2) + "B");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), replacements(4) + "A");
}

TEST(ReplaceInvalidUtf8, ValidOrEmptyText_Unchanged) {
  for (const std::string_view text : {"", "plain", "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80", "\xEF\xBF\xBD"}) {
    EXPECT_TRUE(IsValidUtf8(text));
    EXPECT_EQ(ReplaceInvalidUtf8(text), text);
  }
}

TEST(ReplaceInvalidUtf8, IncompleteEnd_OneReplacement) {
  EXPECT_EQ(ReplaceInvalidUtf8("a\xF0\x9F\x98"), "a\xEF\xBF\xBD");
  EXPECT_FALSE(IsValidUtf8("a\xF0\x9F\x98"));
}

TEST(AppendWholeUtf8, AnyCutOfRandomBytes_JoinsToTheWhole) {
  std::mt19937 random(7);
  const std::vector<std::string> pieces = {"a",        "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xF0\x9F",
                                           "\xE1\x80", "\xED\xA0", "\x80",         "\xF4\x91\x92\x93", "\xFF",
                                           "\xC3",     "\xF0"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (size_t i = random() % 12; i > 0; --i) bytes += pieces[random() % pieces.size()];
    std::string pending;
    std::string text;
    for (size_t done = 0; done < bytes.size();) {
      const size_t count = 1 + random() % 5;
      AppendWholeUtf8(std::string_view(bytes).substr(done, count), pending, text);
      ASSERT_LE(pending.size(), 3u);
      ASSERT_TRUE(IsValidUtf8(text));
      done += count;
    }
    if (!pending.empty()) text += kReplacementUtf8;
    ASSERT_EQ(text, ReplaceInvalidUtf8(bytes)) << "round " << round;
  }
}

TEST(DecodeLastUtf8, ValidOrNot_TheLastCharacterOrOneByte) {
  EXPECT_EQ(DecodeLastUtf8("a").code_point, U'a');
  EXPECT_EQ(DecodeLastUtf8("a\xE3\x80\x80").code_point, U'\u3000');
  EXPECT_EQ(DecodeLastUtf8("a\xF0\x9F\x98\x80").length, 4);
  for (const char* const text : {"a\xE3\x80", "\x80", "\xC3\xA9\x80", "\x80\x80\x80\x80\x80"}) {
    EXPECT_EQ(DecodeLastUtf8(text).status, Utf8Status::kInvalid) << text;
    EXPECT_EQ(DecodeLastUtf8(text).length, 1) << text;
  }
}

}  // namespace
}  // namespace tidemill::utf8_test
