#include "text/nfc.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/printable_name.h"
#include "tests/fixtures_path.h"

namespace tidemill::nfc_test {
namespace {

TEST(ToNfc, EmptyOrAscii_Unchanged) {
  EXPECT_EQ(ToNfc(""), "");
  EXPECT_EQ(ToNfc("plain text\n\x01"), "plain text\n\x01");
}

TEST(ToNfc, BaseAndMark_OneCodePoint) {
  EXPECT_EQ(ToNfc("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(ToNfc("\xC3\xA9"), "\xC3\xA9");
  EXPECT_EQ(ToNfc("x\xCC\x81"), "x\xCC\x81");                  // there is no such letter
  EXPECT_EQ(ToNfc("q\xCC\x87\xCC\xA3"), "q\xCC\xA3\xCC\x87");  // the mark below goes first
  EXPECT_EQ(ToNfc("\xE2\x84\xAB"), "\xC3\x85");                // the angstrom sign is the letter
}

TEST(ToNfc, HangulParts_OneSyllable) {
  EXPECT_EQ(ToNfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), "\xEA\xB0\x81");
  EXPECT_EQ(ToNfc("\xEA\xB0\x80\xE1\x86\xA8"), "\xEA\xB0\x81");
}

TEST(ToNfc, InvalidBytes_StayAndSeparate) {
  EXPECT_EQ(ToNfc("e\xFF\xCC\x81"), "e\xFF\xCC\x81");
  EXPECT_EQ(ToNfc("\xCC"), "\xCC");
  EXPECT_EQ(ToNfc("\xED\xA0\x80\xE1\x85"), "\xED\xA0\x80\xE1\x85");
}

TEST(ToNfc, AnyBytes_IdempotentAndAtMostThreeTimes) {
  std::mt19937 random(4);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t i = random() % 20; i > 0; --i) {
      text += random() % 3 == 0 ? std::string(1, static_cast<char>(random() % 256))
                                : std::vector<std::string>{"e",
                                                           "\xCC\x81",
                                                           "\xCC\xA3",
                                                           "\xE1\x84\x80",
                                                           "\xE1\x85\xA1",
                                                           "\xF0\x9D\x85\xA0",
                                                           "\xEF\xAC\xAC"}[random() % 7];
    }
    const std::string once = ToNfc(text);
    ASSERT_EQ(ToNfc(once), once) << QuoteName(text);
    ASSERT_LE(once.size(), 3 * text.size()) << QuoteName(text);
  }
}

TEST(ToNfc, Golden_AsTheOriginal) {
  std::ifstream file(std::string(TIDEMILL_FIXTURES) + "/tokenizer_json/nfc.jsonl");
  size_t num_texts = 0;
  for (std::string line; std::getline(file, line); ++num_texts) {
    const auto row = nlohmann::json::parse(line);
    ASSERT_EQ(ToNfc(row[0].get<std::string>()), row[1].get<std::string>()) << line;
  }
  EXPECT_EQ(num_texts, 1500u);
}

// 1 MiB: quadratic work would need hours and run into the test's time limit.
TEST(ToNfc, MarksAlone_NearlyLinearTime) {
  std::string text = "a";
  while (text.size() < (size_t{1} << 20)) text += "\xCC\x81\xCC\xA3";
  EXPECT_EQ(ToNfc(text).substr(0, 6), "\xE1\xBA\xA1\xCC\xA3\xCC");
}

}  // namespace
}  // namespace tidemill::nfc_test
