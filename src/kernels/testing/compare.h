// Comparing results of kernels: by bits, or within a bound that each element has of its own.
#ifndef TIDEMILL_KERNELS_TESTING_COMPARE_H_
#define TIDEMILL_KERNELS_TESTING_COMPARE_H_

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

namespace tidemill::testing {

// Prints the first place that differs. NaN equals NaN, whatever its payload.
inline ::testing::AssertionResult SameBits(std::span<const float> expected, std::span<const float> actual) {
  if (expected.size() != actual.size()) {
    return ::testing::AssertionFailure() << "expected " << expected.size() << " elements, got " << actual.size();
  }
  size_t differing = 0, first = 0;
  for (size_t i = expected.size(); i-- > 0;) {
    if (std::bit_cast<uint32_t>(expected[i]) == std::bit_cast<uint32_t>(actual[i])) continue;
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    ++differing;
    first = i;
  }
  if (differing == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << differing << " of " << expected.size() << " elements differ, the first at "
                                       << first << ": expected " << std::hexfloat << expected[first] << ", got "
                                       << actual[first];
}

// |actual - expected| <= bound(i) for every element.
template <typename Bound>
::testing::AssertionResult Within(std::span<const float> expected, std::span<const float> actual, const Bound& bound) {
  if (expected.size() != actual.size()) {
    return ::testing::AssertionFailure() << "expected " << expected.size() << " elements, got " << actual.size();
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    if (error <= bound(i)) continue;  // NaN fails
    return ::testing::AssertionFailure() << "element " << i << " of " << expected.size() << ": expected " << expected[i]
                                         << ", got " << actual[i] << ", error " << error << ", allowed " << bound(i);
  }
  return ::testing::AssertionSuccess();
}

// A kept hash, written as the test wants it when it differs.
inline ::testing::AssertionResult SameHash(uint64_t expected, uint64_t actual) {
  if (expected == actual) return ::testing::AssertionSuccess();
  char text[32];
  std::snprintf(text, sizeof(text), "0x%016llX", static_cast<unsigned long long>(actual));
  return ::testing::AssertionFailure() << "the bits changed: their hash is " << text;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_KERNELS_TESTING_COMPARE_H_
