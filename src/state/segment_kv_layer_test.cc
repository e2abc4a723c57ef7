// Of the sequences' contract (state_script_test.cc) what is new where segments end: a memory that is a fold of all of them here.
#include "state/segment_kv_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "state/sequence_state.h"

namespace tidemill::segment_kv_layer_test {
namespace {

constexpr KvLayerShape kKv{.kv_heads = 1, .head_dim = 2};
constexpr SegmentShape kSegments{
    .memory = {.hidden = 3, .key_dim = 1, .nu = 1}, .segment_tokens = 4, .memory_rows = 2, .max_rows = 32};

// Of RMT: the last layer carries the memory rows, which stand in front of a segment, too.
SegmentShape Carrying(size_t layer) {
  return {.memory = {.key_dim = 0},
          .segment_tokens = 4,
          .memory_rows = 2,
          .max_rows = 32,
          .front_rows = 2,
          .carried = layer == 0 ? 0U : 6U};
}

// Two layers. A row of a token is the token's number, of a memory row in front -1; a segment's end adds its tokens to the first element of the memory,
// where the layer has one.
class Text {
 public:
  explicit Text(StateLedger* ledger = nullptr, bool with_front = false) : carries(with_front) {
    SequenceState::Layers layers;
    for (size_t i = 0; i < 2; ++i) {
      layers.push_back(
          std::make_unique<SegmentKvLayer>(kKv, KvOptions{.dtype = DType::kF32, .max_length = 1000, .ledger = ledger},
                                           carries ? Carrying(i) : kSegments));
    }
    state = std::make_unique<SequenceState>(SequenceOptions{.max_length = 1000, .ledger = ledger}, std::move(layers));
  }
  explicit Text(std::unique_ptr<SequenceState> from, bool with_front = false)
      : state(std::move(from)), carries(with_front) {}

  SegmentKvLayer& layer(size_t i) { return static_cast<SegmentKvLayer&>(state->layer(i)); }
  float sum(size_t i) {  // of the memory; 0: there is none
    float value = 0;
    if (layer(i).memory() != nullptr) std::memcpy(&value, layer(i).memory(), sizeof(value));
    return value;
  }

  // Memory rows in front of the next step's tokens.
  size_t front() { return carries && state->length() == layer(0).segment_first() ? 2 : 0; }

  // The cells of a step.
  void Write(const std::vector<int>& tokens, size_t slot, bool ends) {
    const size_t in_front = front();
    slot += in_front;
    for (size_t i = 0; i < 2; ++i) {
      SegmentKvLayer& kv = layer(i);
      kv.Settle();
      float value = -1;
      for (size_t r = 0; r < in_front; ++r) std::memcpy(kv.View().k + r * 2 * sizeof(float), &value, sizeof(value));
      for (size_t t = 0; t < tokens.size(); ++t) {
        value = static_cast<float>(tokens[t]);
        std::memcpy(kv.View().k + (slot + t) * 2 * sizeof(float), &value, sizeof(value));
      }
      if (!ends) continue;
      float total = sum(i);
      const std::span<const KvSpan> rows = kv.Context(slot + tokens.size() + kSegments.memory_rows);
      EXPECT_EQ(rows.front().first, 0U);
      for (const KvSpan& span : rows) {
        for (size_t r = 0; r < span.rows && span.first + r < kv.PositionOf(slot + tokens.size()); ++r) {
          std::memcpy(&value, span.k + r * 2 * sizeof(float), sizeof(value));
          total += std::max(value, 0.0F);
        }
      }
      if (const size_t bytes = kv.segments().memory_bytes(); bytes != 0) {
        std::memset(kv.next_memory(), 0, bytes);
        std::memcpy(kv.next_memory(), &total, sizeof(total));
      }
      kv.EndSegment(slot - in_front + tokens.size());
    }
  }
  void Add(const std::vector<int>& tokens, bool ends) {
    ASSERT_TRUE(state->Reserve(front() + tokens.size() + (ends ? kSegments.memory_rows : 0)).ok());
    Write(tokens, 0, ends);
    state->Commit(std::vector<RowKey>(tokens.begin(), tokens.end()));
  }

