// What is the KV cache's own: growth, where rows lie, the bytes of its checkpoint, and calls that are bugs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/kv_cache.h"
#include "tests/support/state_kinds.h"
#include "tests/support/state_model.h"

namespace tidemill::kv_cache_test {
namespace {

using testing::CheckpointOf;
using testing::KvCache;
using testing::KvLayerOf;
using testing::KvShape;

constexpr size_t kLayers = 2;
constexpr KvLayerShape kLayer{.kv_heads = 3, .head_dim = 4};
const KvShape kShape{.layers = std::vector<KvLayerShape>(kLayers, kLayer),
                     .dtype = DType::kF16,
                     .max_length = 1000,
                     .model = 5,
                     .numeric_class = 6};
constexpr size_t kRowBytes = 8, kPositionBytes = 48;  // of kLayer

std::vector<RowKey> Keys(size_t n, RowKey first = 1) {
  std::vector<RowKey> keys(n);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

// Byte `i` of a head's row of K or V at `position` of a layer.
std::byte RowByte(size_t layer, bool value, size_t head, size_t position, size_t i) {
  return static_cast<std::byte>((layer * 131 + (value ? 67 : 0) + head * 29 + position * 7 + i) % 251);
}

// Reserves, fills and commits n positions.
void Extend(SequenceState& cache, size_t n) {
  ASSERT_TRUE(cache.Reserve(n).ok());
  const size_t element = InfoOf(kShape.dtype).block_bytes;
  for (size_t l = 0; l < kLayers; ++l) {
    const KvLayer::StepRows rows = KvLayerOf(cache, l).View();
    for (size_t head = 0; head < kLayer.kv_heads; ++head) {
      for (size_t r = 0; r < n; ++r) {
        for (size_t i = 0; i < kRowBytes; ++i) {
          const size_t at = (head * rows.head_stride + r * kLayer.head_dim) * element + i;
          rows.k[at] = RowByte(l, false, head, cache.length() + r, i);
          rows.v[at] = RowByte(l, true, head, cache.length() + r, i);
        }
      }
    }
  }
  cache.Commit(Keys(n, cache.length() + 1));
}

uint64_t RowsReserved(const SequenceState& cache) { return cache.bytes().reserved / (kLayers * kPositionBytes); }

TEST(KvCache, Growth_ComesInChunksUpToTheContext) {
  KvCache cache(kShape);
  EXPECT_EQ(RowsReserved(cache), 0U);
  for (const auto& [length, rows] : std::vector<std::pair<size_t, size_t>>{
           {1, 256}, {256, 256}, {257, 512}, {513, 768}, {769, 1000}, {1000, 1000}}) {
    Extend(cache, length - cache.length());
    EXPECT_EQ(RowsReserved(cache), rows) << length;
    EXPECT_EQ(cache.bytes().committed, length * kLayers * kPositionBytes);
    EXPECT_EQ(cache.bytes().read_per_token, cache.bytes().committed);
  }
  EXPECT_TRUE(cache.Reserve(0).ok());
  EXPECT_EQ(cache.Reserve(1).error().code(), ErrorCode::kContextFull);
}

// What a scheduler counts with; the scripts of state_script_test hold the bound for every kind and every history.
TEST(KvCache, GrowthBytes_IsWhatReserveTakes) {
  for (const KvPolicy policy : {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc, KvPolicy::kGeometric,
                                KvPolicy::kReserve, KvPolicy::kPaged}) {
    KvShape shape = kShape;
    shape.growth = {.policy = policy, .increment = 16, .expected = 200};
    KvCache cache(shape);
    size_t grown = 0;
    for (const size_t step : {1, 14, 1, 1, 40, 143, 1, 300, 499}) {
      const uint64_t before = cache.bytes().reserved, growth = cache.GrowthBytes(step);
      EXPECT_EQ(cache.HasRoom(step), policy == KvPolicy::kReserve ? cache.length() != 0 : growth == 0);
      Extend(cache, step);
      if (policy != KvPolicy::kPaged && cache.length() <= shape.growth.expected) {
        EXPECT_LE(RowsReserved(cache), shape.growth.expected) << KvPolicyName(policy) << ": none that is not expected";
      }
      EXPECT_EQ(cache.bytes().reserved, before + growth) << KvPolicyName(policy) << ", " << cache.length();
      EXPECT_EQ(cache.GrowthBytes(0), 0U);
      grown += growth != 0;
    }
    EXPECT_EQ(cache.length(), shape.max_length);
    EXPECT_GE(grown, 2U) << KvPolicyName(policy);
    cache.Clear();
    EXPECT_EQ(cache.bytes().reserved, 0U);
    EXPECT_EQ(cache.length(), 0U);
  }
}

// Layers with a window do not keep a prompt that comes in parts.
TEST(KvCache, GrowthBytes_OfStepsAreAsMuchAsTheyTakeAndNoMoreThanAtOnce) {
  for (const size_t window : {0, 1, 100, 3000, 6000}) {
    for (const size_t step : {1, 64, 700}) {
      KvShape shape = kShape;
      shape.max_length = 6000;
      shape.draft_rows = 8;
      shape.layers = {kLayer, kLayer};
      shape.layers[1].window = window;
      KvCache cache(shape);
      for (const size_t part : {size_t{50}, size_t{5000}}) {
        const uint64_t promised = cache.bytes().reserved + cache.GrowthBytes(part, step);
        EXPECT_LE(cache.GrowthBytes(part, step), cache.GrowthBytes(part));
        uint64_t most = 0;
        for (size_t left = part; left != 0; left -= std::min(left, step)) {
          Extend(cache, std::min(left, step));
          most = std::max(most, cache.bytes().reserved);
        }
        EXPECT_LE(most, promised) << "window " << window << ", step " << step;
        if (part == 5000 && (window == 1 || window == 100)) {  // the other layer has 5120 rows, whole increments
          EXPECT_LE(promised / kPositionBytes, 5120 + window + 2 * shape.draft_rows + step + 2 * KvLayer::kGrowthRows);
        }
      }
    }
  }
}

TEST(KvCache, GrowthBytes_BeyondAnyMemoryAreAllThereCanBe) {
  KvShape shape = kShape;
  shape.max_length = ~size_t{0};
  shape.growth = {.policy = KvPolicy::kUpfront};
  EXPECT_EQ(KvCache(shape).GrowthBytes(1), UINT64_MAX);
}

TEST(KvCache, Blocks_TakeTheirBytes) {
  KvShape shape = kShape;
  shape.dtype = DType::kQ8_0;
  shape.layers = {{.kv_heads = 3, .head_dim = 64}, {.kv_heads = 1, .head_dim = 32}};
  constexpr size_t kBytes = 2 * (3 * 2 + 1) * 34;  // of a position
  KvCache cache(shape);
  ASSERT_TRUE(cache.Reserve(5).ok());
  cache.Commit(Keys(5));
  EXPECT_EQ(cache.bytes().reserved, 256 * kBytes);
  EXPECT_EQ(cache.bytes().committed, 5 * kBytes);
  EXPECT_EQ(cache.bytes().read_per_token, 5 * kBytes);
  auto& layer = KvLayerOf(cache, 0);
  const KvSpan span = layer.Context(0).front();
  EXPECT_EQ(layer.View().head_stride, 256 * 64U);
  EXPECT_EQ(layer.View().k, span.k + 5 * 2 * 34);
  EXPECT_EQ(span.v, span.k + 3 * 256 * 2 * 34);
}

TEST(KvCache, StepRows_AreAlignedAndContiguous) {
  KvCache cache(kShape);
  Extend(cache, 3);
  ASSERT_TRUE(cache.Reserve(2).ok());
  for (size_t l = 0; l < kLayers; ++l) {
    auto& layer = KvLayerOf(cache, l);
    EXPECT_EQ(layer.dtype(), DType::kF16);
    const auto context = layer.Context(2);
    ASSERT_EQ(context.size(), 1U);
    EXPECT_EQ(context[0].first, 0U);
    EXPECT_EQ(context[0].rows, 5U);
    EXPECT_EQ(context[0].head_stride, 256 * kLayer.head_dim);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(context[0].k) % AlignedBuffer::kAlignment, 0U);
    const KvLayer::StepRows rows = layer.View();
    EXPECT_EQ(rows.k, context[0].k + 3 * kRowBytes);
    EXPECT_EQ(rows.v, context[0].v + 3 * kRowBytes);
    EXPECT_EQ(rows.head_stride, context[0].head_stride);
  }
}

TEST(KvCache, Compact_LeavesWhatIsCommitted) {
  KvCache cache(kShape);
  Extend(cache, 300);
  cache.Compact();
  EXPECT_EQ(cache.bytes().reserved, cache.bytes().committed);
  ASSERT_TRUE(cache.Rollback(17).ok());
  EXPECT_EQ(RowsReserved(cache), 256U);  // of two blocks the first
  cache.Compact();
  EXPECT_EQ(RowsReserved(cache), 17U);
  ASSERT_TRUE(cache.Rollback(0).ok());
  cache.Compact();
  EXPECT_EQ(cache.bytes().reserved, 0U);
  Extend(cache, 1);
  EXPECT_EQ(RowsReserved(cache), 256U);
}

TEST(KvCache, Fork_SharesRowsAndCopiesNone) {
  KvCache cache(kShape);
  Extend(cache, 10);
  const auto child = std::move(cache.Fork()).value();
  SequenceState& theirs = *child;
  for (size_t l = 0; l < kLayers; ++l) {
    const auto a = KvLayerOf(cache, l).Context(0), b = KvLayerOf(theirs, l).Context(0);
    ASSERT_EQ(a.size(), 1U);
    ASSERT_EQ(b.size(), 1U);
    EXPECT_EQ(a[0].k, b[0].k);
    EXPECT_EQ(a[0].rows, 10U);
  }
  EXPECT_EQ(RowsReserved(cache), 256U);
  Extend(cache, 1);
  Extend(theirs, 1);
  EXPECT_EQ(KvLayerOf(cache, 0).Context(0).size(), 1U);  // behind the rows that both see
  EXPECT_EQ(KvLayerOf(theirs, 0).Context(0).size(), 2U);
  EXPECT_EQ(RowsReserved(cache), 256U);
  EXPECT_EQ(RowsReserved(theirs), 256U + 4);
  // A fork of the fork without a step between adds no span.
  const auto grandchild = std::move(theirs.Fork()).value();
  const auto again = std::move(theirs.Fork()).value();
  EXPECT_EQ(KvLayerOf(*again, 0).Context(0).size(), 2U);
}

// The layout that sequence_state.h describes, written once more.
TEST(KvCache, Checkpoint_HasTheBytesOfItsLayout) {
  KvCache cache(kShape);
  Extend(cache, 2);
  const auto child = std::move(cache.Fork()).value();
  Extend(cache, 3);
  std::string expected = "TMKVCP02";
  const auto put = [&expected](auto value) { expected.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  for (const uint64_t value : {uint64_t{5}, uint64_t{6}, cache.identity().tokens}) put(value);
  uint64_t shape = ChainTokenHash(1, 64);                                                // F16 is 1, draft_rows
  for (const uint64_t value : {3, 4, 0, 3, 4, 0}) shape = ChainTokenHash(shape, value);  // kv_heads, head_dim, window
  put(shape);
  put(uint64_t{5});
  put(uint64_t{0});  // nothing is forgotten: back to the beginning
  put(uint64_t{0});  // the checksum, compared by Restore alone
  for (uint64_t key = 1; key <= 5; ++key) put(key);
  for (size_t l = 0; l < 2; ++l) {
    for (const bool value : {false, true}) {
      for (size_t head = 0; head < 3; ++head) {
        for (size_t position = 0; position < 5; ++position) {
          for (size_t i = 0; i < kRowBytes; ++i) put(RowByte(l, value, head, position, i));
        }
      }
    }
  }
  auto found = CheckpointOf(cache);
  ASSERT_EQ(found.size(), expected.size());
  std::fill_n(found.begin() + KvCache::kCheckpointHeaderBytes - 8, 8, std::byte{0});
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), expected.size()), 0);
}

