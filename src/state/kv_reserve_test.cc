// What the policy `reserve` adds with somebody who commits pages ahead, and what short requests hold under every policy.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/page_committer.h"
#include "tests/support/kv_cache.h"
#include "tests/support/state_model.h"

namespace tidemill::kv_reserve_test {
namespace {

using testing::KvCache;
using testing::KvLayerOf;
using testing::KvShape;

using testing::CheckpointOf;

constexpr int kPopulateWrite = 23;
constexpr size_t kHeads = 2, kHeadDim = 64;

// What the system in the tests' place does. One test at a time.
std::atomic<int> populate_error{0};  // 0: as the system
std::atomic<size_t> own_populates{0};
std::thread::id own_thread;

int TestAdvise(void* start, size_t bytes, int advice) {
  if (advice == kPopulateWrite) {
    if (std::this_thread::get_id() == own_thread) own_populates.fetch_add(1);
    if (populate_error.load() != 0) {
      errno = populate_error.load();
      return -1;
    }
  }
  return SystemAdvise(start, bytes, advice);
}

KvShape Shape(KvPolicy policy, size_t increment, size_t max_length, PageCommitter* pages, size_t layers = 3) {
  return {.layers = std::vector<KvLayerShape>(layers, {kHeads, kHeadDim}),
          .dtype = DType::kF16,
          .growth = {.policy = policy, .increment = increment},
          .max_length = max_length,
          .pages = pages};
}

// Reserves, fills and commits n positions.
ErrorCode Extend(KvCache& cache, size_t n) {
  const Result<void> reserved = cache.Reserve(n);
  if (!reserved.ok()) return reserved.error().code();
  for (size_t l = 0; l < cache.num_layers(); ++l) {
    const KvLayer::StepRows rows = KvLayerOf(cache, l).View();
    for (size_t head = 0; head < kHeads; ++head) {
      for (std::byte* base : {rows.k, rows.v}) {
        for (size_t i = 0; i < n; ++i) {
          std::memset(base + (head * rows.head_stride + i * kHeadDim) * 2,
                      static_cast<int>((cache.length() + i + l + head) % 251), kHeadDim * 2);
        }
      }
    }
  }
  std::vector<RowKey> keys(n);
  std::iota(keys.begin(), keys.end(), cache.length());
  cache.Commit(keys);
  return static_cast<ErrorCode>(-1);
}
constexpr auto kFine = static_cast<ErrorCode>(-1);

class KvReserve : public ::testing::Test {
 protected:
  void SetUp() override {
    populate_error = 0;
    own_populates = 0;
    own_thread = std::this_thread::get_id();
  }
  std::unique_ptr<PageCommitter> pages_ = std::move(PageCommitter::Create(&TestAdvise)).value();
};

TEST_F(KvReserve, DecodeSteps_CommitNothingThemselves) {
  KvCache cache(Shape(KvPolicy::kReserve, 32, 4000, pages_.get())), plain(Shape(KvPolicy::kBmc, 256, 4000, nullptr));
  ASSERT_EQ(Extend(cache, 100), kFine);
  const size_t of_the_prompt = own_populates.load();
  EXPECT_GT(of_the_prompt, 0U);
  uint64_t max_ahead = 0;
  for (size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(Extend(cache, 1), kFine);
    max_ahead = std::max(max_ahead, cache.bytes().reserved - cache.bytes().committed);
  }
  EXPECT_EQ(own_populates.load(), of_the_prompt);
  EXPECT_EQ(max_ahead, 32 * 3 * 2 * kHeads * kHeadDim * 2U);
  EXPECT_EQ(cache.growth().bytes_copied, 0U);
  for (size_t i = 0; i < 11; ++i) ASSERT_EQ(Extend(plain, 100), kFine);
  EXPECT_EQ(CheckpointOf(cache), CheckpointOf(plain));
}

// No sooner than where its rows are needed, and nothing is lost.
TEST_F(KvReserve, ReserveWithoutPages_IsOutOfMemoryAndChangesNothing) {
  KvCache cache(Shape(KvPolicy::kReserve, 32, 4000, pages_.get()));
  ASSERT_EQ(Extend(cache, 100), kFine);  // and 32 more on their way
  for (const size_t rows : {size_t{1}, size_t{200}}) {
    populate_error = ENOMEM;
    size_t steps = 0;
    ErrorCode code = kFine;
    for (; steps < 100 && (code = Extend(cache, rows)) == kFine; ++steps) {
    }
    EXPECT_EQ(code, ErrorCode::kOutOfMemory);
    EXPECT_LE(steps, 32U);
    const size_t length = cache.length();
    const auto before = CheckpointOf(cache);
    for (int again = 0; again < 3; ++again) {
      const auto refused = cache.Reserve(rows);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
      EXPECT_EQ(cache.length(), length);
      EXPECT_EQ(CheckpointOf(cache), before);
    }
    EXPECT_EQ(KvCache(Shape(KvPolicy::kReserve, 32, 4000, pages_.get())).Reserve(1).error().code(),
              ErrorCode::kOutOfMemory);
    populate_error = 0;
    ASSERT_EQ(Extend(cache, rows), kFine);
    ASSERT_TRUE(cache.Rollback(length).ok());
    EXPECT_EQ(CheckpointOf(cache), before);
  }
  populate_error = ENOMEM;
  cache.Compact();
  EXPECT_EQ(cache.bytes().reserved, cache.bytes().committed);
  EXPECT_EQ(cache.Reserve(300).error().code(), ErrorCode::kOutOfMemory);
}

// Before Linux 5.14: pages come with the first write.
TEST_F(KvReserve, SystemWithoutTheCall_GrowsAsEver) {
  KvCache cache(Shape(KvPolicy::kReserve, 32, 4000, pages_.get())), plain(Shape(KvPolicy::kBmc, 256, 4000, nullptr));
  populate_error = EINVAL;
  for (const size_t rows : {100, 1, 1, 300, 1, 33}) {
    ASSERT_EQ(Extend(cache, rows), kFine);
    ASSERT_EQ(Extend(plain, rows), kFine);
  }
  EXPECT_EQ(CheckpointOf(cache), CheckpointOf(plain));
  EXPECT_EQ(cache.growth().bytes_copied, 0U);
}

// Whatever happens while pages are on their way.
TEST_F(KvReserve, StatesThatGoWhilePagesCome_LeaveNothingBehind) {
  for (int round = 0; round < 50; ++round) {
    KvCache cache(Shape(KvPolicy::kReserve, 512, 8000, pages_.get()));
    ASSERT_EQ(Extend(cache, 10), kFine);
    if (round % 5 == 1) cache.Clear();
    if (round % 5 == 2) cache.Compact();
    if (round % 5 == 3) {
      ASSERT_TRUE(cache.Rollback(3).ok());
    }
    const auto child = round % 5 == 4 ? std::move(cache.Fork()).value() : nullptr;
    ASSERT_EQ(Extend(cache, 700), kFine);
    if (round % 2 == 1) cache.Compact();
    ASSERT_EQ(Extend(cache, 1), kFine);
  }
}

// Pages of a layer's block that are resident. The block: K of all heads, then V.
size_t ResidentPages(KvLayer& layer) {
  const KvSpan span = layer.Context(0).back();
  const size_t page = 4096, bytes = 2 * kHeads * span.head_stride * 2;
  const auto begin = reinterpret_cast<uintptr_t>(span.k) / page * page;
  const auto end = RoundUp(reinterpret_cast<uintptr_t>(span.k) + bytes, uintptr_t{page});
  std::vector<unsigned char> pages((end - begin) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()), 0);
  return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; }));
}