  std::unique_ptr<SequenceState> state;
  bool carries = false;
};

TEST(SegmentKvLayer, SegmentThatEnds_LeavesItsMemoryAlone) {
  Text text;
  text.Add({1, 2}, false);
  EXPECT_EQ(text.layer(0).memory(), nullptr);
  EXPECT_EQ(text.layer(0).PositionOf(0), 2U);
  text.Add({3, 4}, true);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(text.sum(i), 10);
    EXPECT_EQ(text.layer(i).segment_first(), 4U);
    EXPECT_EQ(text.layer(i).PositionOf(0), 0U);
    EXPECT_TRUE(text.layer(i).Context(0).empty());
  }
  text.Add({5, 6, 7, 8}, true);
  text.Add({9}, false);
  EXPECT_EQ(text.sum(1), 36);
  EXPECT_EQ(text.state->length(), 9U);
  EXPECT_EQ(text.state->earliest_rollback(), 8U);
  EXPECT_EQ(text.state->Rollback(7).error().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(text.state->Rollback(8).ok());
  EXPECT_EQ(text.sum(0), 36);
}

TEST(SegmentKvLayer, MoreRowsThanASegmentMayHave_AreRefused) {
  Text text;
  text.Add({1, 2}, false);
  const Result<void> reserved = text.state->Reserve(kSegments.max_rows - 1);
  ASSERT_FALSE(reserved.ok());
  EXPECT_EQ(reserved.error().code(), ErrorCode::kContextFull);
  EXPECT_TRUE(text.state->Reserve(kSegments.max_rows - 2).ok());
}

TEST(SegmentKvLayer, StepThatIsDropped_LeavesNothing) {
  Text text;
  text.Add({1, 2, 3, 4}, true);
  text.Add({5, 6}, false);
  const std::vector<std::byte> before = text.state->Checkpoint().value();
  ASSERT_TRUE(text.state->Reserve(4).ok());
  text.Write({70, 80}, 0, true);
  EXPECT_EQ(text.sum(0), 10 + 5 + 6 + 150);  // what later cells of the step would read
  ASSERT_TRUE(text.state->Reserve(4).ok());
  EXPECT_EQ(text.sum(0), 10);
  EXPECT_EQ(text.state->Checkpoint().value(), before);
  text.Write({7, 8}, 0, true);
  text.state->Commit(std::vector<RowKey>{7, 8});
  EXPECT_EQ(text.sum(0), 36);
}

TEST(SegmentKvLayer, StepOfSeveralSegments_IsTheirSteps) {
  Text one, other;
  for (const std::vector<int>& segment : {std::vector<int>{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}})
    one.Add(segment, true);
  one.Add({13, 14}, false);
  ASSERT_TRUE(other.state->Reserve(6).ok());
  other.Write({1, 2, 3, 4}, 0, true);
  other.Write({5, 6, 7, 8}, 0, true);
  other.Write({9, 10, 11, 12}, 0, true);
  other.Write({13, 14}, 0, false);
  const std::vector<RowKey> keys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  other.state->Commit(keys);
  EXPECT_EQ(other.state->Checkpoint().value(), one.state->Checkpoint().value());
  EXPECT_EQ(other.sum(1), 78);
}

TEST(SegmentKvLayer, Forks_GoTheirOwnWays) {
  StateLedger ledger;
  {
    Text text(&ledger);
    text.Add({1, 2, 3, 4}, true);
    text.Add({5, 6}, false);
    Text child(std::move(text.state->Fork()).value());
    EXPECT_EQ(child.layer(0).memory(), text.layer(0).memory());
    text.Add({7, 8}, true);
    text.Add({9, 10, 11, 12}, true);
    EXPECT_EQ(text.sum(0), 78);
    EXPECT_EQ(child.sum(0), 10);
    child.Add({70, 80}, true);
    EXPECT_EQ(child.sum(1), 10 + 11 + 150);
    EXPECT_EQ(text.sum(1), 78);
  }
  EXPECT_EQ(ledger.held(), 0U);
}

TEST(SegmentKvLayer, Checkpoint_RestoresToTheSame) {
  for (const size_t tokens : {2, 4, 5, 9, 300}) {
    Text text;
    for (size_t t = 0; t < tokens; ++t) text.Add({static_cast<int>(t)}, t % 4 == 3);
    const std::vector<std::byte> bytes = text.state->Checkpoint().value();
    Text restored;
    ASSERT_TRUE(restored.state->Restore(bytes).ok()) << tokens;
    EXPECT_EQ(restored.state->Checkpoint().value(), bytes) << tokens;
    for (Text* each : {&text, &restored}) {
      for (size_t t = tokens; t < tokens + 5; ++t) each->Add({static_cast<int>(t)}, t % 4 == 3);
    }
    EXPECT_EQ(restored.state->Checkpoint().value(), text.state->Checkpoint().value()) << tokens;
    EXPECT_EQ(restored.sum(0), text.sum(0)) << tokens;
  }
}

TEST(SegmentKvLayer, Checkpoint_WithoutANumber_IsRefused) {
  Text text;
  text.Add({1, 2, 3, 4}, true);
  ASSERT_TRUE(text.state->Reserve(6).ok());
  text.Write({1, 2, 3, 4}, 0, true);
  std::memset(text.layer(1).next_memory(), 0xFF, 4);
  text.state->Commit(std::vector<RowKey>{1, 2, 3, 4});
  Text other;
  const Result<void> restored = other.state->Restore(text.state->Checkpoint().value());
  ASSERT_FALSE(restored.ok());
  EXPECT_EQ(restored.error().code(), ErrorCode::kNumericalError);
  EXPECT_EQ(other.state->length(), 0U);
}

TEST(SegmentKvLayer, MemoryRowsInFront_StayWithTheirSegment) {
  Text text(nullptr, true);
  text.Add({1}, false);
  EXPECT_EQ(text.layer(0).PositionOf(0), 3U);
  text.Add({2, 3}, false);
  EXPECT_EQ(text.layer(1).PositionOf(0), 5U);
  EXPECT_TRUE(text.state->Rollback(1).ok());
  EXPECT_EQ(text.layer(0).PositionOf(0), 3U);
  EXPECT_TRUE(text.state->Rollback(0).ok());
  EXPECT_EQ(text.layer(0).PositionOf(0), 0U);
  text.Add({4, 5, 6}, false);
  text.Add({7}, true);
  EXPECT_EQ(text.layer(0).memory(), nullptr);
  EXPECT_EQ(text.sum(1), 22);
  EXPECT_EQ(text.layer(0).PositionOf(0), 0U);
  EXPECT_EQ(text.state->earliest_rollback(), 4U);
  text.Add({8, 9, 10, 11}, true);
  EXPECT_EQ(text.sum(1), 60);
  EXPECT_LE(text.state->bytes().committed, 6 * sizeof(float) + 16);
}

// A context of fewer tokens than the model has positions leaves no room for more of a segment.
TEST(SegmentKvLayer, RowsPastTheContext_AreRefusedWithRowsInFront) {
  const auto text_of = [](size_t max_length) {
    SequenceState::Layers layers;
    layers.push_back(
        std::make_unique<SegmentKvLayer>(kKv, KvOptions{.dtype = DType::kF32, .max_length = max_length}, Carrying(1)));
    return std::make_unique<SequenceState>(SequenceOptions{.max_length = max_length}, std::move(layers));
  };
  const auto state = text_of(10), longer = text_of(20);
  EXPECT_TRUE(state->Reserve(10).ok());
  ASSERT_TRUE(state->Reserve(2 + 3).ok());
  state->Commit(std::vector<RowKey>{1, 2, 3});
  EXPECT_TRUE(state->Reserve(5).ok());
  EXPECT_EQ(state->Reserve(6).error().code(), ErrorCode::kContextFull);
  EXPECT_LE(state->GrowthBytes(100, 1), text_of(10)->GrowthBytes(10, 1));
  ASSERT_TRUE(longer->Reserve(2 + 9).ok());
  longer->Commit(std::vector<RowKey>(9, 1));
  const auto restored = text_of(10);
  EXPECT_EQ(restored->Restore(longer->Checkpoint().value()).error().code(), ErrorCode::kContextFull);
}

TEST(SegmentKvLayer, PromisedBytes_CoverMemoryRowsInFront) {
  for (const size_t tokens : {1, 4, 5, 9}) {
    Text text(nullptr, true);
    const uint64_t promised = text.state->GrowthBytes(tokens, 100);
    for (size_t t = 0; t < tokens; ++t) text.Add({1}, t % 4 == 3 && t + 1 != tokens);
    EXPECT_LE(text.state->bytes().reserved, promised) << tokens;
  }
}

// Beside a list of numbers: steps that end segments and that do not, steps that are dropped, rollbacks, forks, restores, in any order.
struct Member {
  Text text;
  std::vector<int> tokens = {};
  size_t first = 0;  // of the segment at hand
};

std::string DifferenceOf(Member& member) {
  SequenceState& state = *member.text.state;
  if (state.length() != member.tokens.size()) return "length " + std::to_string(state.length());
  const auto begin = member.tokens.begin(), open = begin + static_cast<std::ptrdiff_t>(member.first);
  for (size_t i = 0; i < 2; ++i) {
    SegmentKvLayer& layer = member.text.layer(i);
    layer.Settle();
    const std::string of_layer = "layer " + std::to_string(i) + ": ";
    if (layer.segment_first() != member.first) return of_layer + "begins at " + std::to_string(layer.segment_first());
    const bool has_none = member.text.carries && i == 0;
    if (member.text.sum(i) != static_cast<float>(has_none ? 0 : std::accumulate(begin, open, 0)))
      return of_layer + "the memory is " + std::to_string(member.text.sum(i));
    std::vector<int> rows;
    for (const KvSpan& span : layer.Context(0)) {
      for (size_t r = 0; r < span.rows; ++r) {
        float value = 0;
        std::memcpy(&value, span.k + r * 2 * sizeof(float), sizeof(value));
        rows.push_back(static_cast<int>(value));
      }
    }
    std::vector<int> expected(open, member.tokens.end());
    if (member.text.carries && !expected.empty()) expected.insert(expected.begin(), {-1, -1});
    if (rows != expected) return of_layer + std::to_string(rows.size()) + " rows";
  }
  return {};
}

TEST(SegmentKvLayer, RandomScripts_AreAListOfNumbers) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    StateLedger ledger;
    const bool carries = seed % 2 == 1;
    {
      std::vector<Member> live;
      live.push_back({.text = Text(&ledger, carries)});
      for (size_t operation = 0; operation < 60; ++operation) {
        const size_t index = random() % live.size();
        Member& member = live[index];
        SequenceState& state = *member.text.state;
        const size_t kind = random() % 10, open = member.tokens.size() - member.first;
        std::vector<int> tokens(1 + random() % 4);
        for (int& token : tokens) token = static_cast<int>(1 + random() % 50);
        if (kind < 3) {
          if (open + tokens.size() > kSegments.segment_tokens) continue;
          member.text.Add(tokens, false);
          member.tokens.insert(member.tokens.end(), tokens.begin(), tokens.end());
        } else if (kind < 5) {
          if (open + tokens.size() > kSegments.segment_tokens) continue;
          member.text.Add(tokens, true);
          member.tokens.insert(member.tokens.end(), tokens.begin(), tokens.end());
          member.first = member.tokens.size();
        } else if (kind == 5) {
          ASSERT_TRUE(state.Reserve(member.text.front() + tokens.size() + kSegments.memory_rows).ok());
          member.text.Write(tokens, 0, random() % 2 == 0);
          ASSERT_TRUE(state.Reserve(1).ok());  // drops the step
        } else if (kind == 6) {
          const size_t to = member.first + random() % (open + 1);
          ASSERT_TRUE(state.Rollback(to).ok());
          member.tokens.resize(to);
        } else if (kind == 7) {
          if (live.size() == 6) live.erase(live.begin() + static_cast<std::ptrdiff_t>((index + 1) % 6));
          const size_t from = std::min(index, live.size() - 1);
          Member child{.text = Text(std::move(live[from].text.state->Fork()).value(), carries),
                       .tokens = live[from].tokens,
                       .first = live[from].first};
          live.push_back(std::move(child));
        } else if (kind == 8) {
          Text restored(&ledger, carries);
          ASSERT_TRUE(restored.state->Restore(state.Checkpoint().value()).ok());
          member.text = std::move(restored);
        } else {
          state.Compact();
        }
        for (Member& each : live)
          ASSERT_EQ(DifferenceOf(each), "") << "seed " << seed << ", operation " << operation << " of kind " << kind;
      }
    }
    ASSERT_EQ(ledger.held(), 0U) << seed;
  }
}

