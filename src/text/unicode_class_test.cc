#include "text/unicode_class.h"

#include <gtest/gtest.h>

#include <map>

namespace tidemill::unicode_class_test {
namespace {

TEST(UnicodeClassRanges, Table_AscendingDisjointAndWithClasses) {
  int64_t last = -1;
  for (const UnicodeClassRange& range : UnicodeClassRanges()) {
    EXPECT_GT(int64_t{range.first}, last);
    EXPECT_GE(range.last, range.first);
    EXPECT_GT(range.classes, 0);
    last = range.last;
  }
  EXPECT_LE(last, 0x10FFFF);
}

// The counts of the Unicode Character Database: letters and numbers of version 16.0, numbers of 17.0 for the digits step.
TEST(ClassesOf, AllCodePoints_CountsOfUnicode) {
  std::map<UnicodeClasses, int> counts;
  for (char32_t c = 0; c <= 0x110000; ++c) ++counts[ClassesOf(c)];
  EXPECT_EQ(counts[kLetter], 141028);
  EXPECT_EQ(counts[kNumber | kDigitNumeric], 1911);
  EXPECT_EQ(counts[kDigitNumeric], 13);
  EXPECT_EQ(counts[kSpace], 25);
  EXPECT_EQ(counts.size(), 5u);  // and those with no class: the classes exclude each other
}

TEST(ClassesOf, Ascii_AsTheTableSays) {
  for (const UnicodeClassRange& range : UnicodeClassRanges()) {
    for (char32_t c = range.first; c <= range.last && c < 128; ++c)
      EXPECT_EQ(ClassesOf(c), range.classes) << static_cast<int>(c);
  }
  EXPECT_EQ(ClassesOf('_'), 0);
  EXPECT_EQ(ClassesOf('\0'), 0);
}

TEST(ClassesOf, PlacesThatAreEasyToGetWrong_AsTheStandardSays) {
  EXPECT_EQ(ClassesOf(0x85), kSpace);                     // next line
  EXPECT_EQ(ClassesOf(0xA0), kSpace);                     // no-break space
  EXPECT_EQ(ClassesOf(0x200B), 0);                        // zero width space: not White_Space
  EXPECT_EQ(ClassesOf(0xFEFF), 0);                        // byte order mark
  EXPECT_EQ(ClassesOf(0x301), 0);                         // combining acute: a mark is no letter
  EXPECT_EQ(ClassesOf(0xBD), kNumber | kDigitNumeric);    // one half
  EXPECT_EQ(ClassesOf(0x3007), kNumber | kDigitNumeric);  // ideographic zero: Nl
  EXPECT_EQ(ClassesOf(0x2A6DF), kLetter);                 // last of CJK extension B
  EXPECT_EQ(ClassesOf(0x11DE0), kDigitNumeric);           // new in 17.0
  EXPECT_EQ(ClassesOf(0xFFFFFFFF), 0);
}

}  // namespace
}  // namespace tidemill::unicode_class_test
