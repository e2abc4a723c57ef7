#include "decoding/repetition_detector.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

namespace tidemill::repetition_detector_test {
namespace {

constexpr size_t kWindow = RepetitionDetector::kWindow, kMaxPeriod = RepetitionDetector::kMaxPeriod;

// How many tokens were pushed when it first said yes.
std::optional<size_t> FoundAfter(const std::vector<int32_t>& tokens) {
  RepetitionDetector detector;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (detector.Push(tokens[i])) return i + 1;
  }
  return std::nullopt;
}

// The definition, word by word.
bool IsPeriodic(const std::vector<int32_t>& tokens, size_t size) {
  for (size_t period = 1; period <= kMaxPeriod && size >= kWindow; ++period) {
    size_t i = size - kWindow + period;
    while (i < size && tokens[i] == tokens[i - period]) ++i;
    if (i == size) return true;
  }
  return false;
}

// 0, 1, ..., period - 1, 0, 1, ...
std::vector<int32_t> Periodic(size_t period, size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i % period));
  return tokens;
}

TEST(RepetitionDetector, EachPeriod_IsFoundAfterTheWindowAndNotBefore) {
  for (size_t period = 1; period <= kMaxPeriod; ++period) {
    EXPECT_EQ(FoundAfter(Periodic(period, kWindow - 1)), std::nullopt) << period;
    EXPECT_EQ(FoundAfter(Periodic(period, 2 * kWindow)), kWindow) << period;
  }
}

TEST(RepetitionDetector, LongerPeriods_AreNotFound) {
  for (size_t period = kMaxPeriod + 1; period <= 2 * kMaxPeriod + 1; ++period)
    EXPECT_EQ(FoundAfter(Periodic(period, 8 * kWindow)), std::nullopt) << period;
}

TEST(RepetitionDetector, WhatStandsBefore_DoesNotCount) {
  for (const size_t period : {size_t{1}, size_t{7}, kMaxPeriod}) {
    std::vector<int32_t> tokens = {100, 101, 102, 103, 104};
    const auto loop = Periodic(period, 2 * kWindow);
    tokens.insert(tokens.end(), loop.begin(), loop.end());
    EXPECT_EQ(FoundAfter(tokens), kWindow + 5) << period;
  }
}

TEST(RepetitionDetector, ABreak_StartsTheWindowOver) {
  for (const size_t period : {size_t{1}, size_t{2}, size_t{63}, kMaxPeriod}) {
    for (const size_t at : {size_t{0}, period - 1, size_t{100}, kWindow - 2, kWindow - 1}) {
      auto tokens = Periodic(period, 3 * kWindow);
      tokens[at] = 1000;
      EXPECT_EQ(FoundAfter(tokens), at + 1 + kWindow) << period << ", break at " << at;
    }
    auto late = Periodic(period, 3 * kWindow);
    late[kWindow] = 1000;
    EXPECT_EQ(FoundAfter(late), kWindow) << period;
  }
}

TEST(RepetitionDetector, AnyTokens_AreJudgedAsTheDefinitionSays) {
  std::mt19937_64 random(7);
  size_t periodic = 0;
  for (size_t round = 0; round < 40; ++round) {
    std::vector<int32_t> tokens;
    while (tokens.size() < 3000) {  // loops of every sort, some with a slip, and some noise between them
      std::vector<int32_t> part(1 + random() % 80);
      for (int32_t& token : part) token = static_cast<int32_t>(random() % 3);
      const size_t count = random() % 600;
      for (size_t i = 0; i < count; ++i) tokens.push_back(part[i % part.size()]);
      if (count != 0 && random() % 4 == 0) tokens[tokens.size() - 1 - random() % count] = 5;
    }
    RepetitionDetector detector;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool expected = IsPeriodic(tokens, i + 1);
      periodic += expected ? 1 : 0;
      ASSERT_EQ(detector.Push(tokens[i]), expected) << "round " << round << ", token " << i;
    }
  }
  EXPECT_GT(periodic, 1000U);
}

}  // namespace
}  // namespace tidemill::repetition_detector_test
