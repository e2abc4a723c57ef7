#include "base/printable_name.h"

#include <gtest/gtest.h>

namespace tidemill::printable_name_test {
namespace {

using std::string_literals::operator""s;

TEST(PrintableName, WellFormedText_HasNoUnprintableByte) {
  for (const std::string& name : {""s, "blk.0.attn_q.weight"s,
                                  "Gr\xC3\xB6\xC3\x9F"
                                  "e"s,
                                  "\xE6\xB0\xB4"s, "\xF0\x9F\x8C\x8A"s, "\xF4\x8F\xBF\xBF"s, "\xC2\xA0"s}) {
    EXPECT_EQ(FindUnprintableByte(name), name.size()) << name;
  }
}

TEST(PrintableName, DamagedText_PointsAtTheFirstBadByte) {
  struct Case {
    std::string name;
    size_t bad;
  };
  const Case cases[] = {
      {"a\0b"s, 1},
      {"\n"s, 0},
      {"ab\x7F"s, 2},
      {"a\x1B[31m"s, 1},
      {"\x80"s, 0},
      {"ab\xC3"s, 2},
      {"\xC0\xAF"s, 0},
      {"\xC1\xBF"s, 0},
      {"\xE0\x80\xAF"s, 0},
      {"\xED\xA0\x80"s, 0},
      {"\xF0\x80\x80\x80"s, 0},
      {"\xF4\x90\x80\x80"s, 0},
      {"\xF5\x80\x80\x80"s, 0},
      {"\xC2\x85"s, 0},
      {"x\xE6\xB0"s, 1},
      {"x\xE6\xB0y"s, 1},
      {"\xFF"s, 0},
  };
  for (const Case& c : cases) EXPECT_EQ(FindUnprintableByte(c.name), c.bad) << QuoteName(c.name);
}

TEST(PrintableName, Quote_EscapesAndCuts) {
  EXPECT_EQ(QuoteName("a.b"), "\"a.b\"");
  EXPECT_EQ(QuoteName("a\n\xFF\xC3\xB6"), "\"a\\x0a\\xff\xC3\xB6\"");
  EXPECT_EQ(QuoteName(std::string(80, 'x')), "\"" + std::string(80, 'x') + "\"");
  EXPECT_EQ(QuoteName(std::string(81, 'x')), "\"" + std::string(80, 'x') + "...\"");
  EXPECT_EQ(QuoteName(std::string(79, 'x') + "\xC3\xB6"), "\"" + std::string(79, 'x') + "...\"");  // no half character
}

}  // namespace
}  // namespace tidemill::printable_name_test
