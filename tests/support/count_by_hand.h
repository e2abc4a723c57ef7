// How much a random test does, and with which seed it begins: little in CI, more by hand.
#ifndef TIDEMILL_TESTS_SUPPORT_COUNT_BY_HAND_H_
#define TIDEMILL_TESTS_SUPPORT_COUNT_BY_HAND_H_

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tidemill::testing {

// From an environment variable, else `otherwise`; where it is no number the test program ends.
inline uint64_t CountByHand(const char* variable, uint64_t otherwise) {
  const char* by_hand = std::getenv(variable);
  if (by_hand == nullptr) return otherwise;
  const std::string_view digits = by_hand;
  uint64_t count = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), count);
  if (error != std::errc() || end != digits.end()) {
    std::fprintf(stderr, "%s: expected a number, found \"%s\"\n", variable, by_hand);
    std::exit(1);
  }
  return count;
}

// Slices of a long run by hand begin with different ones.
inline uint64_t FirstSeed() { return CountByHand("TIDEMILL_SEED", 0); }

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_COUNT_BY_HAND_H_