// The checksum is part of the format: checkpoints may outlive the program. The value was computed apart from the code.
TEST(KvCache, ChecksumOfACheckpoint_IsPinned) {
  KvCache cache(kShape);
  Extend(cache, 5);
  uint64_t checksum = 0;
  std::memcpy(&checksum, CheckpointOf(cache).data() + KvCache::kCheckpointHeaderBytes - 8, 8);
  EXPECT_EQ(checksum, 0x9462BE861A7D61E6U);
}

// Blocks so large that they are mappings, which no address space holds.
TEST(KvCache, BlockThatCannotBeMapped_IsOutOfMemory) {
  KvCache cache({.layers = {{1U << 14, 1U << 24}, {1U << 14, 1U << 24}}, .dtype = DType::kF32, .max_length = 1000});
  for (int again = 0; again < 2; ++again) {
    const auto reserved = cache.Reserve(1);
    ASSERT_FALSE(reserved.ok());
    EXPECT_EQ(reserved.error().code(), ErrorCode::kOutOfMemory);
    EXPECT_EQ(cache.bytes().reserved, 0U);
    EXPECT_EQ(cache.length(), 0U);
  }
}

TEST(KvCache, BlockWhoseSizeWraps_IsOutOfMemory) {
  KvCache cache({.layers = {{size_t{1} << 30, size_t{1} << 30}}, .dtype = DType::kF16, .max_length = 1000});
  EXPECT_EQ(cache.Reserve(1).error().code(), ErrorCode::kOutOfMemory);
}

