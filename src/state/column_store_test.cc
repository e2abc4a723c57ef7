#include "state/column_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "tests/support/allocation_probe.h"

namespace tidemill::column_store_test {
namespace {

using testing::FailAllocations;

constexpr KvLayerShape kShape{.kv_heads = 2, .head_dim = 3};
constexpr size_t kSums = 4 * 2 * 3 * 8, kColumns = 2 * 3 * 256 * 4;  // bytes of a block

// Rows of F32 in a block of their own, that a store is filled from.
class Rows {
 public:
  static constexpr size_t kCapacity = 1200;

  explicit Rows(uint64_t seed) : random_(seed), k_(2 * kCapacity * 3), v_(k_.size()) { Change(0); }

  // Other rows from position `first` on.
  void Change(size_t first) {
    for (size_t head = 0; head < 2; ++head) {
      for (size_t i = first * 3; i < kCapacity * 3; ++i) {
        k_[head * kCapacity * 3 + i] = std::ldexp(static_cast<float>(random_() % 2000) - 1000, random_() % 90);
        v_[head * kCapacity * 3 + i] = std::ldexp(static_cast<float>(random_() % 2000) - 1000, random_() % 90);
      }
    }
  }
  KvSpan Span(size_t first, size_t end) const {
    return {.k = reinterpret_cast<const std::byte*>(k_.data() + first * 3),
            .v = reinterpret_cast<const std::byte*>(v_.data() + first * 3),
            .head_stride = kCapacity * 3,
            .first = first,
            .rows = end - first};
  }
  float key(size_t head, size_t position, size_t i) const { return k_[(head * kCapacity + position) * 3 + i]; }
  float value(size_t head, size_t position, size_t i) const { return v_[(head * kCapacity + position) * 3 + i]; }