// Large pages would make unused rows resident, with `always` unasked.
TEST(KvResidentMemory, ShortRequest_HoldsNoMoreInALongContext) {
  constexpr size_t kLayers = 8, kRows = 40;
  const auto pages = std::move(PageCommitter::Create()).value();
  const auto resident_of = [&](KvPolicy policy, size_t increment, size_t context) {
    KvCache cache(Shape(policy, std::min(increment, context), context, pages.get(), kLayers));
    EXPECT_EQ(Extend(cache, kRows - 5), kFine);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(Extend(cache, 1), kFine);
    size_t resident = 0;
    for (size_t l = 0; l < kLayers; ++l) resident += ResidentPages(KvLayerOf(cache, l));
    return resident * 4096;
  };
  for (const auto& [policy, increment] : std::vector<std::pair<KvPolicy, size_t>>{{KvPolicy::kReserve, 256},
                                                                                  {KvPolicy::kBmc, 256},
                                                                                  {KvPolicy::kBmc, 65536},
                                                                                  {KvPolicy::kGeometric, 1},
                                                                                  {KvPolicy::kPaged, 8192},
                                                                                  {KvPolicy::kUpfront, 1}}) {
    const size_t in_short = resident_of(policy, increment, 512), in_long = resident_of(policy, increment, 131072);
    EXPECT_LE(in_long, in_short + (size_t{1} << 20)) << KvPolicyName(policy) << ", increment " << increment;
  }
}

// Full extents have large pages, the others do not, and the rows are the same.
TEST(KvResidentMemory, LongRequest_KeepsItsRowsInLargePages) {
  static std::atomic<size_t> asked;
  asked = 0;
  const auto pages = std::move(PageCommitter::Create([](void* start, size_t bytes, int advice) {
                       asked += advice == MADV_HUGEPAGE ? bytes : 0;
                       return madvise(start, bytes, advice);
                     })).value();
  constexpr size_t kContext = 65536, kIncrement = 256;
  KvCache cache(Shape(KvPolicy::kReserve, kIncrement, kContext, pages.get(), 1));
  KvCache plain(Shape(KvPolicy::kUpfront, 1, kContext, nullptr, 1));
  while (cache.length() < 40000) {
    ASSERT_EQ(Extend(cache, 100), kFine);
    ASSERT_EQ(Extend(plain, 100), kFine);
  }
  EXPECT_EQ(CheckpointOf(cache), CheckpointOf(plain));
  EXPECT_GT(asked.load(), size_t{4} << 20);
  const size_t parts = 2 * kHeads, used = (40000 + kIncrement) * kHeadDim * 2;
  EXPECT_LE(ResidentPages(KvLayerOf(cache, 0)), parts * (used / 4096 + 2));
  ASSERT_TRUE(cache.Rollback(500).ok());
  cache.Compact();
  EXPECT_LE(ResidentPages(KvLayerOf(cache, 0)), parts * (500 * kHeadDim * 2 / 4096 + 2));
  ASSERT_EQ(Extend(cache, 1), kFine);
  EXPECT_LE(ResidentPages(KvLayerOf(cache, 0)), parts * ((500 + 2 * kIncrement) * kHeadDim * 2 / 4096 + 2));
}

}  // namespace
}  // namespace tidemill::kv_reserve_test
