#include "decoding/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tidemill::stop_matcher_test {
namespace {

struct Outcome {
  std::string text;
  std::optional<size_t> stop_index;
  size_t max_held_back = 0;
};

Outcome Stream(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome outcome;
  size_t pushed = 0;
  for (const std::string& piece : pieces) {
    const StopMatcher::Output output = matcher.Push(piece);
    outcome.text += output.emit;
    pushed += piece.size();
    EXPECT_EQ(output.stopped, matcher.stop_index().has_value());
    if (!output.stopped) outcome.max_held_back = std::max(outcome.max_held_back, pushed - outcome.text.size());
  }
  outcome.text += matcher.Finish();
  EXPECT_EQ(matcher.Finish(), "") << "nothing is given out twice";
  outcome.stop_index = matcher.stop_index();
  return outcome;
}

// The definition, by search: the earliest end of any stop string, of those the longest.
Outcome Search(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> found;
    for (size_t s = 0; s < stops.size(); ++s) {
      const bool ends_here = std::string_view(text).substr(0, end).ends_with(stops[s]);
      if (ends_here && (!found || stops[s].size() > stops[*found].size())) found = s;
    }
    if (found) return {text.substr(0, end - stops[*found].size()), found};
  }
  return {text, std::nullopt};
}

// A new matcher for each piece, which gets what the previous one withheld.
Outcome StreamInRelay(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  Outcome outcome;
  std::string held;
  for (const std::string& piece : pieces) {
    StopMatcher matcher(stops);
    EXPECT_EQ(matcher.Push(held).emit, "");
    EXPECT_EQ(matcher.held(), held);
    outcome.text += matcher.Push(piece).emit;
    held = matcher.held();
    outcome.stop_index = matcher.stop_index();
    if (outcome.stop_index) return outcome;
  }
  outcome.text += held;
  return outcome;
}

TEST(StopMatcher, NoStops_PassesEverythingAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.Push("abc").emit, "abc");
  EXPECT_EQ(matcher.Push("").emit, "");
  EXPECT_EQ(matcher.Push("d").emit, "d");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, StopAcrossPieces_IsHeldBackAndNeverEmitted) {
  const std::vector<std::string> stops = {"</answer>"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.Push("42 <").emit, "42 ");
  EXPECT_EQ(matcher.Push("").emit, "");
  EXPECT_EQ(matcher.Push("/ans").emit, "");
  const auto output = matcher.Push("wer> and more");
  EXPECT_EQ(output.emit, "");
  EXPECT_TRUE(output.stopped);
  EXPECT_TRUE(matcher.Push("later").stopped);
  EXPECT_EQ(matcher.Push("later").emit, "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, FalseBeginning_IsGivenOutWhenDecided) {
  const std::vector<std::string> stops = {"aab"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.Push("aa").emit, "");
  EXPECT_EQ(matcher.Push("a").emit, "a");  // the last two may still begin it
  EXPECT_EQ(matcher.Push("c").emit, "aac");
  EXPECT_EQ(matcher.Push("xa").emit, "x");
  EXPECT_EQ(matcher.Finish(), "a");
}

TEST(StopMatcher, SeveralStops_FirstToCompleteThenLongestWins) {
  EXPECT_EQ(Stream({"xabc", "ab"}, {"-xabc"}).text, "-x");
  EXPECT_EQ(Stream({"c", "abc"}, {"-abc"}).text, "-");
  EXPECT_EQ(Stream({"c", "abc"}, {"-abc"}).stop_index, 1U);
  EXPECT_EQ(Stream({"\n\n", "User:"}, {"Hi.\n", "User", ": x"}).text, "Hi.\n");
}

TEST(StopMatcher, TextBeforeTheStopInTheSamePiece_IsEmitted) {
  EXPECT_EQ(Stream({"END"}, {"one two END three"}).text, "one two ");
  EXPECT_EQ(Stream({"END"}, {"END"}).text, "");
}

TEST(StopMatcher, LongestStop_HoldsBackUnderItsLength) {
  const std::string stop(256, 'z');
  const std::vector<std::string> pieces(255, "z");
  const Outcome outcome = Stream({stop}, pieces);
  EXPECT_EQ(outcome.text, std::string(255, 'z'));
  EXPECT_EQ(outcome.max_held_back, 255U);
  std::vector<std::string> one_more = pieces;
  one_more.push_back("z");
  EXPECT_EQ(Stream({stop}, one_more).text, "");
}

TEST(StopMatcher, RandomTextsAndCuts_MatchTheSearch) {
  constexpr uint64_t kSeed = 20240904;
  std::mt19937_64 rng(kSeed);
  const auto below = [&](size_t bound) { return static_cast<size_t>(rng() % bound); };
  const auto random_text = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + below(2));
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = below(5); i-- > 0;) stops.push_back(random_text(1 + below(7)));
    const std::string text = random_text(below(24));
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, below(6)));
      at += pieces.back().size();
    }
    const Outcome expected = Search(stops, text);
    const Outcome actual = Stream(stops, pieces);
    ASSERT_EQ(actual.text, expected.text) << "text " << text << ", round " << round << ", seed " << kSeed;
    ASSERT_EQ(actual.stop_index.has_value(), expected.stop_index.has_value());
    const Outcome in_relay = StreamInRelay(stops, pieces);
    ASSERT_EQ(in_relay.text, expected.text) << "text " << text << ", round " << round << ", seed " << kSeed;
    ASSERT_EQ(in_relay.stop_index, actual.stop_index);
    if (expected.stop_index) {
      ASSERT_EQ(stops[*actual.stop_index], stops[*expected.stop_index]);
      ++stopped;
    }
    size_t longest = 1;
    for (const std::string& stop : stops) longest = std::max(longest, stop.size());
    ASSERT_LT(actual.max_held_back, longest);
  }
  EXPECT_GT(stopped, 5000);
  EXPECT_LT(stopped, 15000);
}

}  // namespace
}  // namespace tidemill::stop_matcher_test
