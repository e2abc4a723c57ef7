#include "text/text_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidemill::text_table_test {
namespace {

struct Texts {
  std::vector<std::string> texts;
  std::string_view operator()(int32_t number) const { return texts[static_cast<size_t>(number)]; }
};

TEST(TextTable, NoRoom_FindsNothing) {
  const Texts none;
  EXPECT_EQ(TextTable().Find("a", none), -1);
  EXPECT_EQ(TextTable(0).Find("", none), -1);
}

TEST(TextTable, FullTable_FindsEachAndNoOther) {
  for (const int32_t count : {1, 2, 3, 17, 1000, 4096}) {
    Texts texts;
    for (int32_t i = 0; i < count; ++i)
      texts.texts.push_back(std::string(static_cast<size_t>(i % 3), '\0') + std::to_string(i));
    TextTable table(texts.texts.size());
    for (int32_t i = 0; i < count; ++i) {
      EXPECT_EQ(table.Find(texts(i), texts), -1) << i;
      EXPECT_EQ(table.Add(i, texts), i);
    }
    for (int32_t i = 0; i < count; ++i) EXPECT_EQ(table.Find(texts(i), texts), i) << "of " << count;
    for (int32_t i = count; i < 2 * count; ++i) EXPECT_EQ(table.Find(std::to_string(i) + "x", texts), -1) << i;
  }
}

TEST(TextTable, EqualTexts_TheFirstStays) {
  const Texts texts{{"a", "", "a", ""}};
  TextTable table(3);
  EXPECT_EQ(table.Add(0, texts), 0);
  EXPECT_EQ(table.Add(1, texts), 1);
  EXPECT_EQ(table.Add(2, texts), 0);
  EXPECT_EQ(table.Add(3, texts), 1);
  EXPECT_EQ(table.Find("a", texts), 0);
  EXPECT_EQ(table.Find("", texts), 1);
}

}  // namespace
}  // namespace tidemill::text_table_test
