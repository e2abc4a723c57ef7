#include "state/sparse_kv_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/support/allocation_probe.h"
#include "tests/support/sparse_under_test.h"
#include "tests/support/state_kinds.h"
#include "tests/support/state_model.h"

namespace tidemill::sparse_kv_layer_test {
namespace {

using testing::CheckpointOf;
using testing::FailAllocations;
using testing::KvUnderTest;
using testing::SparseUnderTest;
using testing::StateKindUnderTest;
using testing::Subject;

constexpr SparseForm kSparq{.kind = SparseKind::kSparq, .r = 2, .k = 8, .local = 2};
constexpr SparseForm kH2o{.kind = SparseKind::kH2o, .k = 8, .local = 2};

// Counts the rows of every state that it made.
struct Counted : SparseUnderTest {
  Counted(const KvLayerShape& shape, DType dtype, const SparseForm& form, StateLedger* counts)
      : SparseUnderTest(shape, dtype, {}, false, form, true), ledger(counts) {}
  std::unique_ptr<LayerState> Make(const SequenceOptions& options) const override {
    SequenceOptions counted = options;
    counted.ledger = ledger;
    return SparseUnderTest::Make(counted);
  }
  StateLedger* ledger;
};

std::vector<RowKey> Keys(size_t n, RowKey first) {
  std::vector<RowKey> keys(n);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

SparseKvLayer& LayerOf(Subject& subject, size_t index = 0) {
  return static_cast<SparseKvLayer&>(subject.state->layer(index));
}

StateKindUnderTest Kind(StateKindUnderTest::Layers layers, size_t draft_rows = 20) {
  return StateKindUnderTest("Sparse", std::move(layers), draft_rows);
}
StateKindUnderTest Kind(const KvLayerShape& shape, DType dtype, const SparseForm& form = kSparq) {
  return Kind({std::make_shared<SparseUnderTest>(shape, dtype, KvGrowth(), false, form, true)});
}

// Appends, drafts, rollbacks, forks, deaths, compactions and restores, over several blocks of columns: columns and sums are those that one
// makes of the rows alone, keys are rows, and each block of memory is counted once.
void RunHistory(const KvLayerShape& shape, DType dtype, uint64_t seed) {
  StateLedger ledger;
  const StateKindUnderTest kind = Kind({std::make_shared<Counted>(shape, dtype, kSparq, &ledger)});
  std::mt19937_64 random(seed);
  std::vector<Subject> live;
  live.emplace_back(kind, 2000);
  RowKey next = 1;
  size_t longest = 0;
  std::vector<size_t> done(7);
  for (size_t operation = 0; operation < 200; ++operation) {
    const auto index = static_cast<size_t>(random() % live.size());
    Subject& subject = live[index];
    SequenceState& state = *subject.state;
    const size_t length = state.length(), first = state.earliest_rollback();
    const size_t what = random() % 16;
    const size_t of = what < 7 ? 0 : what < 9 ? 1 : what < 11 ? 2 : what < 13 ? 3 : what - 9;
    switch (of) {
      case 0: {
        const bool is_long = random() % 3 == 0;
        const size_t n = 1 + random() % (is_long ? 300 : 5);
        if (length + n > 1500) break;
        subject.Extend(Keys(n, next += 1000));
        break;
      }
      case 1: {
        std::vector<uint32_t> path;
        for (uint32_t slot = 0; slot < 80; ++slot) {
          if (random() % 4 != 0) path.push_back(slot);
        }
        if (length > 1500) break;
        ASSERT_TRUE(state.Reserve(80).ok());
        const auto keys = Keys(path.size(), next += 1000);
        subject.WriteRows(path, keys);
        state.CommitPath(path, keys);
        for (const RowKey key : keys) subject.naive.Append(kind, key);
        break;
      }
      case 2: {
        const size_t to = std::max(first, length - std::min<size_t>(length, random() % 200));
        ASSERT_TRUE(state.Rollback(to).ok());
        subject.naive.Truncate(kind, to);
        break;
      }
      case 3: {
        if (live.size() == 5) live.erase(live.begin() + static_cast<std::ptrdiff_t>((index + 1) % 5));
        Subject& parent = live[index % live.size()];
        const size_t from = parent.state->earliest_rollback();
        const size_t at = from + random() % (parent.state->length() - from + 1);
        Subject child(kind, 2000);
        ASSERT_TRUE(parent.state->ForkTo(*child.state, at).ok());
        child.naive = parent.naive;
        child.naive.Truncate(kind, at);
        live.push_back(std::move(child));
        break;
      }
      case 4: state.Compact(); break;
      case 5: {
        const auto saved = CheckpointOf(state);
        Subject restored(kind, 2000);
        ASSERT_TRUE(restored.state->Restore(saved).ok());
        restored.naive = subject.naive.Restored(kind);
        subject = std::move(restored);
        break;
      }
      default:
        if (live.size() > 1) live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
    }
    ++done[of];
    longest = std::max(longest, live.back().state->length());
    if (operation % 3 != 0) continue;  // a check settles: others come between a commit or a rollback and its settle
    std::map<const void*, uint64_t> blocks;
    for (Subject& each : live) {
      ASSERT_EQ(each.Difference(true), "") << "operation " << operation;
      ASSERT_FALSE(each.GaveUp());
      SparseKvLayer& layer = LayerOf(each);
      for (const KvSpan& span : layer.Context(0)) ASSERT_EQ(span.transposed, 0U);
      layer.ForEachBlock([&](const void* block, uint64_t bytes) { blocks[block] = bytes; });
    }
    uint64_t sum = 0;
    for (const auto& [block, bytes] : blocks) sum += bytes;
    ASSERT_EQ(ledger.held(), sum) << "operation " << operation;
  }
  EXPECT_GT(longest, 600U);
  for (const size_t times : done) EXPECT_GT(times, 0U);
  live.clear();
  EXPECT_EQ(ledger.held(), 0U);
}

TEST(SparseKvLayer, AnyHistory_HasTheColumnsAndSumsOfItsRows) {
  uint64_t seed = 0;
  for (const size_t window : {0, 1, 50, 64, 300}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(std::to_string(window) + " " + std::string(InfoOf(dtype).name));
      RunHistory({.kv_heads = 2, .head_dim = 3, .window = window}, dtype, ++seed);
      if (HasFatalFailure()) return;
    }
    RunHistory({.kv_heads = 1, .head_dim = 32, .window = window}, DType::kQ8_0, ++seed);
    if (HasFatalFailure()) return;
  }
}

// A plain layer whose rows have sums.
struct FinitePlain : KvUnderTest {
  using KvUnderTest::KvUnderTest;
  void Admit(std::span<std::byte> row) const override { testing::MakeFinite(dtype(), row); }
};

// Forks and checkpoints go from layers with columns to plain ones, whose keys stand in tiles, and back.
TEST(SparseKvLayer, PlainLayers_ContinueItAndItContinuesThem) {
  for (const DType dtype : {DType::kF16, DType::kF32}) {
    const KvLayerShape shape{.kv_heads = 2, .head_dim = 3};
    const StateKindUnderTest sparse = Kind(shape, dtype),
                             plain = Kind({std::make_shared<FinitePlain>(shape, dtype, KvGrowth(), false)});
    std::mt19937_64 random(5);
    std::vector<Subject> live;
    live.emplace_back(sparse, 2000);
    live.emplace_back(plain, 2000);
    RowKey next = 1;
    size_t forks = 0, restores = 0, tiles = 0;
    for (size_t operation = 0; operation < 300; ++operation) {
      Subject& subject = live[random() % live.size()];
      const StateKindUnderTest& other = subject.kind == &sparse ? plain : sparse;
      const size_t what = random() % 8, length = subject.state->length();
      if (what < 4 && length < 1500) {
        subject.Extend(Keys(1 + random() % (what == 0 ? 200 : 3), next += 1000));
      } else if (what < 5) {
        const size_t to = length - std::min<size_t>(length, random() % 100);
        ASSERT_TRUE(subject.state->Rollback(to).ok());
        subject.naive.Truncate(*subject.kind, to);
      } else {
        Subject child(other, 2000);
        child.naive = subject.naive;
        if (what == 5) {
          ASSERT_TRUE(child.state->Restore(CheckpointOf(*subject.state)).ok());
          ++restores;
        } else {
          const size_t at = random() % (length + 1);
          ASSERT_TRUE(subject.state->ForkTo(*child.state, at).ok());
          child.naive.Truncate(other, at);
          ++forks;
        }
        if (live.size() == 6) live.erase(live.begin() + static_cast<std::ptrdiff_t>(random() % 6));
        live.push_back(std::move(child));
      }
      for (Subject& each : live) {
        ASSERT_TRUE(each.state->Reserve(1).ok());  // blocks for what came without columns
        ASSERT_EQ(each.Difference(true), "") << "operation " << operation;
        if (each.kind != &sparse) continue;
        for (const KvSpan& span : LayerOf(each).Context(0)) tiles += span.transposed;
      }
    }
    EXPECT_GT(forks, 0U);
    EXPECT_GT(restores, 0U);
    EXPECT_GT(tiles, 0U);
  }
}

TEST(SparseKvLayer, Granules_AreFilledAtTheNextCellInParts) {
  const StateKindUnderTest kind = Kind({.kv_heads = 3, .head_dim = 2}, DType::kF16);
  Subject subject(kind, 2000);
  SparseKvLayer& layer = LayerOf(subject);
  subject.Extend(Keys(63, 1));
  EXPECT_EQ(layer.num_settle_parts(), 0U);
  subject.Extend(Keys(66, 100));
  EXPECT_EQ(layer.Columns().filled, 0U);
  EXPECT_EQ(layer.num_settle_parts(), 3U);
  EXPECT_EQ(layer.settle_bytes(), 128 * (24 + 12U));
  for (size_t head = 3; head-- > 0;) layer.SettlePart(head);
  layer.EndSettle();
  EXPECT_EQ(layer.Columns().filled, 128U);
  EXPECT_EQ(layer.num_settle_parts(), 0U);
  EXPECT_EQ(layer.settle_bytes(), 0U);
  EXPECT_EQ(subject.Difference(true), "");
}

// Rows that only the open granule needs stay, though no row sees them.
TEST(SparseKvLayer, ShortWindow_KeepsItsGranuleAndLittleElse) {
  const StateKindUnderTest kind =
      Kind({std::make_shared<SparseUnderTest>(KvLayerShape{2, 2, 3}, DType::kF32, KvGrowth(), false, kSparq, true)}, 1);
  Subject subject(kind, 6000);
  uint64_t most = 0;
  const uint64_t promised = subject.state->GrowthBytes(5000, 7);
  for (size_t step = 0; step < 700; ++step) {
    subject.Extend(Keys(7, 10 * step));
    most = std::max(most, subject.state->bytes().reserved);
    ASSERT_EQ(subject.Difference(step % 10 == 0), "") << step;
  }
  EXPECT_LE(most, promised);
  EXPECT_LE(LayerOf(subject).column_store().own_blocks(), 2U);
  EXPECT_LT(promised, subject.state->GrowthBytes(5000));
}

// Steps that no cell of the layer ran between: a Reserve drops shared rows, of which granules have not been filled yet.
TEST(SparseKvLayer, ReserveThatDropsRows_FillsTheirGranulesFirst) {
  const StateKindUnderTest kind =
      Kind({std::make_shared<SparseUnderTest>(KvLayerShape{2, 2, 3}, DType::kF32, KvGrowth(), false, kSparq, true)}, 1);
  Subject parent(kind, 2000);
  parent.Extend(Keys(50, 1));
  Subject child(kind, std::move(parent.state->Fork()).value(), parent.naive);
  child.Extend(Keys(80, 100));
  EXPECT_EQ(LayerOf(child).Columns().filled, 0U);
  EXPECT_EQ(LayerOf(child).Context(0).front().first, 0U);
  child.Extend(Keys(1, 200));
  EXPECT_GE(LayerOf(child).Context(0).front().first, 50U);
  EXPECT_EQ(child.Difference(true), "");
}

// The next granules are in a block that the child sees, filled.
TEST(SparseKvLayer, RollbackBelowAFork_WritesBlocksOfItsOwn) {
  const StateKindUnderTest kind = Kind({.kv_heads = 2, .head_dim = 4}, DType::kF16);
  Subject parent(kind, 2000);
  parent.Extend(Keys(250, 1));
  Subject child(kind, std::move(parent.state->Fork()).value(), parent.naive);
  ASSERT_TRUE(parent.state->Rollback(100).ok());
  EXPECT_EQ(LayerOf(parent).Columns().filled, 64U);
  parent.naive.Truncate(kind, 100);
  parent.Extend(Keys(60, 500));
  EXPECT_EQ(parent.Difference(true), "");
  EXPECT_EQ(child.Difference(true), "");
}

TEST(SparseKvLayer, HugeContext_CostsWhatIsUsed) {
  const StateKindUnderTest kind = Kind({.kv_heads = 2, .head_dim = 4}, DType::kBF16);
  Subject small(kind, 1000), huge(kind, size_t{1} << 40);
  for (Subject* subject : {&small, &huge}) subject->Extend(Keys(300, 1));
  EXPECT_EQ(huge.state->bytes().reserved, small.state->bytes().reserved);
  const uint64_t column_block = 2 * 4 * 256 * 2 + 4 * 2 * 4 * 8;
  EXPECT_EQ(LayerOf(huge).column_store().held_bytes(), column_block);  // of the last 44 rows no granule is whole
}

TEST(SparseKvLayer, ReservedRows_AskForTheirColumns) {
  const StateKindUnderTest kind = Kind({.kv_heads = 2, .head_dim = 4}, DType::kBF16);
  Subject subject(kind, 2000);
  subject.Extend(Keys(100, 1));
  SparseKvLayer& layer = LayerOf(subject);
  layer.Settle();
  const uint64_t columns = 2 * 4 * 256 * 2, sums = 4 * 2 * 4 * 8;
  EXPECT_EQ(layer.GrowthBytes(100, 0), 0U);
  EXPECT_EQ(layer.GrowthBytes(155, 0), layer.KvLayer::GrowthBytes(155, 0));
  EXPECT_EQ(layer.GrowthBytes(220, 0), layer.KvLayer::GrowthBytes(220, 0) + columns + sums);
  EXPECT_EQ(layer.GrowthBytes(220, 20, 0, 0), layer.GrowthBytes(220, 0));  // once, by steps, too
  EXPECT_EQ(layer.NewBlock(220, 0).all, layer.KvLayer::NewBlock(220, 0).all + columns);
  EXPECT_EQ(layer.RestoredBlock(600, 580).all, layer.KvLayer::RestoredBlock(600, 580).all + 3 * columns);
  EXPECT_EQ(layer.ForkBytes(), columns + sums);  // the open block is copied by one of both
  const uint64_t before = layer.column_store().held_bytes();
  ASSERT_TRUE(subject.state->Reserve(220).ok());
  EXPECT_EQ(layer.column_store().held_bytes(), before + columns + sums);
}

TEST(SparseKvLayer, ColumnsWithoutMemory_ChangeNoRow) {
  const StateKindUnderTest kind = Kind({.kv_heads = 2, .head_dim = 4}, DType::kF16);
  Subject whole(kind, 2000), poor(kind, 2000);
  size_t without = 0;
  for (size_t step = 0; step < 30; ++step) {
    const auto keys = Keys(30, 100 * step);
    whole.Extend(keys);
    const bool needs_columns = LayerOf(poor).column_store().GrowthBytes(poor.state->length() + 30) != 0;
    if (needs_columns && step > 10 && !poor.GaveUp()) {
      // Rows first, then sums of a block, then its columns: the last allocations.
      for (size_t n = 0; n < 20 && !poor.GaveUp(); ++n) {
        FailAllocations failure(n);
        if (poor.state->Reserve(30).ok()) without += poor.GaveUp();
      }
    }
    poor.Extend(keys);
    ASSERT_EQ(poor.Difference(true), "");
    ASSERT_EQ(CheckpointOf(*poor.state), CheckpointOf(*whole.state));
  }
  EXPECT_EQ(without, 1U);
  EXPECT_TRUE(poor.GaveUp());
  EXPECT_FALSE(whole.GaveUp());
  EXPECT_EQ(LayerOf(poor).Columns().blocks.front().columns, nullptr);
  EXPECT_GT(poor.state->bytes().read_per_token, whole.state->bytes().read_per_token);
  // A fork has none; another restored from it does.
  Subject child(kind, std::move(poor.state->Fork()).value(), poor.naive), restored(kind, 2000);
  EXPECT_TRUE(child.GaveUp());
  EXPECT_EQ(child.Difference(true), "");
  ASSERT_TRUE(restored.state->Restore(CheckpointOf(*poor.state)).ok());
  restored.naive = poor.naive.Restored(kind);
  EXPECT_FALSE(restored.GaveUp());
  EXPECT_EQ(restored.Difference(true), "");
}

// --- Eviction ---

// A step of a form with weights: each row adds to what it sees.
void RunWeights(Subject& subject, size_t rows, RowKey first) {
  ASSERT_TRUE(subject.state->Reserve(rows).ok());
  std::vector<uint32_t> slots(rows);
  std::iota(slots.begin(), slots.end(), 0U);
  const auto keys = Keys(rows, first);
  subject.WriteRows(slots, keys);
  SparseKvLayer& layer = LayerOf(subject);
  for (size_t head = 0; head < layer.shape().kv_heads; ++head) {
    const std::span<float> sums = layer.StepSums(head, 0, rows);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<float>(first + head + i);
    sums[sums.size() / 2] = kEvicted;
  }
  subject.state->Commit(keys);
  for (const RowKey key : keys) subject.naive.Append(*subject.kind, key);
}

std::vector<float> WeightsOf(Subject& subject) {
  std::vector<float> all;
  const WeightSums& sums = LayerOf(subject).weight_sums();
  for (size_t head = 0; head < sums.kv_heads(); ++head)
    all.insert(all.end(), sums.Committed(head).begin(), sums.Committed(head).end());
  return all;
}

TEST(Eviction, SparseRow_EndsRollbacksOnceItIsCommitted) {
  for (const SparseKind form : {SparseKind::kH2o, SparseKind::kWindow}) {
    const StateKindUnderTest kind = Kind({.kv_heads = 2, .head_dim = 4}, DType::kF16, {.kind = form, .k = 4});
    Subject subject(kind, 500), child(kind, 500);
    SequenceState& state = *subject.state;
    EXPECT_FALSE(state.keeps_all());
    subject.Extend(Keys(10, 1));
    ASSERT_TRUE(state.Reserve(1).ok());
    LayerOf(subject).MarkEvicting();  // of a step that never happens
    ASSERT_TRUE(state.Rollback(9).ok());
    subject.naive.Truncate(kind, 9);
    subject.Extend(Keys(3, 50));
    EXPECT_EQ(state.earliest_rollback(), 0U);
    ASSERT_TRUE(state.Reserve(1).ok());
    LayerOf(subject).MarkEvicting();
    subject.WriteRows(std::vector<uint32_t>{0}, Keys(1, 70));
    state.Commit(Keys(1, 70));
    subject.naive.Append(kind, 70);
    EXPECT_EQ(state.earliest_rollback(), 13U);
    EXPECT_EQ(state.Rollback(12).error().code(), ErrorCode::kUnsupported);
    EXPECT_EQ(state.ForkTo(*child.state, 12).error().code(), ErrorCode::kUnsupported);
    ASSERT_TRUE(state.ForkTo(*child.state, 13).ok());
    EXPECT_EQ(child.state->earliest_rollback(), 13U);
    subject.Extend(Keys(1, 80));  // dense rows do not bring it back
    EXPECT_EQ(state.earliest_rollback(), 14U);
    EXPECT_EQ(child.state->earliest_rollback(), 13U);
    state.Clear();
    EXPECT_EQ(state.earliest_rollback(), 0U);
  }
}

TEST(Eviction, Weights_GoWithForksAndCheckpoints) {
  const StateKindUnderTest kind = Kind({.kv_heads = 2, .head_dim = 4, .window = 40}, DType::kBF16, kH2o);
  Subject subject(kind, 2000), restored(kind, 2000);
  subject.Extend(Keys(70, 1));
  RunWeights(subject, 100, 5);
  RunWeights(subject, 1, 9);
  const std::vector<float> weights = WeightsOf(subject);
  EXPECT_EQ(weights.size(), 2 * 171U);
  EXPECT_EQ(std::count(weights.begin(), weights.end(), kEvicted), 2);
  const auto saved = CheckpointOf(*subject.state);
  EXPECT_EQ(saved.size(), kind.checkpoint_header_bytes() + 171 * 8 + subject.state->bytes().committed);
  restored.Extend(Keys(200, 3));
  RunWeights(restored, 3, 9);  // what was there does not matter
  ASSERT_TRUE(restored.state->Restore(saved).ok());
  restored.naive = subject.naive;
  EXPECT_EQ(restored.state->earliest_rollback(), 171U);
  EXPECT_EQ(WeightsOf(restored), weights);
  EXPECT_EQ(CheckpointOf(*restored.state), saved);
  Subject child(kind, std::move(subject.state->Fork()).value(), subject.naive);
  for (Subject* each : {&subject, &restored, &child}) RunWeights(*each, 2, 20);
  EXPECT_NE(WeightsOf(subject), weights);
  EXPECT_EQ(WeightsOf(restored), WeightsOf(subject));
  EXPECT_EQ(WeightsOf(child), WeightsOf(subject));
  EXPECT_EQ(CheckpointOf(*restored.state), CheckpointOf(*subject.state));
  EXPECT_EQ(CheckpointOf(*child.state), CheckpointOf(*subject.state));
  RunWeights(child, 2, 30);
  EXPECT_NE(WeightsOf(child), WeightsOf(subject));
}

// A checkpoint of a sequence before its first sparse row goes into one after it, and the reverse.
TEST(Eviction, Restore_TakesOnWhetherItIsOver) {
  const StateKindUnderTest kind = Kind({.kv_heads = 1, .head_dim = 4}, DType::kBF16, kH2o);
  Subject dense(kind, 500), sparse(kind, 500);
  dense.Extend(Keys(64, 1));
  RunWeights(sparse, 64, 1);
  const auto of_dense = CheckpointOf(*dense.state), of_sparse = CheckpointOf(*sparse.state);
  ASSERT_TRUE(dense.state->Restore(of_sparse).ok());
  EXPECT_EQ(dense.state->earliest_rollback(), 64U);
  ASSERT_TRUE(sparse.state->Restore(of_dense).ok());
  EXPECT_EQ(sparse.state->earliest_rollback(), 0U);
  // The header's `earliest` is no part of the checksum.
  for (const auto* saved : {&of_dense, &of_sparse}) {
    for (const size_t earliest : {0, 1, 44, 64}) {
      auto changed = *saved;
      const uint64_t value = earliest;
      std::memcpy(changed.data() + 48, &value, sizeof(value));
      EXPECT_EQ(dense.state->Restore(changed).ok(), changed == *saved) << earliest;
    }
  }
}

TEST(Eviction, AnotherPolicysCheckpoint_IsRefused) {
  std::vector<std::unique_ptr<StateKindUnderTest>> kinds;
  for (const SparseKind form : {SparseKind::kSparq, SparseKind::kH2o, SparseKind::kWindow}) {
    kinds.push_back(std::make_unique<StateKindUnderTest>(
        Kind({.kv_heads = 1, .head_dim = 4}, DType::kBF16, {.kind = form, .r = 1, .k = 4, .local = 1})));
  }
  for (const auto& from : kinds) {
    Subject source(*from, 500);
    source.Extend(Keys(20, 1));
    for (const auto& to : kinds) {
      Subject target(*to, 500);
      const auto restored = target.state->Restore(CheckpointOf(*source.state));
      EXPECT_EQ(restored.ok(), from == to);
      if (!restored.ok()) {
        EXPECT_EQ(restored.error().code(), ErrorCode::kFailedPrecondition);
      }
    }
  }
}

}  // namespace
}  // namespace tidemill::sparse_kv_layer_test
