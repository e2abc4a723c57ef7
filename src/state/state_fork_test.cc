// Forks at every length, and many of them: no row is copied, and what is held stays near what somebody can still read.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "state/kv_layer.h"
#include "tests/support/kv_cache.h"
#include "tests/support/state_kinds.h"
#include "tests/support/state_model.h"

namespace tidemill::state_fork_test {
namespace {

using testing::AllStateKindPointers;
using testing::KvCache;
using testing::KvLayerOf;
using testing::KvShape;
using testing::NaiveSequence;
using testing::StateKindPointer;
using testing::StateKindUnderTest;
using testing::Subject;

std::vector<RowKey> Keys(size_t n, RowKey first) {
  std::vector<RowKey> keys(n);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

// kMaxSpans + 2 sequences, each but the first a fork of the one before it with one row of its own; empty: a fork failed.
std::vector<Subject> ChainOfRows(const StateKindUnderTest& kind) {
  std::vector<Subject> chain;
  chain.emplace_back(kind, 400);
  for (size_t i = 0; i <= KvLayer::kMaxSpans; ++i) {
    Subject child(kind, 400);
    chain.back().Extend(Keys(1, i));
    if (!chain.back().state->ForkTo(*child.state, i + 1).ok()) return {};
    child.naive = chain.back().naive;
    chain.push_back(std::move(child));
  }
  return chain;
}

class SequenceStateForks : public ::testing::TestWithParam<StateKindPointer> {};

INSTANTIATE_TEST_SUITE_P(Kinds, SequenceStateForks, ::testing::ValuesIn(AllStateKindPointers()),
                         [](const auto& test) { return test.param->name(); });

TEST_P(SequenceStateForks, AtEveryLength_ShareAndGoOnAlone) {
  const StateKindUnderTest& kind = *GetParam();
  constexpr size_t kContext = 400;
  Subject parent(kind, kContext);
  for (RowKey key = 0; parent.state->length() < 90; key += 7) parent.Extend(Keys(7, key));
  std::vector<Subject> children;
  for (size_t length = parent.state->earliest_rollback(); length <= parent.state->length(); ++length) {
    const auto before = parent.Addresses();
    const uint64_t copied = parent.state->growth().bytes_copied;
    Subject child(kind, kContext);
    ASSERT_TRUE(parent.state->ForkTo(*child.state, length).ok()) << length;
    child.naive = parent.naive;
    child.naive.Truncate(kind, length);
    ASSERT_EQ(child.Difference(true), "") << length;
    ASSERT_EQ(parent.Addresses(), before) << length;
    EXPECT_EQ(parent.state->growth().bytes_copied, copied);
    EXPECT_EQ(child.state->growth().bytes_copied, 0U);
    const auto shared = child.Addresses();
    for (size_t layer = 0; layer < shared.size(); ++layer) {
      ASSERT_TRUE(std::equal(shared[layer].begin(), shared[layer].end(), before[layer].begin())) << length;
    }
    children.push_back(std::move(child));
  }
  // Each side goes on, in any order, and sees its own rows.
  for (size_t i = 0; i < children.size(); ++i) {
    children[i].Extend(Keys(5, 1000 + i));
    if (i % 9 == 0) parent.Extend(Keys(2, 5000 + i));
  }
  ASSERT_EQ(parent.Difference(true), "");
  for (const Subject& child : children) ASSERT_EQ(child.Difference(true), "");
}

uint64_t HeldBytes(const std::vector<std::unique_ptr<KvCache>>& states) {
  std::map<const void*, uint64_t> blocks;
  for (const auto& state : states)
    state->ForEachBlock([&](const void* block, uint64_t bytes) { blocks[block] = bytes; });
  uint64_t sum = 0;
  for (const auto& [block, bytes] : blocks) sum += bytes;
  return sum;
}

struct Beams {
  std::string name;
  KvGrowth growth;
  DType dtype = DType::kF16;
  size_t window = 0;
};

// Eight sequences; before each token each continues one of them at random, as beams do.
TEST(KvForks, ThousandReorders_HoldLittleMoreThanWhatIsRead) {
  constexpr size_t kBeams = 8, kReorders = 1000, kPrompt = 200;
  for (const Beams& beams : std::vector<Beams>{{"bmc", {.increment = 256}},
                                               {"small increments", {.increment = 16}, DType::kQ8_0},
                                               {"reserve", {.policy = KvPolicy::kReserve, .increment = 64}},
                                               {"geometric", {.policy = KvPolicy::kGeometric}},
                                               {"window", {.increment = 256}, DType::kF16, 300}}) {
    StateLedger ledger;
    {
      const KvShape shape{.layers = {{.kv_heads = 2, .head_dim = 32, .window = beams.window}},
                          .dtype = beams.dtype,
                          .growth = beams.growth,
                          .max_length = 4000,
                          .draft_rows = 8,
                          .ledger = &ledger};
      const uint64_t row_bytes = shape.layers[0].PositionBytes(beams.dtype);
      std::mt19937_64 random(7);
      std::vector<std::unique_ptr<KvCache>> states;
      states.push_back(std::make_unique<KvCache>(shape));
      ASSERT_TRUE(states[0]->Reserve(kPrompt).ok());
      states[0]->Commit(Keys(kPrompt, 0));
      size_t most_spans = 0;
      double ratio = 0;
      for (size_t step = 0; step < kReorders; ++step) {
        std::vector<size_t> parents(kBeams);
        for (size_t& parent : parents) parent = static_cast<size_t>(random() % states.size());
        std::vector<std::unique_ptr<KvCache>> next(kBeams);
        for (size_t i = 0; i < kBeams; ++i) {  // the last child of a state is that state
          const bool is_last = std::find(parents.begin() + static_cast<std::ptrdiff_t>(i) + 1, parents.end(),
                                         parents[i]) == parents.end();
          if (is_last) {
            next[i] = std::move(states[parents[i]]);
            continue;
          }
          next[i] = std::make_unique<KvCache>(shape);
          const uint64_t held = ledger.held();
          ASSERT_TRUE(states[parents[i]]->ForkTo(*next[i], states[parents[i]]->length()).ok());
          const uint64_t keys = (next[i]->length() + 256) * 16;
          EXPECT_LE(ledger.held(), held + keys + 16) << "a fork copies keys only";
        }
        states = std::move(next);
        for (size_t i = 0; i < kBeams; ++i) {
          ASSERT_TRUE(states[i]->Reserve(1).ok());
          states[i]->Commit(Keys(1, 100 * step + i));
        }
        ASSERT_EQ(ledger.held(), HeldBytes(states)) << step;
        if (step + 1 < kReorders) continue;
        std::set<const std::byte*> rows;
        uint64_t keys = 0;
        for (const auto& state : states) {
          const auto context = KvLayerOf(*state, 0).Context(0);
          most_spans = std::max(most_spans, context.size());
          for (const KvSpan& span : context) {
            for (size_t r = 0; r < span.rows; ++r) rows.insert(span.v + r * shape.layers[0].RowBytes(beams.dtype));
          }
          state->ForEachBlock([&](const void* block, uint64_t bytes) { keys += block == state.get() ? bytes : 0; });
        }
        ratio = static_cast<double>(ledger.held() - keys) / static_cast<double>(rows.size() * row_bytes);
      }
      RecordProperty(beams.name, std::to_string(ratio) + " of " + std::to_string(most_spans) + " spans");
      EXPECT_LE(ratio, 1.25) << beams.name;
      EXPECT_LE(most_spans, KvLayer::kMaxSpans + 2 * (kPrompt + kReorders) / KvLayer::kGrowthRows + 2) << beams.name;
    }
    EXPECT_EQ(ledger.held(), 0U) << beams.name;
  }
}

TEST(KvForks, Reorders_KeepEachSequencesRows) {
  size_t merged = 0;
  for (const StateKindPointer kind : AllStateKindPointers()) {
    std::mt19937_64 random(3);
    std::vector<Subject> live;
    live.emplace_back(*kind, 400);
    live[0].Extend(Keys(21, 1));
    for (size_t step = 0; step < 150; ++step) {
      std::vector<Subject> next;
      for (size_t i = 0; i < 5; ++i) {
        Subject child(*kind, 400);
        const Subject& parent = live[random() % live.size()];
        ASSERT_TRUE(parent.state->ForkTo(*child.state, parent.state->length()).ok());
        child.naive = parent.naive;
        next.push_back(std::move(child));
      }
      live = std::move(next);
      for (size_t i = 0; i < live.size(); ++i) {
        live[i].Extend(Keys(1 + (step + i) % 2, 100 * step + i));
        merged += live[i].state->growth().bytes_copied != 0 ? 1U : 0U;
      }
      if (step % 7 != 0) continue;
      for (const Subject& each : live) ASSERT_EQ(each.Difference(true), "") << kind->name() << ", step " << step;
    }
  }
  EXPECT_GT(merged, 100U);  // blocks became one
}

// One sequence makes a block of many; the other's window has already passed the first of those.
TEST(KvForks, MergedBlock_BeginsBeforeWhatAWindowLeft) {
  size_t tried = 0;
  for (const StateKindPointer kind : AllStateKindPointers()) {
    if (kind->name().find("Window48") == std::string::npos) continue;
    ++tried;
    std::vector<Subject> chain = ChainOfRows(*kind);
    ASSERT_EQ(chain.size(), KvLayer::kMaxSpans + 2);
    Subject other(*kind, 400);
    const Subject& few = chain[KvLayer::kMaxSpans - 2];  // too few blocks to merge them
    ASSERT_TRUE(few.state->ForkTo(*other.state, few.state->length()).ok());
    other.naive = few.naive;
    for (size_t i = 0; i < 17; ++i) other.Extend(Keys(4, 100 + 4 * i));
    const size_t first = kind->layer(0).FirstSeen(other.state->earliest_rollback());
    ASSERT_TRUE(first > 2 && first < 8) << first;
    Subject& merging = chain.back();
    merging.Extend(Keys(1, 50));
    ASSERT_GT(merging.state->growth().bytes_copied, 0U);
    other.Extend(Keys(1, 60));
    EXPECT_EQ(other.Difference(true), "") << kind->name();
    EXPECT_EQ(merging.Difference(true), "") << kind->name();
  }
  EXPECT_GT(tried, 0U);
}

// A block that many became is written again after a rollback by the only one that has it; another still has the small blocks.
TEST(KvForks, MergedBlock_IsNotWrittenAgain) {
  size_t merged = 0;
  for (const StateKindPointer kind : AllStateKindPointers()) {
    std::vector<Subject> chain = ChainOfRows(*kind);
    ASSERT_EQ(chain.size(), KvLayer::kMaxSpans + 2);
    Subject &merging = chain.back(), &other = chain[KvLayer::kMaxSpans - 1];
    merging.Extend(Keys(1, 50));
    merged += merging.state->growth().bytes_copied != 0 ? 1U : 0U;
    const size_t to = std::max<size_t>(5, merging.state->earliest_rollback());
    ASSERT_TRUE(merging.state->Rollback(to).ok());
    merging.naive.Truncate(*kind, to);
    merging.Extend(Keys(4, 90));
    other.Extend(Keys(1, 60));
    EXPECT_EQ(other.Difference(true), "") << kind->name();
    EXPECT_EQ(merging.Difference(true), "") << kind->name();
  }
  EXPECT_GT(merged, 10U);
}

// Every way in which rows that others see could be written or moved: `blocks` forks of a row each, one after the other, then anything.
void ExpectRowsToStay(const StateKindUnderTest& kind, size_t blocks, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Subject> live;
  live.emplace_back(kind, 600);
  live[0].Extend(Keys(1 + random() % 30, 1));
  const auto fork = [&](const Subject& parent, size_t length) {
    Subject child(kind, 600);
    ASSERT_TRUE(parent.state->ForkTo(*child.state, length).ok());
    child.naive = parent.naive;
    child.naive.Truncate(kind, length);
    live.push_back(std::move(child));
  };
  for (size_t i = 0; i < blocks; ++i) {
    live.back().Extend(Keys(1, 2000 + i));
    fork(live.back(), live.back().state->length());
    if (live.size() > 3 && random() % 2 == 0)
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(random() % (live.size() - 1)));
  }
  for (int operation = 0; operation < 150; ++operation) {
    while (live.size() > 8) live.erase(live.begin() + static_cast<std::ptrdiff_t>(random() % live.size()));
    const auto index = static_cast<size_t>(random() % live.size());
    SequenceState& state = *live[index].state;
    const size_t from = state.earliest_rollback(), length = state.length();
    const size_t to = from + random() % (length - from + 1);
    switch (random() % 6) {
      case 0:
      case 1:
        if (length < 500) live[index].Extend(Keys(1 + random() % (operation % 3 == 0 ? 20 : 3), random() % 1000));
        break;
      case 2: {
        const size_t near = std::max(to, length - std::min<size_t>(length, random() % 24));
        ASSERT_TRUE(state.Rollback(near).ok());
        live[index].naive.Truncate(kind, near);
        break;
      }
      case 3:
      case 4: fork(live[index], random() % 2 == 0 ? length : to); break;
      default:
        if (random() % 8 == 0) {
          state.Compact();
        } else if (live.size() > 3) {
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
        }
    }
    for (const Subject& each : live) ASSERT_EQ(each.Difference(true), "") << kind.name() << ", seed " << seed;
  }
}

TEST(KvForks, RowsThatOthersSee_StayWhatTheyAre) {
  for (const StateKindPointer kind : AllStateKindPointers()) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      ExpectRowsToStay(*kind, 0, seed);
      ExpectRowsToStay(*kind, 20 + seed, seed);
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
  }
}

}  // namespace
}  // namespace tidemill::state_fork_test
