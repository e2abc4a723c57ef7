#include "state/kv_growth.h"

#include <gtest/gtest.h>

namespace tidemill::kv_growth_test {
namespace {

size_t Capacity(KvPolicy policy, size_t rows, size_t most, size_t increment = 16, size_t expected = 0,
                size_t first = 0) {
  return KvGrowth{.policy = policy, .increment = increment, .expected = expected}.Capacity(first, rows, most);
}

TEST(KvGrowth, EveryPolicy_StaysBetweenWhatIsNeededAndWhatCanBe) {
  for (const KvPolicy policy : {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc, KvPolicy::kGeometric,
                                KvPolicy::kReserve, KvPolicy::kPaged}) {
    for (const size_t most : {size_t{1}, size_t{7}, size_t{64}, size_t{1000}, SIZE_MAX}) {
      for (const size_t rows :
           {size_t{0}, size_t{1}, size_t{6}, size_t{63}, size_t{64}, size_t{65}, size_t{999}, SIZE_MAX - 3}) {
        if (rows > most) continue;
        for (const size_t increment : {size_t{1}, size_t{3}, size_t{256}, SIZE_MAX}) {
          for (const size_t expected : {size_t{0}, size_t{1}, size_t{100}, SIZE_MAX}) {
            for (const size_t first : {size_t{0}, size_t{50}, size_t{500}}) {
              const size_t capacity = Capacity(policy, rows, most, increment, expected, first);
              EXPECT_GE(capacity, rows);
              EXPECT_LE(capacity, most);
            }
          }
        }
      }
    }
  }
}

TEST(KvGrowth, Policies_AreThoseOfThePaper) {
  EXPECT_EQ(Capacity(KvPolicy::kIterative, 37, 1000), 37U);
  EXPECT_EQ(Capacity(KvPolicy::kUpfront, 37, 1000), 1000U);
  EXPECT_EQ(Capacity(KvPolicy::kUpfront, 37, 1000, 16, 200), 200U);
  for (const size_t increment : {size_t{1}, size_t{3}, size_t{4}, size_t{16}}) {
    for (size_t rows = 1; rows <= 100; ++rows) {
      const size_t capacity = Capacity(KvPolicy::kBmc, rows, 1000, increment);
      EXPECT_EQ(capacity % increment, 0U);
      EXPECT_LT(capacity - rows, increment);
    }
  }
  EXPECT_EQ(Capacity(KvPolicy::kBmc, 95, 1000, 16, 100), 96U);
  EXPECT_EQ(Capacity(KvPolicy::kBmc, 97, 1000, 16, 100), 100U);   // no more than there will be
  EXPECT_EQ(Capacity(KvPolicy::kBmc, 101, 1000, 16, 100), 112U);  // more than was expected
  EXPECT_EQ(Capacity(KvPolicy::kBmc, 5, 1000, 16, 100, 90), 10U);
  EXPECT_EQ(Capacity(KvPolicy::kGeometric, 65, 1000), 128U);
  EXPECT_EQ(Capacity(KvPolicy::kGeometric, 128, 1000), 128U);
  EXPECT_EQ(Capacity(KvPolicy::kGeometric, 513, 1000), 1000U);
  EXPECT_EQ(Capacity(KvPolicy::kReserve, 5, 1000, 16, 100), 1000U);
}

}  // namespace
}  // namespace tidemill::kv_growth_test
