// What a test of drawn cases has met, in one line.
#ifndef TIDEMILL_TESTS_SUPPORT_PRINT_COUNTS_H_
#define TIDEMILL_TESTS_SUPPORT_PRINT_COUNTS_H_

#include <cstddef>
#include <cstdio>
#include <map>
#include <type_traits>

namespace tidemill::testing {

// Keys are numbers or strings.
template <typename Key>
void PrintCounts(const char* what, const std::map<Key, size_t>& counts) {
  std::printf("  %s:", what);
  for (const auto& [key, count] : counts) {
    if constexpr (std::is_same_v<Key, size_t>) {
      std::printf(" %zu: %zu", key, count);
    } else {
      std::printf(" %s: %zu;", key.c_str(), count);
    }
  }
  std::printf("\n");
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_PRINT_COUNTS_H_
