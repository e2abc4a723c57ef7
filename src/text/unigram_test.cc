#include "text/unigram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "text/word_pieces.h"

namespace tidemill::unigram_test {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Cut(const Unigram& unigram, std::string_view word) {
  Unigram::Scratch scratch;
  std::vector<Unigram::Part> parts;
  unigram.Cut(word, scratch, parts);
  std::vector<std::string> out;
  for (const Unigram::Part& part : parts) out.push_back(std::string(part.text) + (part.id < 0 ? "?" : ""));
  return out;
}

TEST(Unigram, HighestSum_TiesToTheLongerLastToken) {
  const Unigram unigram({{"a", 0}, {"b", 1}, {"ab", 2}, {"abc", 3}, {"bc", 4}, {"c", 5}}, {-1, -1, -2, -9, -1, -1});
  EXPECT_THAT(Cut(unigram, "abc"), ElementsAre("a", "bc"));
  EXPECT_THAT(Cut(unigram, "ab"), ElementsAre("ab"));
  EXPECT_THAT(Cut(unigram, ""), ElementsAre());
}

TEST(Unigram, UnknownCharacters_OneStretch) {
  const Unigram unigram({{"a", 0}}, {-1});
  EXPECT_THAT(Cut(unigram,
                  "a\u4e2d\u00e9"
                  "a\xFF"),
              ElementsAre("a", "\u4e2d\u00e9?", "a", "\xFF?"));
}

// Against all ways to cut.
TEST(Unigram, RandomVocabularies_NoBetterCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::map<std::string, double> scores;
    for (int i = 0; i < 12; ++i) {
      std::string text;
      for (size_t n = 1 + random() % 4; n > 0; --n) text += static_cast<char>('a' + random() % 3);
      scores[text] = -static_cast<double>(random() % 1000) / 64;
    }
    std::vector<std::string> names;
    std::vector<double> values;
    for (const auto& [name, score] : scores) {
      names.push_back(name);
      values.push_back(score);
    }
    std::vector<PieceTrie::Piece> pieces;
    for (size_t i = 0; i < names.size(); ++i) pieces.push_back({names[i], static_cast<int32_t>(i)});
    const double unknown = *std::min_element(values.begin(), values.end()) - 10;
    const Unigram unigram(pieces, values);
    std::string word;
    for (size_t n = 1 + random() % 9; n > 0; --n) word += static_cast<char>('a' + random() % 3);
    std::vector<double> best(word.size() + 1, -1e9);
    best[0] = 0;
    for (size_t end = 1; end <= word.size(); ++end) {
      for (size_t begin = 0; begin < end; ++begin) {
        const auto found = scores.find(word.substr(begin, end - begin));
        if (found != scores.end()) best[end] = std::max(best[end], best[begin] + found->second);
        if (end - begin == 1 && found == scores.end()) best[end] = std::max(best[end], best[begin] + unknown);
      }
    }
    Unigram::Scratch scratch;
    std::vector<Unigram::Part> parts;
    unigram.Cut(word, scratch, parts);
    double sum = 0;
    std::string joined;
    for (const Unigram::Part& part : parts) {
      sum += part.id < 0 ? unknown * static_cast<double>(part.text.size()) : values[static_cast<size_t>(part.id)];
      joined += part.text;
    }
    EXPECT_EQ(joined, word);
    EXPECT_NEAR(sum, best[word.size()], 1e-9) << word;
  }
}

TEST(WordPieces, LongestFromTheLeft_OrUnknown) {
  const WordPieces pieces({{"un", 0}, {"##aff", 1}, {"##able", 2}, {"##a", 3}, {"unaf", 4}},
                          {.first = "", .rest = "##"}, 10);
  std::vector<int32_t> ids = {9};
  EXPECT_FALSE(pieces.AppendTokens("unaffable", ids));  // "unaf" is longer than "un", and nothing goes on behind it
  EXPECT_TRUE(pieces.AppendTokens("unable", ids));
  EXPECT_FALSE(pieces.AppendTokens(std::string(11, 'u'), ids));
  EXPECT_TRUE(pieces.AppendTokens("", ids));
  EXPECT_THAT(ids, ElementsAre(9, 0, 2));
}

TEST(WordPieces, PrefixThatNoTokenHas_AllUnknown) {
  const WordPieces pieces({{"a", 0}}, {.first = "_", .rest = "##"}, 10);
  std::vector<int32_t> ids;
  EXPECT_FALSE(pieces.AppendTokens("a", ids));
}

}  // namespace
}  // namespace tidemill::unigram_test