 private:
  std::mt19937_64 random_;
  std::vector<float> k_, v_;
};

void Fill(ColumnStore& store, const Rows& rows, size_t committed, size_t cut) {
  ASSERT_TRUE(store.Reserve(committed, nullptr).ok());
  for (size_t head = 0; head < 2; ++head) {
    for (size_t at = 0; at < committed; at += cut) {
      store.FillRows(head, rows.Span(at, std::min(committed, at + cut)), committed);
    }
  }
  store.EndFill(committed);
}

// Whether a store has exactly what follows from the rows before `filled`, as the layout says.
void ExpectHas(const ColumnStore& store, const Rows& rows, size_t filled, size_t first_block = 0) {
  const ContextColumns view = store.View();
  ASSERT_EQ(view.filled, filled);
  if (filled == 0) {
    EXPECT_TRUE(view.blocks.empty());
    return;
  }
  ASSERT_EQ(view.first, first_block);
  ASSERT_EQ(view.blocks.size(), (filled + 255) / 256 - first_block);
  for (size_t head = 0; head < 2; ++head) {
    for (size_t i = 0; i < 3; ++i) {
      double before = 0;
      for (size_t first = 0; first < filled; first += 64) {
        double sum = 0;
        for (size_t r = first; r < first + 64; ++r) sum += static_cast<double>(rows.value(head, r, i));
        before += sum;
        if (first < first_block * 256) continue;
        const ColumnBlock& block = view.blocks[first / 256 - first_block];
        ASSERT_EQ(block.sums[(first % 256 / 64 * 2 + head) * 3 + i], before) << first;
        ASSERT_EQ(block.columns != nullptr, store.has_columns());
        for (size_t r = first; r < first + 64 && block.columns != nullptr; ++r) {
          const float* column = reinterpret_cast<const float*>(block.columns) + (head * 3 + i) * 256;
          ASSERT_EQ(column[r % 256], rows.key(head, r, i)) << r;
        }
      }
    }
  }
}

TEST(ColumnStore, SumsDependOnTheOrder) {  // else the tests below say little
  const Rows rows(1);
  size_t differ = 0;
  for (size_t i = 0; i < 3; ++i) {
    double granules = 0, plain = 0;
    for (size_t first = 0; first < 1024; first += 64) {
      double sum = 0;
      for (size_t r = first; r < first + 64; ++r) sum += static_cast<double>(rows.value(0, r, i));
      for (size_t r = first; r < first + 64; ++r) plain += static_cast<double>(rows.value(0, r, i));
      granules += sum;
      differ += granules != plain;
    }
  }
  EXPECT_GT(differ, 0U);
}

TEST(ColumnStore, AnyCutOfTheRows_GivesTheSame) {
  const Rows rows(1);
  for (const size_t cut : {1, 3, 64, 100, 256, 1200}) {
    for (const size_t step : {1, 63, 64, 65, 300, 1100}) {
      if (cut == 1 && step == 1) continue;
      ColumnStore store(kShape, DType::kF32, true, nullptr);
      for (size_t committed = 0; committed <= 1100; committed += step) Fill(store, rows, committed, cut);
      ExpectHas(store, rows, 1100 / step * step / 64 * 64);
    }
  }
}

TEST(ColumnStore, Rollback_ForgetsGranulesThatAreFilledAnew) {
  Rows rows(2);
  for (const size_t to : {0, 1, 63, 64, 100, 255, 256, 257, 320, 700, 768, 769}) {
    ColumnStore store(kShape, DType::kF32, true, nullptr);
    Fill(store, rows, 800, 1200);
    store.Rollback(to);
    ExpectHas(store, rows, to / 64 * 64);
    rows.Change(to);
    const uint64_t held = store.held_bytes();
    Fill(store, rows, 800, 1200);
    EXPECT_EQ(store.held_bytes(), held);
    ExpectHas(store, rows, 768);
  }
}

// Both sides go on with other rows, before and after a rollback, in either order.
TEST(ColumnStore, Forks_WriteOnlyWhatNobodyElseSees) {
  for (const bool child_first : {false, true}) {
    for (const size_t shared : {64, 256, 384, 600}) {
      for (const size_t to : {size_t{0}, size_t{128}, shared}) {
        Rows parents(3), childs = parents;
        StateLedger ledger;
        ColumnStore parent(kShape, DType::kF32, true, &ledger), child(kShape, DType::kF32, true, &ledger);
        Fill(parent, parents, shared, 1200);
        const uint64_t before = ledger.held();
        parent.PrepareFork(child);
        parent.Fork(child);
        EXPECT_EQ(ledger.held(), before);  // both see the same memory
        EXPECT_EQ(child.held_bytes(), before);
        child.Rollback(std::min(to, shared));
        parents.Change(shared);
        childs.Change(std::min(to, shared));
        const auto go_on = [](ColumnStore& store, const Rows& rows) {
          const uint64_t most = store.held_bytes() + store.GrowthBytes(900);
          Fill(store, rows, 900, 50);
          EXPECT_LE(store.held_bytes(), most);
        };
        if (child_first) go_on(child, childs);
        go_on(parent, parents);
        if (!child_first) go_on(child, childs);
        ExpectHas(parent, parents, 896);
        ExpectHas(child, childs, 896);
        std::map<const void*, uint64_t> all;
        for (const ColumnStore* store : {&parent, &child})
          store->ForEachBlock([&](const void* block, uint64_t bytes) { all[block] = bytes; });
        uint64_t sum = 0;
        for (const auto& [block, bytes] : all) sum += bytes;
        EXPECT_EQ(ledger.held(), sum);
        const size_t common = std::min(to, shared) / 256;  // blocks that both have to the end
        EXPECT_EQ(sum, (2 * 4 - common) * (kSums + kColumns)) << shared << " to " << to;
      }
    }
  }
}

TEST(ColumnStore, DroppedBlocks_LeaveTheGranuleBeforeWhatIsNeeded) {
  const Rows rows(4);
  ColumnStore store(kShape, DType::kF32, true, nullptr);
  Fill(store, rows, 1100, 1200);
  EXPECT_EQ(store.held_bytes(), 5 * (kSums + kColumns));
  store.DropBefore(256);  // the sums before it are in the first block
  ExpectHas(store, rows, 1088);
  store.DropBefore(257);
  ExpectHas(store, rows, 1088, 1);
  store.DropBefore(100);
  ExpectHas(store, rows, 1088, 1);
  store.DropBefore(100000);  // the next granule continues the last
  ExpectHas(store, rows, 1088, 4);
  EXPECT_EQ(store.held_bytes(), kSums + kColumns);
  Fill(store, rows, 1200, 1200);
  ExpectHas(store, rows, 1152, 4);
}

TEST(ColumnStore, BegunAtAGranule_GoesOnAsIfItHadAllRows) {
  const Rows rows(5);
  ColumnStore whole(kShape, DType::kF32, true, nullptr);
  Fill(whole, rows, 1100, 1200);
  for (const size_t first : {64, 192, 256, 320, 768, 1024}) {
    ColumnStore store(kShape, DType::kF32, true, nullptr);
    ASSERT_TRUE(store.Begin(first, whole.SumsBefore(first)).ok());
    EXPECT_EQ(store.filled(), first);
    ASSERT_TRUE(store.Reserve(1100, nullptr).ok());
    for (size_t head = 0; head < 2; ++head) store.FillRows(head, rows.Span(first, 1100), 1100);
    store.EndFill(1100);
    const ContextColumns found = store.View(), expected = whole.View();
    ASSERT_EQ(found.filled, expected.filled);
    for (size_t at = first - 64; at < 1088; at += 64) {
      const size_t entry = at % 256 / 64 * 6;
      for (size_t i = 0; i < 6; ++i) {
        ASSERT_EQ(found.blocks[at / 256 - found.first].sums[entry + i], expected.blocks[at / 256].sums[entry + i]);
        if (at < first) continue;
        const size_t offset = (i * 256 + at % 256) * 4;
        ASSERT_EQ(std::memcmp(found.blocks[at / 256 - found.first].columns + offset,
                              expected.blocks[at / 256].columns + offset, 64 * 4),
                  0);
      }
    }
  }
}

TEST(ColumnStore, Bytes_AreWhatGrowthSays) {
  StateLedger ledger;
  ColumnStore store(kShape, DType::kF32, true, &ledger), sums(kShape, DType::kF32, false, &ledger);
  EXPECT_EQ(store.GrowthBytes(63), 0U);
  EXPECT_EQ(store.GrowthBytes(64), kSums + kColumns);
  EXPECT_EQ(sums.GrowthBytes(257), kSums);
  EXPECT_EQ(sums.GrowthBytes(320), 2 * kSums);
  EXPECT_EQ(store.GrowthBytes(SIZE_MAX), UINT64_MAX);
  ASSERT_TRUE(store.Reserve(63, nullptr).ok());
  EXPECT_EQ(ledger.held(), 0U);
  ASSERT_TRUE(store.Reserve(600, nullptr).ok());
  EXPECT_EQ(ledger.held(), 3 * (kSums + kColumns));
  EXPECT_EQ(store.GrowthBytes(768), 0U);
  store.Trim();
  EXPECT_EQ(ledger.held(), 0U);
  const BlockBytes blocks = store.NewBlock(320);
  EXPECT_EQ(blocks.all, 2 * kColumns);
  EXPECT_EQ(blocks.used, 320 * 2 * 3 * 4U);
  EXPECT_EQ(sums.NewBlock(320).all, 0U);
  EXPECT_EQ(store.RestoredBlock(448, 600).all, 2 * kColumns);
  EXPECT_EQ(store.RestoredBlock(512, 600).all, kColumns);
}

// However few allocations there are: sums, or an error; and columns or none of them.
TEST(ColumnStore, WithoutMemory_GivesUpColumnsAndKeepsSums) {
  Rows rows(6);
  size_t gave_up = 0, refused = 0;
  for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
    for (const bool is_shared : {false, true}) {
      for (size_t n = 0; n < 40; ++n) {
        StateLedger ledger;
        ColumnStore store(kShape, DType::kF32, true, &ledger), other(kShape, DType::kF32, true, &ledger);
        Fill(store, rows, 400, 1200);
        if (is_shared) {
          store.PrepareFork(other);
          store.Fork(other);
        }
        bool reserved = false;
        {
          FailAllocations failure(n, count);
          try {
            reserved = store.Reserve(1000, nullptr).ok();
          } catch (const std::bad_alloc&) {
          }
        }
        ExpectHas(store, rows, 384);
        EXPECT_EQ(store.has_columns(), !store.gave_up());
        gave_up += store.gave_up();
        refused += !reserved;
        EXPECT_TRUE(reserved || !store.gave_up());
        Fill(store, rows, 1000, 1200);  // there is memory again
        ExpectHas(store, rows, 960);
        if (is_shared) ExpectHas(other, rows, 384);
        if (!store.has_columns()) {
          EXPECT_EQ(store.held_bytes(), 4 * kSums);
          ColumnStore child(kShape, DType::kF32, true, &ledger);
          store.PrepareFork(child);
          store.Fork(child);
          EXPECT_TRUE(child.gave_up());
          ExpectHas(child, rows, 960);
        }
      }
    }
  }
  EXPECT_GT(gave_up, 10U);
  EXPECT_GT(refused, 10U);
}

}  // namespace
}  // namespace tidemill::column_store_test
