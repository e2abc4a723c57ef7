#include "text/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidemill {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Every match as "id@begin".
std::vector<std::string> FindAll(const AddedTokens& tokens, const AddedTokens::Search& search) {
  std::vector<std::string> found;
  size_t from = 0;
  while (const auto match = tokens.FindFirst(search, from)) {
    found.push_back(std::to_string(match->id) + "@" + std::to_string(match->begin));
    EXPECT_GT(match->end, match->begin);
    from = match->end;
  }
  return found;
}

AddedTokens Tokens() {
  return AddedTokens({{"<a>", 0, true}, {"<a><b>", 1, true}, {"<b>", 2, true}, {"<t>", 3, false}, {"<t><a>", 4, true}});
}

TEST(AddedTokens, NoneOrNoText_NoMatch) {
  EXPECT_THAT(FindAll(AddedTokens(), {.text = "<a>"}), IsEmpty());
  EXPECT_THAT(FindAll(Tokens(), {.text = ""}), IsEmpty());
  EXPECT_THAT(FindAll(Tokens(), {.text = "<a<b<"}), IsEmpty());
}

TEST(AddedTokens, Overlaps_LeftmostThenLongest) {
  EXPECT_THAT(FindAll(Tokens(), {.text = "x<a><b>y<a><<a>"}), ElementsAre("1@1", "0@8", "0@12"));
  EXPECT_THAT(FindAll(Tokens(), {.text = "<b><a><a><b>"}), ElementsAre("2@0", "0@3", "1@6"));
}

TEST(AddedTokens, SpecialNotWanted_OnlyOthersMatch) {
  EXPECT_THAT(FindAll(Tokens(), {.text = "<a><t><a>", .special = false}), ElementsAre("3@3"));
}

TEST(AddedTokens, CallerBytes_NoSpecialTokenTouchesThem) {
  const std::string text = "<a><b>";
  const auto with_caller = [&](std::vector<ByteRange> caller) {
    return FindAll(Tokens(), {.text = text, .caller = caller});
  };
  EXPECT_THAT(with_caller({{3, 6}}), ElementsAre("0@0"));
  EXPECT_THAT(with_caller({{3, 4}}), ElementsAre("0@0"));
  EXPECT_THAT(with_caller({{2, 3}}), ElementsAre("2@3"));
  EXPECT_THAT(with_caller({{0, 1}}), ElementsAre("2@3"));
  EXPECT_THAT(with_caller({{1, 2}, {4, 5}}), IsEmpty());
  EXPECT_THAT(with_caller({{0, 6}}), IsEmpty());
  EXPECT_THAT(with_caller({{6, 6}}), ElementsAre("1@0"));
}

TEST(AddedTokens, CallerBytesInTokenThatIsNotSpecial_StillMatches) {
  const std::vector<ByteRange> caller = {{0, 6}};
  EXPECT_THAT(FindAll(Tokens(), {.text = "<t><a>", .caller = caller}), ElementsAre("3@0"));
}

TEST(AddedTokens, SearchFromTheMiddle_SkipsRangesThatHaveEnded) {
  const std::vector<ByteRange> caller = {{0, 3}, {3, 6}};
  const std::string text = "<a><a><a>";
  const auto match = Tokens().FindFirst({.text = text, .caller = caller}, 4);
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->begin, 6u);
}

TEST(AddedTokens, BytesAbove127_Ordered) {
  const AddedTokens tokens({{"\xE4\xB8\xAD", 0, true}, {"a", 1, true}, {"\xC3\xA9", 2, true}});
  EXPECT_THAT(FindAll(tokens, {.text = "\xC3\xA9za\xE4\xB8\xAD"}), ElementsAre("2@0", "1@3", "0@4"));
}

}  // namespace
}  // namespace tidemill
