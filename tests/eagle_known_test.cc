// Draft heads that know what comes next, for a target whose next id depends on the last one alone: what is right is known beforehand.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eagle_models.h"
#include "tests/support/eagle_pairs.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"

namespace tidemill::eagle_known_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::LoadHead;
using testing::LoadTarget;
using testing::OptionsOf;
using testing::Outcome;

constexpr DraftTreeKind kKinds[] = {DraftTreeKind::kChain, DraftTreeKind::kFixed, DraftTreeKind::kDynamic,
                                    DraftTreeKind::kOptimal};

// A head that is always right: each step gives all its draft tokens and one more.
TEST(EagleDraft, KnowingHead_IsAlwaysRight) {
  const auto model = LoadTarget(testing::KnownTarget(), true);
  const auto head = LoadHead(testing::KnowingHead(), model, true);
  const GenerationOptions generation{.max_new_tokens = 41, .ignore_eos = true};
  EngineDriver plain(model, {.threads = 1});
  const Outcome expected = plain.Run({7, 8, 9}, generation);
  for (const DraftTreeKind kind : kKinds) {
    EngineDriver driver(model, {.threads = 1, .draft_head = head});
    const size_t num_draft_tokens = kind == DraftTreeKind::kChain ? 4 : 25;
    const RequestId id = driver.Submit(
        {.prompt = {7, 8, 9}, .generation = generation, .draft = OptionsOf(kind, num_draft_tokens, num_draft_tokens)});
    size_t steps = 0;
    for (; !driver.engine().idle(); ++steps) driver.Step();
    const Outcome& found = driver.outcome(id);
    ExpectSame(found, expected, "tree " + std::to_string(static_cast<int>(kind)));
    EXPECT_EQ(found.stats.accepted_tokens + steps, 41U);
    EXPECT_EQ(found.stats.draft_trouble, "");
    if (kind == DraftTreeKind::kChain) {
      EXPECT_EQ(steps, 9U);  // the prompt and its token, then five each
      EXPECT_EQ(found.stats.drafted_tokens, 32U);
      EXPECT_EQ(found.stats.accepted_tokens, 32U);
    } else if (kind == DraftTreeKind::kFixed) {
      EXPECT_LE(steps, 9U);  // five deep: six tokens a step, until the last ones
    }
  }
}

// An EAGLE-3 head that is right wherever the next id is one of its own: a step's tree is right up to the first id that is not, or to its
// fifth token, and so is known beforehand.
TEST(EagleDraft, KnowingHead3_IsRightUpToAnIdThatItDoesNotDraft) {
  constexpr size_t kTokens = 60, kDrafted = 40;
  const auto model = LoadTarget(testing::KnownTarget(), true);
  const GenerationOptions generation{.max_new_tokens = kTokens, .ignore_eos = true};
  std::map<size_t, size_t> lengths;
  for (const int32_t first : {7, 20, 33, 46, 59}) {
    EngineDriver plain(model, {.threads = 1});
    const Outcome expected = plain.Run({first, 8, 9 + first}, generation);
    // All ids of the answer, 40 at most, but the first new one, the third, the sixth, ...; then others.
    std::vector<int64_t> ids;
    std::array<bool, testing::kEagleVocab> seen = {};
    size_t num_seen = 0, left_out = 0, next = 1;
    for (const int32_t id : expected.ids) {
      if (std::exchange(seen[static_cast<size_t>(id)], true)) continue;
      if (++num_seen == next) {
        next += ++left_out + 1;
      } else if (ids.size() < kDrafted) {
        ids.push_back(id);
      }
    }
    for (int64_t id = 0; ids.size() < kDrafted; ++id) {
      if (!seen[static_cast<size_t>(id)]) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    const auto head = LoadHead(testing::KnowingHead3(ids), model, true);
    for (const DraftTreeKind kind : {DraftTreeKind::kChain, DraftTreeKind::kFixed}) {
      const size_t deepest = kind == DraftTreeKind::kChain ? 4 : 5,
                   num_draft_tokens = kind == DraftTreeKind::kChain ? 4 : 25;
      EngineDriver driver(model, {.threads = 1, .draft_head = head});
      const RequestId id = driver.Submit({.prompt = {first, 8, 9 + first},
                                          .generation = generation,
                                          .draft = OptionsOf(kind, num_draft_tokens, num_draft_tokens)});
      const auto is_drafted = [&](int32_t token) {  // trees have no special ones
        return std::binary_search(ids.begin(), ids.end(), token) &&
               (kind == DraftTreeKind::kChain || token >= testing::kEagleSpecials);
      };
      std::vector<size_t> made, wanted;
      while (!driver.engine().idle()) made.push_back(driver.Step());
      ExpectSame(driver.outcome(id), expected, "prompt " + std::to_string(first));
      for (size_t at = 0; at < kTokens;) {
        size_t right = 0;
        while (at != 0 && right < deepest && at + right + 1 < kTokens && is_drafted(expected.ids[at + right])) ++right;
        wanted.push_back(right + 1);
        at += right + 1;
        if (at < kTokens) ++lengths[right];
      }
      EXPECT_EQ(made, wanted) << "prompt " << first << ", at most " << deepest;
    }
  }
  for (size_t length = 0; length <= 5; ++length) EXPECT_GT(lengths[length], 0U) << length;
  EXPECT_GT(lengths[4] + lengths[5], 20U) << "long paths";
}

}  // namespace
}  // namespace tidemill::eagle_known_test
