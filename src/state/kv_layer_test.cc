// What layers with windows add to the KV cache: when rows go, what that costs, and that nobody who may still look at them notices.
#include "state/kv_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/append_kv.h"
#include "kernels/attention.h"
#include "kernels/key_tiles.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/kv_cache.h"
#include "tests/support/state_kinds.h"
#include "tests/support/state_model.h"

namespace tidemill::kv_layer_test {
namespace {

using testing::KvCache;
using testing::KvLayerOf;
using testing::KvShape;

using testing::CheckpointOf;
using testing::NumAllocations;

constexpr size_t kWindow = 100, kDraft = 16, kHeads = 2, kHeadDim = 8;
constexpr size_t kKept = kWindow - 1 + 2 * kDraft;  // rows kept of a sequence that never rolled back

// Layer 0 keeps everything, layer 1 has a window; both are given the same rows.
KvShape Shape(size_t max_length = 4000) {
  return {.layers = {{kHeads, kHeadDim}, {kHeads, kHeadDim, kWindow}},
          .dtype = DType::kF32,
          .max_length = max_length,
          .draft_rows = kDraft,
          .model = 5,
          .numeric_class = 6};
}

KvLayer& Layer(SequenceState& state, size_t index) { return KvLayerOf(state, index); }

float Element(size_t position, size_t head, size_t i, bool value) {
  return std::sin(static_cast<float>(position * 31 + head * 7 + i * 3 + (value ? 1000 : 0)));
}

// Row `row` of the step in both layers: that of `position`, or NaN.
void Write(SequenceState& state, size_t row, size_t position, bool nan = false) {
  for (size_t l = 0; l < 2; ++l) {
    const KvLayer::StepRows rows = Layer(state, l).View();
    for (size_t head = 0; head < kHeads; ++head) {
      for (const bool value : {false, true}) {
        float out[kHeadDim];
        for (size_t i = 0; i < kHeadDim; ++i) out[i] = nan ? std::nanf("") : Element(position, head, i, value);
        std::memcpy((value ? rows.v : rows.k) + (head * rows.head_stride + row * kHeadDim) * sizeof(float), out,
                    sizeof(out));
      }
    }
  }
}

std::vector<RowKey> Keys(size_t n, RowKey first) {
  std::vector<RowKey> keys(n);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

void Reserve(SequenceState& state, size_t n) {
  ASSERT_TRUE(state.Reserve(n).ok());
  for (size_t i = 0; i < n; ++i) Write(state, i, 0, true);
}

void Extend(SequenceState& state, size_t n, size_t step = 1) {
  for (size_t done = 0; done < n; done += step) {
    const size_t rows = std::min(step, n - done), first = state.length();
    ASSERT_TRUE(state.Reserve(rows).ok());
    for (size_t i = 0; i < rows; ++i) Write(state, i, first + i);
    state.Commit(Keys(rows, first));
  }
}

size_t FirstKept(SequenceState& state) {
  const auto context = Layer(state, 1).Context(0);
  return context.empty() ? state.length() : context.front().first;
}

// Rows allocated in the window layer's tail.
size_t Capacity(SequenceState& state) { return Layer(state, 1).View().head_stride / kHeadDim; }

// Rows from the first position that a row at `from` sees, in both layers.
void ExpectRows(SequenceState& state, size_t from) {
  for (size_t l = 0; l < 2; ++l) {
    size_t next = Layer(state, l).shape().FirstSeen(from);
    for (const KvSpan& span : Layer(state, l).Context(0)) {
      for (; next >= span.first && next < span.first + span.rows; ++next) {
        for (size_t head = 0; head < kHeads; ++head) {
          for (size_t i = 0; i < kHeadDim; ++i) {
            const size_t row = next - span.first, first = head * span.head_stride;
            float k = 0, v = 0;
            std::memcpy(&k, span.k + (first + KeyElement(span.transposed, kHeadDim, row, i)) * sizeof(float),
                        sizeof(k));
            std::memcpy(&v, span.v + (first + row * kHeadDim + i) * sizeof(float), sizeof(v));
            ASSERT_EQ(k, Element(next, head, i, false)) << "layer " << l << ", position " << next;
            ASSERT_EQ(v, Element(next, head, i, true)) << "layer " << l << ", position " << next;
          }
        }
      }
    }
    ASSERT_EQ(next, state.length()) << "layer " << l;
  }
}

TEST(KvLayer, WindowPassesManyTimes_RowsGoInTurnAndMemoryStays) {
  for (const size_t step : {size_t{1}, size_t{3}, size_t{64}, size_t{300}}) {
    KvCache cache(Shape());
    size_t moves = 0, since = 0, most = 0;
    while (cache.length() + step <= 3900) {
      ASSERT_TRUE(cache.Reserve(step).ok());
      const size_t before = FirstKept(cache);
      Extend(cache, step, step);
      const size_t first = FirstKept(cache), length = cache.length();
      ASSERT_LE(first, length <= kKept ? 0 : length - kKept);
      ASSERT_EQ(cache.earliest_rollback(), length < kWindow + 2 * kDraft ? 0 : length - 2 * kDraft);
      ASSERT_EQ(first, before) << "rows went in a step";
      ASSERT_LE(Capacity(cache), kKept + step + 2 * KvLayer::kGrowthRows);
      most = std::max(most, Capacity(cache));
      if (cache.Reserve(step).ok() && FirstKept(cache) != first) {
        ASSERT_TRUE(moves == 0 || length - since >= KvLayer::kGrowthRows / 2) << "at " << length;
        since = length;
        ++moves;
      }
      if (length % 128 < step) ExpectRows(cache, cache.earliest_rollback());
    }
    EXPECT_GT(moves, 5U) << step;
    EXPECT_EQ(Capacity(cache), most) << step;
    const StateBytes bytes = cache.bytes();
    EXPECT_EQ(bytes.read_per_token, (cache.length() + kWindow) * 2 * kHeads * kHeadDim * 4);
    EXPECT_EQ(bytes.committed, (cache.length() + kWindow - 1 + kDraft) * 2 * kHeads * kHeadDim * 4);
  }
}

TEST(KvLayer, DropWithinABlock_AllocatesNothing) {
  KvCache cache(Shape());
  Extend(cache, 600);
  size_t drops = 0;
  while (cache.length() < 3000) {
    const size_t first = FirstKept(cache), before = NumAllocations();
    ASSERT_TRUE(cache.Reserve(1).ok());
    const bool dropped = FirstKept(cache) != first;
    if (dropped || cache.length() % KvLayer::kGrowthRows != 0) {
      ASSERT_EQ(NumAllocations(), before) << cache.length();
    }
    drops += dropped;
    Extend(cache, 1);
  }
  EXPECT_GT(drops, 4U);
}

// The same rows under a window: in a layer that keeps everything, and in one that forgets. What it forgets is overwritten.
TEST(KvLayer, AttentionWithAWindow_GivesTheBitsOfTheWholeContext) {
  constexpr size_t kQueryHeads = 4;
  auto threads = std::move(ThreadPool::Create(1)).value();
  AttentionShape shape{.heads = kQueryHeads,
                       .kv_heads = kHeads,
                       .head_dim = kHeadDim,
                       .scale = 0.5F,
                       .kv_dtype = DType::kF32,
                       .window = kWindow,
                       .bias = {}};
  auto context = std::move(ExecutionContext::Create(DetectIsa(), threads.get(), AttentionScratchBytes(shape))).value();
  KvCache cache(Shape());
  size_t steps = 0;
  for (const size_t n : {1, 1, 200, 1, 128, 7, 1, 300, 1, 1, 64, 1, 250, 2, 1, 1, 300, 1, 1}) {
    const size_t first = cache.length();
    Reserve(cache, n + 3);
    for (size_t i = 0; i < n; ++i) Write(cache, i, first + i);
    std::vector<float> q(n * kQueryHeads * kHeadDim), expected(q.size()), found(q.size());
    for (size_t i = 0; i < q.size(); ++i) q[i] = std::cos(static_cast<float>(first + i));
    for (size_t l = 0; l < 2; ++l) {
      const AttentionTask task{.context = Layer(cache, l).Context(n),
                               .first_position = first,
                               .visibility = Visibility::kCausal,
                               .q = {q.data(), n, kQueryHeads * kHeadDim},
                               .out = {(l == 0 ? expected : found).data(), n, kQueryHeads * kHeadDim}};
      Attention(context, shape, {&task, 1});
    }
    ASSERT_EQ(std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)), 0) << "at " << first;
    cache.Commit(Keys(n, first));
    steps += FirstKept(cache) != 0;
  }
  EXPECT_GT(steps, 8U);
}

// The same in blocks, written as a step writes them; the rows of a draft come first and a path of it is kept.
TEST(KvLayer, BlocksWithAWindow_GiveTheBitsOfTheWholeContext) {
  constexpr size_t kQueryHeads = 4, kDim = 64;
  auto threads = std::move(ThreadPool::Create(1)).value();
  AttentionShape shape{.heads = kQueryHeads,
                       .kv_heads = kHeads,
                       .head_dim = kDim,
                       .scale = 0.125F,
                       .kv_dtype = DType::kQ8_0,
                       .window = kWindow,
                       .bias = {}};
  auto context = std::move(ExecutionContext::Create(DetectIsa(), threads.get(), AttentionScratchBytes(shape))).value();
  KvShape blocks = Shape();
  blocks.dtype = DType::kQ8_0;
  blocks.layers = {{kHeads, kDim}, {kHeads, kDim, kWindow}};
  KvCache cache(blocks);
  const auto floats = [](size_t rows, size_t first, float add) {
    std::vector<float> values(rows * kHeads * kDim);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(static_cast<float>(first * kHeads * kDim + i) * 0.7F + add);
    return values;
  };
  const std::vector<uint32_t> path = {1, 2, 4};
  size_t drops = 0;
  for (const size_t n : {1, 200, 6, 1, 128, 6, 300, 1, 6, 64, 250, 6, 1, 300, 6, 1}) {
    const size_t first = cache.length(), kept = n == 6 ? path.size() : n;
    ASSERT_TRUE(cache.Reserve(n).ok());
    std::vector<float> out[2];
    for (size_t l = 0; l < 2; ++l) {
      const KvLayer::StepRows rows = Layer(cache, l).View();
      for (const bool value : {false, true}) {
        const std::vector<float> x = floats(n, first, value ? 1.0F : 0.0F);
        AppendKv(context, {x.data(), n, kHeads * kDim}, kDim, DType::kQ8_0, rows.head_stride, value ? rows.v : rows.k);
      }
      const std::vector<float> q(n * kQueryHeads * kDim, 0.3F);
      out[l].resize(q.size());
      const AttentionTask task{.context = Layer(cache, l).Context(n),
                               .first_position = first,
                               .visibility = Visibility::kCausal,
                               .q = {q.data(), n, kQueryHeads * kDim},
                               .out = {out[l].data(), n, kQueryHeads * kDim}};
      Attention(context, shape, {&task, 1});
    }
    ASSERT_EQ(std::memcmp(out[0].data(), out[1].data(), out[0].size() * sizeof(float)), 0) << "at " << first;
    if (kept == n) {
      cache.Commit(Keys(n, first));
    } else {
      cache.CommitPath(path, Keys(kept, first));
    }
    drops += FirstKept(cache) != 0;
    KvCache restored(blocks);
    const auto saved = CheckpointOf(cache);
    ASSERT_TRUE(restored.Restore(saved).ok());
    ASSERT_EQ(CheckpointOf(restored), saved) << "at " << first;
  }
  EXPECT_GT(drops, 4U);
}

// A draft that is rejected just where its rows make older ones go.
TEST(KvLayer, DraftAtTheEdgeOfABlock_LeavesWhatARejectionNeeds) {
  for (size_t before = 1; before <= kDraft; ++before) {  // free rows before the draft, too few for it
    KvCache cache(Shape());
    Extend(cache, 600);
    while (Capacity(cache) - (cache.length() - FirstKept(cache)) >= before) Extend(cache, 1);
    const size_t length = cache.length(), first = FirstKept(cache);
    Reserve(cache, kDraft);
    ASSERT_GT(FirstKept(cache), first);
    ExpectRows(cache, length - 2 * kDraft);  // not one accepted
    const std::vector<uint32_t> path = {1, 4, 5};
    for (size_t i = 0; i < path.size(); ++i) Write(cache, path[i], length + i);
    cache.CommitPath(path, Keys(path.size(), length));
    ExpectRows(cache, length + path.size() - 2 * kDraft);
    ASSERT_TRUE(cache.Rollback(length).ok());
    Extend(cache, kDraft, kDraft);  // accepted at first, and taken back
    ASSERT_TRUE(cache.Rollback(length).ok());
    ExpectRows(cache, length - kDraft);
    ASSERT_TRUE(cache.Rollback(length - kDraft).ok());
    ExpectRows(cache, length - kDraft);
    for (const size_t below : {length - kDraft - 1, kWindow, size_t{0}}) {
      const auto refused = cache.Rollback(below);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
    }
    ASSERT_EQ(cache.length(), length - kDraft);
    Extend(cache, 400);
    ExpectRows(cache, cache.earliest_rollback());
  }
}

TEST(KvLayer, SharedBlocks_GoWholeWhenTheWindowHasPassed) {
  KvCache root(Shape());
  Extend(root, 90);
  const auto early = std::move(root.Fork()).value();
  const auto late = std::move(root.Fork()).value();
  Extend(*late, 30);
  const auto last = std::move(late->Fork()).value();
  SequenceState& parent = *last;
  const auto blocks = [](SequenceState& state) { return Layer(state, 1).Context(0).size(); };
  Extend(parent, 90 + kKept - 120);  // position 90 is the first that is needed
  EXPECT_EQ(FirstKept(parent), 0U);
  EXPECT_EQ(blocks(parent), 3U);
  ASSERT_TRUE(parent.Reserve(1).ok());
  EXPECT_EQ(FirstKept(parent), 90U);
  EXPECT_EQ(blocks(parent), 2U);
  Extend(parent, 10);
  ASSERT_TRUE(parent.Reserve(1).ok());
  EXPECT_EQ(FirstKept(parent), 90U) << "a block of which one row is needed stays whole";
  Extend(parent, 400);
  EXPECT_EQ(blocks(parent), 1U);
  ExpectRows(parent, parent.earliest_rollback());
  ExpectRows(*early, 0);
  ExpectRows(*late, 0);
  Extend(*early, 500);
  ExpectRows(*late, 0);
  Extend(*late, 300);
  for (SequenceState* state : {&static_cast<SequenceState&>(parent), early.get(), late.get()}) {
    ExpectRows(*state, state->earliest_rollback());
  }
}

TEST(KvLayer, Compact_KeepsWhatRollbacksNeed) {
  KvCache cache(Shape());
  Extend(cache, 1000);
  cache.Compact();
  EXPECT_EQ(FirstKept(cache), 1000 - kKept);
  EXPECT_EQ(cache.bytes().reserved, (1000 + kKept) * 2 * kHeads * kHeadDim * 4);
  ASSERT_TRUE(cache.Rollback(1000 - 2 * kDraft).ok());
  ExpectRows(cache, 1000 - 2 * kDraft);
}

TEST(KvLayer, EndOfTheContext_TakesNoMoreThanIsLeft) {
  KvCache cache(Shape(400));
  Extend(cache, 400);
  EXPECT_EQ(cache.Reserve(1).error().code(), ErrorCode::kContextFull);
  ExpectRows(cache, cache.earliest_rollback());
  EXPECT_GT(FirstKept(cache), 0U);
  EXPECT_EQ(FirstKept(cache) + Capacity(cache), 400U);
}

// The layout that kv_cache.h describes, where it differs from that of a cache without windows.
TEST(KvLayer, CheckpointWithAWindow_HasTheBytesOfItsLayout) {
  KvCache cache(Shape());
  Extend(cache, 300);
  const auto bytes = CheckpointOf(cache);
  uint64_t shape = ChainTokenHash(static_cast<uint64_t>(DType::kF32), kDraft);
  for (const uint64_t value : {kHeads, kHeadDim, size_t{0}, kHeads, kHeadDim, kWindow})
    shape = ChainTokenHash(shape, value);
  uint64_t header[3];  // shape, length, earliest
  std::memcpy(header, bytes.data() + 32, sizeof(header));
  EXPECT_EQ(header[0], shape);
  EXPECT_EQ(header[1], 300U);
  EXPECT_EQ(header[2], 300 - kDraft);
  constexpr size_t kRowBytes = kHeadDim * sizeof(float), kRows = kWindow - 1 + kDraft;
  const size_t body = KvCache::kCheckpointHeaderBytes + 300 * (8 + 2 * kHeads * kRowBytes);
  ASSERT_EQ(bytes.size(), body + kRows * 2 * kHeads * kRowBytes);
  for (const bool value : {false, true}) {
    for (size_t head = 0; head < kHeads; ++head) {
      for (size_t row = 0; row < kRows; ++row) {
        float first = 0;
        std::memcpy(&first, bytes.data() + body + ((value * kHeads + head) * kRows + row) * kRowBytes, sizeof(first));
        ASSERT_EQ(first, Element(300 - kRows + row, head, 0, value));
      }
    }
  }
}

TEST(KvLayer, Checkpoint_FollowsFromTheSequenceAlone) {
  KvCache plain(Shape());
  Extend(plain, 1000);
  const auto expected = CheckpointOf(plain);
  for (const size_t step : {size_t{7}, size_t{129}, size_t{512}, size_t{1000}}) {
    KvCache cache(Shape());
    Extend(cache, 1000, step);
    EXPECT_EQ(CheckpointOf(cache), expected) << step;
    Extend(cache, kDraft, 1 + step % kDraft);
    ASSERT_TRUE(cache.Rollback(1000).ok());
    EXPECT_EQ(CheckpointOf(cache), expected) << step;
    cache.Compact();
    const auto child = std::move(cache.Fork()).value();
    EXPECT_EQ(CheckpointOf(*child), expected) << step;
  }
}

TEST(KvLayer, Restored_RollsBackADraftAndIsSavedAgain) {
  KvCache source(Shape()), cache(Shape()), again(Shape());
  Extend(source, 1000);
  const auto saved = CheckpointOf(source);
  ASSERT_TRUE(cache.Restore(saved).ok());
  EXPECT_EQ(FirstKept(cache), 1000 - (kWindow - 1 + kDraft));
  EXPECT_EQ(cache.earliest_rollback(), 1000 - kDraft);
  EXPECT_EQ(CheckpointOf(cache), saved);
  EXPECT_EQ(cache.Rollback(1000 - kDraft - 1).error().code(), ErrorCode::kUnsupported);
  for (size_t back = 1; back <= kDraft; ++back) {
    ASSERT_TRUE(cache.Rollback(1000 - back).ok());
    ExpectRows(cache, 1000 - kDraft);
    const auto fewer = CheckpointOf(cache);
    EXPECT_EQ(saved.size() - fewer.size(), back * (8 + 2 * 2 * kHeads * kHeadDim * sizeof(float)));
    ASSERT_TRUE(again.Restore(fewer).ok());
    EXPECT_EQ(again.earliest_rollback(), 1000 - kDraft);
    ExpectRows(again, 1000 - kDraft);
    EXPECT_EQ(CheckpointOf(again), fewer);
    ASSERT_TRUE(cache.Reserve(1).ok());
  }
  for (KvCache* state : {&cache, &again}) {
    Extend(*state, kDraft);
    EXPECT_EQ(CheckpointOf(*state), saved) << "with the length that it had, a checkpoint is complete again";
    Extend(*state, 300);
    ExpectRows(*state, state->earliest_rollback());
  }
}

TEST(KvLayer, CheckpointOfAnImpossibleRollback_IsCorrupt) {
  KvCache cache(Shape());
  Extend(cache, 1000);
  const auto saved = CheckpointOf(cache);
  for (const uint64_t earliest : {uint64_t{0}, uint64_t{1}, uint64_t{kWindow - 1}, uint64_t{kWindow},
                                  uint64_t{999 - kDraft}, uint64_t{1001}, ~uint64_t{0}}) {
    auto damaged = saved;
    std::memcpy(damaged.data() + 48, &earliest, sizeof(earliest));
    const auto restored = cache.Restore(damaged);
    ASSERT_FALSE(restored.ok()) << earliest;
    EXPECT_EQ(restored.error().code(), ErrorCode::kCorruptFile);
    EXPECT_NE(restored.error().message().find("rollbacks cannot end"), std::string::npos) << restored.error().message();
  }
  for (const uint64_t earliest : {uint64_t{1001 - kDraft}, uint64_t{1000}}) {  // possible, with fewer bytes
    auto damaged = saved;
    std::memcpy(damaged.data() + 48, &earliest, sizeof(earliest));
    EXPECT_EQ(cache.Restore(damaged).error().code(), ErrorCode::kCorruptFile) << earliest;
  }
  EXPECT_EQ(CheckpointOf(cache), saved);
}

// Numbers at the end of what fits: everything is seen, everything may be rolled back.
TEST(KvLayer, WindowAndDraftBeyondAnyLength_ForgetNothing) {
  for (const auto& [window, draft] : std::vector<std::pair<size_t, size_t>>{
           {~size_t{0}, 1}, {1, ~size_t{0}}, {~size_t{0}, ~size_t{0}}, {size_t{1} << 63, size_t{1} << 63}}) {
    KvShape shape = Shape();
    shape.layers[1].window = window;
    shape.draft_rows = draft;
    KvCache cache(shape);
    Extend(cache, 900, 90);
    EXPECT_EQ(cache.earliest_rollback(), 0U);
    EXPECT_EQ(FirstKept(cache), 0U);
    ASSERT_TRUE(cache.Restore(CheckpointOf(cache)).ok());
    EXPECT_EQ(cache.earliest_rollback(), 0U);
    ASSERT_TRUE(cache.Rollback(0).ok());
  }
}

// Keys of the layer that keeps everything, of its last block.
size_t Transposed(SequenceState& state) { return Layer(state, 0).Context(0).back().transposed; }

KvShape OneLayer(DType dtype = DType::kF32, const KvGrowth& growth = {}) {
  KvShape shape = Shape();
  shape.dtype = dtype;
  shape.growth = growth;
  shape.draft_rows = shape.max_length;  // rollbacks go anywhere
  return shape;
}

TEST(TransposedKeys, Commit_TransposesTilesThatHaveRowsBehindThem) {
  for (const size_t step : {size_t{1}, size_t{5}, size_t{64}}) {
    KvCache cache(OneLayer());
    while (cache.length() < 330) {
      Extend(cache, step, step);
      const size_t rows = cache.length() - std::min(cache.length(), KvLayer::kRowsApart);
      ASSERT_EQ(Transposed(cache), rows / kKeyTileRows * kKeyTileRows) << cache.length();
      ExpectRows(cache, cache.length());
    }
  }
}

TEST(TransposedKeys, Rollback_TransposesBackWhatIsWrittenAgain) {
  for (size_t to = 0; to <= 200; ++to) {
    KvCache cache(OneLayer());
    Extend(cache, 200, 50);
    ASSERT_EQ(Transposed(cache), 176U);
    ASSERT_TRUE(cache.Rollback(to).ok());
    if (to != 0) {
      EXPECT_EQ(Transposed(cache), std::min<size_t>(176, to / kKeyTileRows * kKeyTileRows)) << to;
    }
    ExpectRows(cache, to);
    Extend(cache, 60, 7);
    ExpectRows(cache, to);
  }
}

TEST(TransposedKeys, Fork_SharesThemAndEitherSideGoesOn) {
  for (const size_t to : {size_t{0}, size_t{37}, size_t{48}, size_t{90}, size_t{100}}) {
    KvCache cache(OneLayer());
    Extend(cache, 100, 10);
    auto child = std::move(cache.Fork()).value();
    EXPECT_EQ(Transposed(*child), 80U);
    ASSERT_TRUE(child->Rollback(to).ok());
    Extend(*child, 70, 7);
    Extend(cache, 70, 9);
    ExpectRows(*child, 0);
    ExpectRows(cache, 0);
  }
}

TEST(TransposedKeys, Pages_AreTransposedWhenTheyAreFull) {
  KvCache cache(OneLayer(DType::kF32, {.policy = KvPolicy::kPaged, .increment = 32}));
  Extend(cache, 100, 4);
  for (const KvSpan& span : Layer(cache, 0).Context(0))
    EXPECT_EQ(span.transposed, span.rows == 32 ? 32U : 0U) << span.first;
  ExpectRows(cache, 0);
}

TEST(TransposedKeys, SavedRows_AreRows) {
  KvCache turned(OneLayer()), rows(OneLayer());
  Extend(turned, 100, 10);
  Extend(rows, 100, 100);
  ASSERT_TRUE(rows.Rollback(3).ok());  // no tile is transposed any more
  Extend(rows, 20, 20);
  ASSERT_TRUE(turned.Rollback(23).ok());
  EXPECT_NE(Transposed(turned), Transposed(rows));
  EXPECT_EQ(CheckpointOf(turned), CheckpointOf(rows));
  ASSERT_TRUE(turned.Restore(CheckpointOf(rows)).ok());
  Extend(turned, 50, 1);
  EXPECT_EQ(Transposed(turned), 48U);
  ExpectRows(turned, 0);
}

TEST(TransposedKeys, BlocksAlongARow_StayInRows) {
  KvShape shape = OneLayer(DType::kQ8_0);
  shape.layers = {{kHeads, 32}};
  KvCache cache(shape);
  ASSERT_TRUE(cache.Reserve(100).ok());
  cache.Commit(Keys(100, 0));
  EXPECT_EQ(Transposed(cache), 0U);
}

}  // namespace
}  // namespace tidemill::kv_layer_test
