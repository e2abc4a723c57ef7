#include "formats/name_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>

namespace tidemill::name_order_test {
namespace {

using ::testing::ElementsAre;

NameOrder Order(const std::vector<std::string>& names) {
  return OrderByName(names.size(), [&](uint32_t i) { return std::string_view(names[i]); });
}

TEST(NameOrder, Names_AreSortedByTheirBytes) {
  EXPECT_THAT(Order({}).order, ElementsAre());
  EXPECT_THAT(Order({"a"}).order, ElementsAre(0));
  EXPECT_THAT(Order({"b", "a", "ab", "\xC3\xA4", ""}).order, ElementsAre(4, 1, 2, 0, 3));
  EXPECT_THAT(Order({"layers.10", "layers.1", "layers.1.", "layers.9", "layers."}).order, ElementsAre(4, 1, 2, 0, 3));
  EXPECT_FALSE(Order({"12345678", "123456789", "1234567"}).twins.has_value());
}

TEST(NameOrder, Twins_AreTheFirstOfTheFirstName) {
  const auto order = Order({"12345678", "z", "b", "12345678", "b", "12345678", "z"});
  ASSERT_TRUE(order.twins.has_value());
  EXPECT_EQ(*order.twins, std::pair(0u, 3u));
  EXPECT_THAT(order.order, ElementsAre(0, 3, 5, 2, 4, 1, 6));
  EXPECT_EQ(*Order({"", "a", ""}).twins, std::pair(0u, 2u));
}

TEST(NameOrder, RandomNames_AreSortedAsBySort) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> names(random() % 60);
    for (std::string& name : names) {
      name.assign(random() % 3 * 8, 'x');  // many agree in their first words
      for (size_t n = random() % 12; n > 0; --n) name += static_cast<char>(1 + random() % (round % 2 == 0 ? 2 : 255));
    }
    std::vector<uint32_t> expected(names.size());
    std::iota(expected.begin(), expected.end(), 0u);
    std::stable_sort(expected.begin(), expected.end(), [&](uint32_t a, uint32_t b) { return names[a] < names[b]; });
    const NameOrder order = Order(names);
    ASSERT_EQ(order.order, expected) << "round " << round;
    const auto twin = std::adjacent_find(expected.begin(), expected.end(),
                                         [&](uint32_t a, uint32_t b) { return names[a] == names[b]; });
    ASSERT_EQ(order.twins.has_value(), twin != expected.end()) << "round " << round;
    if (order.twins) {
      ASSERT_EQ(*order.twins, std::pair(twin[0], twin[1])) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace tidemill::name_order_test