// Addresses for so many positions are nowhere.
TEST(KvCache, ReserveWithoutAddresses_GrowsGeometrically) {
  const auto cache_of = [](size_t max_length) {
    return KvCache({.layers = {{2, 8}, {1, 16}},
                    .dtype = DType::kF16,
                    .growth = {.policy = KvPolicy::kReserve, .increment = 32},
                    .max_length = max_length});
  };
  const std::vector<RowKey> keys(140, 1);
  KvCache absurd = cache_of(size_t{1} << 50), usual = cache_of(10000);
  for (KvCache* cache : {&absurd, &usual}) {
    for (size_t i = 0; i < 5; ++i) {
      const uint64_t before = cache->bytes().reserved, promised = cache->GrowthBytes(keys.size());
      ASSERT_TRUE(cache->Reserve(keys.size()).ok());
      EXPECT_LE(cache->bytes().reserved - before, promised);
      cache->Commit(keys);
    }
  }
  EXPECT_TRUE(absurd.growth().fell_back);
  EXPECT_EQ(absurd.growth().growths, 2 * 3U);  // 160, 512 and 1024 rows
  EXPECT_EQ(absurd.bytes().reserved, 1024 * 2 * (2 * 8 + 16) * 2U);
  EXPECT_FALSE(usual.growth().fell_back);
  EXPECT_EQ(usual.growth().bytes_copied, 0U);
  EXPECT_EQ(usual.growth().growths, 2 * 5U);
  EXPECT_EQ(usual.bytes().reserved, (700 + 32) * 2 * (2 * 8 + 16) * 2U);
}

TEST(KvCacheDeathTest, CallsThatAreBugs_StopTheProgram) {
  const auto exits = ::testing::ExitedWithCode(70);
  const char* message = "internal check failed";
  const auto keys = Keys(3);
  KvCache cache(kShape);
  EXPECT_EXIT(cache.Commit(keys), exits, message);
  Extend(cache, 255);
  EXPECT_EXIT(cache.Commit(keys), exits, message);
  ASSERT_TRUE(cache.Reserve(1).ok());
  EXPECT_EXIT(cache.CommitPath(std::vector<uint32_t>{1}, std::span(keys).first(1)), exits, message);
  ASSERT_TRUE(cache.Reserve(9).ok());
  EXPECT_EXIT(cache.CommitPath(std::vector<uint32_t>{0, 2, 2}, keys), exits, message);
  EXPECT_EXIT(cache.CommitPath(std::vector<uint32_t>{0, 3, 2}, keys), exits, message);
  EXPECT_EXIT(cache.CommitPath(std::vector<uint32_t>{0, 1}, keys), exits, message);
}

}  // namespace
}  // namespace tidemill::kv_cache_test
