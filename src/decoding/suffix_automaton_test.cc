#include "decoding/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "decoding/drafter.h"

namespace tidemill {
namespace {

// The longest end that also ends at an earlier position, by looking everywhere.
size_t LongestRepeat(const std::vector<int32_t>& ids) {
  size_t longest = 0;
  for (size_t end = 1; end < ids.size(); ++end) {
    size_t length = 0;
    while (length < end && ids[end - 1 - length] == ids[ids.size() - 1 - length]) ++length;
    longest = std::max(longest, length);
  }
  return longest;
}

TEST(SuffixAutomaton, LongestRepeat_IsWhatASearchFinds) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto letters = static_cast<int32_t>(1 + seed % 5);
    SuffixAutomaton automaton;
    if (seed % 2 == 0) automaton.Reserve(50);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < 150; ++i) {
      // Copies of what was there, too, so that long repeats occur.
      const size_t copied = random() % 4 == 0 && i > 10 ? random() % 12 : 1;
      const size_t from = ids.size() < 13 ? 0 : random() % (ids.size() - 12);
      for (size_t j = 0; j < copied; ++j) {
        ids.push_back(copied == 1 ? static_cast<int32_t>(random() % static_cast<uint64_t>(letters)) * 100000
                                  : ids[from + j]);
        automaton.Append(ids.back());
        const SuffixAutomaton::Repeat found = automaton.LongestRepeat();
        ASSERT_EQ(automaton.size(), ids.size());
        ASSERT_EQ(found.length, LongestRepeat(ids)) << "seed " << seed << ", " << ids.size() << " ids";
        if (found.length == 0) continue;
        ASSERT_LT(found.end, ids.size());
        ASSERT_GE(found.end, found.length);
        ASSERT_TRUE(std::equal(ids.end() - static_cast<std::ptrdiff_t>(found.length), ids.end(),
                               ids.begin() + static_cast<std::ptrdiff_t>(found.end - found.length)))
            << "seed " << seed << ", " << ids.size() << " ids";
      }
    }
  }
}

std::vector<int32_t> Proposed(const std::string& text, size_t shortest, size_t most) {
  NgramDrafter drafter(shortest);
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

TEST(NgramDrafter, Period_GoesOn) {
  EXPECT_EQ(Proposed("xyzxyz", 1, 7), Ids("xyzxyzx"));
  EXPECT_EQ(Proposed("aa", 1, 4), Ids("aaaa"));
}

}  // namespace
}  // namespace tidemill
