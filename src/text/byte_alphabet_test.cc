#include "text/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

namespace tidemill::byte_alphabet_test {
namespace {

TEST(SpellByte, EveryByte_OneCharacterOfItsOwn) {
  std::set<char32_t> characters;
  for (int byte = 0; byte < 256; ++byte) characters.insert(SpellByte(static_cast<uint8_t>(byte)));
  EXPECT_EQ(characters.size(), 256u);
  EXPECT_EQ(SpellByte('A'), U'A');
  EXPECT_EQ(SpellByte(' '), U'\u0120');
  EXPECT_EQ(SpellByte('\n'), U'\u010A');
  EXPECT_EQ(SpellByte(0xAD), U'\u0143');  // the soft hyphen, the last of the hidden ones
  EXPECT_EQ(SpellByte(0xFF), U'\u00FF');
}

TEST(ReadSpelledBytes, SpelledBytes_ComeBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  EXPECT_EQ(ReadSpelledBytes(SpellBytes(bytes)), bytes);
  EXPECT_EQ(ReadSpelledBytes(""), "");
}

TEST(ReadSpelledBytes, CharacterThatSpellsNoByte_Nothing) {
  EXPECT_EQ(ReadSpelledBytes("a b"), std::nullopt);
  EXPECT_EQ(ReadSpelledBytes("\xE4\xB8\xAD"), std::nullopt);
  EXPECT_EQ(ReadSpelledBytes("\xC5\x84"), std::nullopt);  // U+0144, one past the last
  EXPECT_EQ(ReadSpelledBytes("\xFF"), std::nullopt);
  EXPECT_EQ(ReadSpelledBytes("a\xC4"), std::nullopt);
}

}  // namespace
}  // namespace tidemill::byte_alphabet_test
