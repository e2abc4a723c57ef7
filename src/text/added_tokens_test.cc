#include "text/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tidemill::added_tokens_test {
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

// The same by trying every token at every place.
std::vector<std::string> FindAllPlainly(const std::vector<AddedToken>& tokens, const AddedTokens::Search& search) {
  std::vector<std::string> found;
  for (size_t at = 0; at < search.text.size();) {
    const AddedToken* longest = nullptr;
    for (const AddedToken& token : tokens) {
      const size_t end = at + token.text.size();
      const bool is_void =
          token.special &&
          (!search.special || std::any_of(search.caller.begin(), search.caller.end(),
                                          [&](const ByteRange& r) { return r.begin < end && at < r.end; }));
      if (is_void || !search.text.substr(at).starts_with(token.text)) continue;
      if (longest == nullptr || token.text.size() > longest->text.size()) longest = &token;
    }
    if (longest != nullptr) found.push_back(std::to_string(longest->id) + "@" + std::to_string(at));
    at += longest == nullptr ? 1 : longest->text.size();
  }
  return found;
}

TEST(AddedTokens, RandomTokensAndTexts_AsThePlainSearch) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 2000; ++round) {
    const size_t letters = 1 + below(3), longest = 1 + below(24);
    const auto word = [&](size_t most) {
      std::string text(1 + below(most), 'a');
      for (char& c : text)
        c = "a\xFF"
            "c"[below(letters)];
      return text;
    };
    std::set<std::string> texts;
    for (size_t i = below(40) + 1; i > 0; --i) texts.insert(word(longest));
    std::vector<AddedToken> list;
    for (const std::string& text : texts) list.push_back({text, static_cast<int32_t>(list.size()), below(2) == 0});
    std::shuffle(list.begin(), list.end(), random);
    const std::string text = word(80);
    std::vector<ByteRange> caller;
    for (size_t begin = below(20); begin < text.size(); begin += 1 + below(20)) {
      const size_t end = std::min(text.size(), begin + 1 + below(10));
      caller.push_back({begin, end});
      begin = end;
    }
    const AddedTokens::Search search = {.text = text, .special = below(4) != 0, .caller = caller};
    ASSERT_EQ(FindAll(AddedTokens(list), search), FindAllPlainly(list, search)) << "round " << round;
  }
}

// Every place shares a thousand bytes with many tokens, and a thousand of them are void there.
TEST(AddedTokens, TextThatAlmostSpellsTokens_IsSearchedInTime) {
  std::vector<std::string> texts;
  for (size_t length = 1; length < kMaxAddedTokenBytes; ++length) texts.push_back(std::string(length, 'a'));
  for (char last = 'b'; last <= 'z'; ++last) texts.push_back(std::string(kMaxAddedTokenBytes - 1, 'a') + last);
  std::vector<AddedToken> list;
  for (const std::string& text : texts) list.push_back({text, static_cast<int32_t>(list.size()), true});
  const std::string text(200'000, 'a');
  const std::vector<ByteRange> caller = {{0, text.size()}};
  EXPECT_THAT(FindAll(AddedTokens(list), {.text = text, .caller = caller}), IsEmpty());
}

// "begin-end>next" of every match.
std::vector<std::string> FindFlagged(const AddedTokens& tokens, std::string_view text) {
  std::vector<std::string> found;
  size_t from = 0, done = 0;
  while (const auto match = tokens.FindFirst({.text = text}, from, done)) {
    found.push_back(std::to_string(match->begin) + "-" + std::to_string(match->end) + ">" +
                    std::to_string(match->next));
    done = match->end;
    from = match->next;
  }
  return found;
}

TEST(AddedTokens, StripFlags_TakeWhiteSpaceThatIsLeft) {
  AddedTokens tokens({{.text = "<l>", .id = 0, .lstrip = true}, {.text = "<r>", .id = 1, .rstrip = true}});
  EXPECT_THAT(FindFlagged(tokens, "a  <l> b"), ElementsAre("1-6>6"));
  EXPECT_THAT(FindFlagged(tokens, "a <r>\xE3\x80\x80\nb"), ElementsAre("2-9>5"));
  EXPECT_THAT(FindFlagged(tokens, "<r>  <l>"), ElementsAre("0-5>3", "5-8>8"));  // the first has taken the spaces
  EXPECT_THAT(FindFlagged(tokens, " <l>"), ElementsAre("0-4>4"));
}

TEST(AddedTokens, SingleWord_OnlyBetweenOtherCharacters) {
  const AddedTokens tokens({{.text = "<w>", .id = 0, .single_word = true}, {.text = "<w><w>", .id = 1}});
  EXPECT_THAT(FindFlagged(tokens, "<w> a<w> <w>b <w>_ .<w>,"), ElementsAre("0-3>3", "20-23>23"));
  EXPECT_THAT(FindFlagged(tokens, "\xC3\xA9<w> <w>\xCC\x81 \xE2\x80\x8D<w>"), IsEmpty());
  EXPECT_THAT(FindFlagged(tokens, "a<w><w>"), ElementsAre("1-7>7"));
}

}  // namespace
}  // namespace tidemill::added_tokens_test
