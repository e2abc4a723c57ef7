#include "text/piece_symbols.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidemill::piece_symbols_test {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<std::string> Describe(const ScoredMerges& merges) {
  std::vector<std::string> rules;
  for (size_t i = 0; i < merges.rules.size(); ++i) {
    const MergeRule& rule = merges.rules[i];
    rules.push_back(std::to_string(rule.left) + "+" + std::to_string(rule.right) + "=" + std::to_string(rule.merged) +
                    "@" + std::to_string(merges.ranks[i]));
  }
  return rules;
}

TEST(ReadByteToken, SpellingsOfBytes_OrNothing) {
  EXPECT_EQ(ReadByteToken("<0x0A>"), 10);
  EXPECT_EQ(ReadByteToken("<0xff>"), 255);
  for (const std::string_view name : {"", "<0x0A", "<0x0G>", "<0X0A>", "<0x00A>", "0x0A>>", "<0x-1>"})
    EXPECT_EQ(ReadByteToken(name), std::nullopt) << name;
}

TEST(PieceSymbols, CharactersAndLooseOnes_HaveSymbols) {
  const std::vector<Piece> pieces = {{"a", 3, 0}, {"ab\xC3\xA9", 4, 0}, {"\xE4\xB8\xAD", 5, 0}};
  const PieceSymbols symbols(pieces, 10, true);
  EXPECT_EQ(symbols.num_symbols(), 12u);
  EXPECT_EQ(symbols.Find('a'), 3);
  EXPECT_EQ(symbols.Find(0x4E2D), 5);
  EXPECT_EQ(symbols.Find('b'), 10);
  EXPECT_EQ(symbols.Find(0xE9), 11);
  EXPECT_EQ(symbols.Find('c'), -1);
  EXPECT_EQ(symbols.Find(0x10FFFF), -1);
  EXPECT_TRUE(symbols.IsLoose(10));
  EXPECT_FALSE(symbols.IsLoose(9));
  EXPECT_EQ(symbols.LooseCharacter(11), char32_t{0xE9});
  const PieceSymbols strict(pieces, 10, false);
  EXPECT_EQ(strict.num_symbols(), 10u);
  EXPECT_EQ(strict.Find('b'), -1);
}

TEST(PieceSymbols, SpaceWithinPiece_DoesNotBeginPieces) {
  EXPECT_TRUE(PieceSymbols().space_begins_pieces());
  const std::string space(kPieceSpaceUtf8);
  const std::string after = "a" + space;
  const std::string before = space + space + "a";
  EXPECT_TRUE(PieceSymbols(std::vector<Piece>{{before, 0, 0}, {space, 1, 0}}, 2, true).space_begins_pieces());
  EXPECT_FALSE(PieceSymbols(std::vector<Piece>{{before, 0, 0}, {after, 1, 0}}, 2, true).space_begins_pieces());
}

TEST(MakeScoredMerges, EveryWayToMakeAPiece_EqualScoresEqualRanks) {
  const std::vector<Piece> pieces = {{"a", 0, -9}, {"b", 1, -9}, {"ab", 2, -1}, {"ba", 3, -1}, {"aba", 4, -0.5f}};
  EXPECT_THAT(Describe(MakeScoredMerges(pieces, PieceSymbols(pieces, 5, true))),
              UnorderedElementsAre("0+1=2@1", "1+0=3@1", "0+3=4@0", "2+0=4@0"));
}

TEST(MakeScoredMerges, LooseCharacter_MergesToo) {
  const std::vector<Piece> pieces = {{"a", 0, 0}, {"xa", 1, -1}};
  EXPECT_THAT(Describe(MakeScoredMerges(pieces, PieceSymbols(pieces, 2, true))), ElementsAre("2+0=1@1"));
  EXPECT_THAT(Describe(MakeScoredMerges(pieces, PieceSymbols(pieces, 2, false))), ElementsAre());
}

}  // namespace
}  // namespace tidemill::piece_symbols_test