// Llama-3.2-1B with d_mem 64 at 131,072 tokens, beside a KV cache of F16.
TEST(SegmentKvLayer, Memory_IsAFractionOfAKvCache) {
  MemoryShape memory{.hidden = 2048, .key_dim = 64, .nu = 3};
  const double cache =
      131072.0 * static_cast<double>(KvLayerShape{.kv_heads = 8, .head_dim = 64}.PositionBytes(DType::kF16));
  EXPECT_GE(cache / static_cast<double>(memory.bytes()), 85);
  memory.dtype = DType::kBF16;
  EXPECT_GE(cache / static_cast<double>(memory.bytes()), 170);
}

TEST(SegmentKvLayer, Bytes_DoNotGrowWithTheText) {
  Text text;
  for (size_t t = 0; t < 40; ++t) text.Add({1}, t % 4 == 3);
  const StateBytes few = text.state->bytes();
  for (size_t t = 40; t < 900; ++t) text.Add({1}, t % 4 == 3);
  EXPECT_EQ(text.state->bytes().reserved, few.reserved);
  EXPECT_EQ(text.state->bytes().committed, few.committed);
  EXPECT_LE(few.committed, 2 * kSegments.memory.bytes() + 16);
}

}  // namespace
}  // namespace tidemill::segment_kv_layer_test
