#include "base/checksum.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace tidemill::checksum_test {
namespace {

std::vector<std::byte> Ascending(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

// Made by another implementation of the formula: files hold these numbers.
TEST(Checksum, KnownBytes_HaveKnownSums) {
  EXPECT_EQ(Checksum({}), 0x0432B6E36E044211U);
  EXPECT_EQ(Checksum(std::as_bytes(std::span(std::string_view("a")))), 0xBCA4E6B657B29791U);
  EXPECT_EQ(Checksum(Ascending(100)), 0xDDC69E215E2ED35BU);
}

TEST(Checksum, EveryBit_Matters) {
  for (const size_t count : {1, 7, 8, 9, 31, 32, 33, 100}) {
    std::vector<std::byte> bytes = Ascending(count);
    const uint64_t sum = Checksum(bytes);
    for (size_t bit = 0; bit < count * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      EXPECT_NE(Checksum(bytes), sum) << "bit " << bit << " of " << count << " bytes";
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
  }
}

TEST(Checksum, WordsThatChangePlaces_ChangeTheSum) {
  const std::vector<std::byte> bytes = Ascending(64);
  const uint64_t sum = Checksum(bytes);
  for (size_t a = 0; a < 8; ++a) {
    for (size_t b = 0; b < a; ++b) {
      std::vector<std::byte> swapped = bytes;
      for (size_t i = 0; i < 8; ++i) std::swap(swapped[a * 8 + i], swapped[b * 8 + i]);
      EXPECT_NE(Checksum(swapped), sum) << "words " << a << " and " << b;
    }
  }
}

}  // namespace
}  // namespace tidemill::checksum_test
