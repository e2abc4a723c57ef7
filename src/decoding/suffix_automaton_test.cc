#include "decoding/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "decoding/drafter.h"

namespace tidemill::suffix_automaton_test {
namespace {

// The longest end of at most `longest` ids that also ends at an earlier position, and the latest of those, by looking everywhere.
SuffixAutomaton::Repeat LongestRepeat(const std::vector<int32_t>& ids, size_t longest) {
  SuffixAutomaton::Repeat found;
  for (size_t end = 1; end < ids.size(); ++end) {
    size_t length = 0;
    while (length < std::min(end, longest) && ids[end - 1 - length] == ids[ids.size() - 1 - length]) ++length;
    if (length != 0 && length >= found.length) found = {length, end};
  }
  return found;
}

class Repeats : public ::testing::TestWithParam<size_t> {};

INSTANTIATE_TEST_SUITE_P(Longest, Repeats, ::testing::Values(1, 2, 3, 5, 8, 13, ~size_t{0}), [](const auto& test) {
  return test.param == ~size_t{0} ? std::string("Any") : std::to_string(test.param);
});

TEST_P(Repeats, AreWhatASearchFinds) {
  const size_t longest = GetParam();
  size_t shortened = 0;  // repeats that are as long as they may be
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto letters = static_cast<int32_t>(1 + seed % 5);
    SuffixAutomaton automaton(longest);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < 150; ++i) {
      // Copies of what was there, too, so that long repeats occur.
      const size_t copied = random() % 4 == 0 && i > 10 ? random() % 12 : 1;
      const size_t from = ids.size() < 13 ? 0 : random() % (ids.size() - 12);
      for (size_t j = 0; j < copied; ++j) {
        ids.push_back(copied == 1 ? static_cast<int32_t>(random() % static_cast<uint64_t>(letters)) * 100000
                                  : ids[from + j]);
        automaton.Append(ids.back());
        const std::string where = "seed " + std::to_string(seed) + ", " + std::to_string(ids.size()) + " ids";
        const SuffixAutomaton::Repeat found = automaton.LongestRepeat(), expected = LongestRepeat(ids, longest);
        ASSERT_EQ(automaton.size(), ids.size());
        ASSERT_EQ(found.length, expected.length) << where;
        if (found.length == 0) continue;
        ASSERT_LT(found.end, ids.size());
        ASSERT_GE(found.end, found.length);
        ASSERT_TRUE(std::equal(ids.end() - static_cast<std::ptrdiff_t>(found.length), ids.end(),
                               ids.begin() + static_cast<std::ptrdiff_t>(found.end - found.length)))
            << where;
        if (found.length != longest) continue;
        ASSERT_EQ(found.end, expected.end) << where;
        ++shortened;
      }
    }
  }
  if (longest != ~size_t{0}) {
    EXPECT_GT(shortened, 1000U);
  }
}

// Texts that repeat themselves in several ways, and repeats of any length. Of a uniform text every part is an end: a walk from the longest
// one down would take a step for each id of the text, each time.
TEST(SuffixAutomaton, EachId_TakesConstantTimeOnAverage) {
  constexpr uint64_t kIds = 20'000;
  std::mt19937_64 random(1);
  const std::vector<std::function<uint64_t(uint64_t)>> texts = {
      [](uint64_t) { return 7; },                                         // uniform
      [](uint64_t i) { return i % 100; },                                 // periodic
      [&](uint64_t) { return random() % 2; },                             // of two letters
      [](uint64_t i) { return i; },                                       // always new
      [](uint64_t i) { return static_cast<uint64_t>(std::popcount(i)); }  // of its own parts
  };
  for (size_t text = 0; text < texts.size(); ++text) {
    for (const size_t longest : {size_t{1}, size_t{3}, size_t{50}, ~size_t{0}}) {
      SuffixAutomaton automaton(longest);
      for (uint64_t i = 0; i < kIds; ++i) automaton.Append(static_cast<int32_t>(texts[text](i)));
      EXPECT_LE(automaton.lookups(), 10 * kIds) << "text " << text << ", longest " << longest;
      EXPECT_GE(automaton.lookups(), kIds);
      if (text != 0) continue;
      EXPECT_EQ(automaton.LongestRepeat().length, std::min<size_t>(longest, kIds - 1));
      EXPECT_EQ(automaton.LongestRepeat().end, kIds - 1);
    }
  }
}

std::vector<int32_t> Proposed(const std::string& text, size_t shortest, size_t most, size_t longest = ~size_t{0},
                              size_t vocab_size = ~size_t{0}) {
  NgramDrafter drafter(shortest, longest, vocab_size);
  for (const char letter : text) drafter.Append(letter);
  const DraftTree tree = drafter.Propose(most);
  EXPECT_TRUE(tree.parents.empty());
  return {tree.ids.begin(), tree.ids.end()};
}

std::vector<int32_t> Ids(const std::string& text) { return {text.begin(), text.end()}; }

TEST(NgramDrafter, ProposesWhatFollowedBefore) {
  EXPECT_EQ(Proposed("abcdefgXabc", 1, 3), Ids("def"));
  EXPECT_EQ(Proposed("abcdefgXabc", 3, 3), Ids("def"));
  EXPECT_EQ(Proposed("abcdefgXabc", 4, 3), Ids(""));
  EXPECT_EQ(Proposed("abcdef", 1, 3), Ids(""));
  EXPECT_EQ(Proposed("", 1, 3), Ids(""));
  EXPECT_EQ(Proposed("abcdefgXabc", 1, 0), Ids(""));
  EXPECT_EQ(Proposed("ab1 ab2 ab", 2, 1), Ids("2"));  // the latest place
}

// Longer ends are looked up by their last ids, wherever those stood last.
TEST(NgramDrafter, LongestMatch_IsBounded) {
  const std::string text = "abcdX. bcdY. cdZ. abcd";
  EXPECT_EQ(Proposed(text, 1, 2), Ids("X."));
  EXPECT_EQ(Proposed(text, 1, 2, 5), Ids("X."));
  EXPECT_EQ(Proposed(text, 1, 2, 4), Ids("X."));
  EXPECT_EQ(Proposed(text, 1, 2, 3), Ids("Y."));
  EXPECT_EQ(Proposed(text, 1, 2, 2), Ids("Z."));
  EXPECT_EQ(Proposed(text, 2, 2, 2), Ids("Z."));
  EXPECT_EQ(Proposed(text, 1, 2, 1), Ids("Z."));
  EXPECT_EQ(Proposed("ab. zb", 2, 2, 2), Ids(""));
}

TEST(NgramDrafter, Proposal_EndsBeforeAnIdThatIsNoToken) {
  EXPECT_EQ(Proposed("abcdzefgXabc", 1, 6, ~size_t{0}, 'z'), Ids("d"));
  EXPECT_EQ(Proposed("abcdzefgXabc", 1, 6, ~size_t{0}, 'z' + 1), Ids("dzefgX"));
  EXPECT_EQ(Proposed("zaza", 1, 4, ~size_t{0}, 'z'), Ids(""));
}

TEST(NgramDrafter, Period_GoesOn) {
  EXPECT_EQ(Proposed("xyzxyz", 1, 7), Ids("xyzxyzx"));
  EXPECT_EQ(Proposed("aa", 1, 4), Ids("aaaa"));
}

}  // namespace
}  // namespace tidemill::suffix_automaton_test
