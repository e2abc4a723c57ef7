// Pairwise covering arrays: few rows of choices in which every pair of values of two factors occurs.
#ifndef TIDEMILL_TESTS_SUPPORT_BITS_COVERING_H_
#define TIDEMILL_TESTS_SUPPORT_BITS_COVERING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tidemill::testing {

// SplitMix64: the same numbers on every machine and with every standard library.
class BitsRandom {
 public:
  explicit BitsRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  size_t Below(size_t bound) { return static_cast<size_t>(Next() % bound); }  // in [0, bound)

 private:
  uint64_t state_;
};

struct ValuePair {
  size_t factor_a, value_a, factor_b, value_b;  // factor_a < factor_b
};

// False for two values that cannot stand in one row.
using PairRule = std::function<bool(const ValuePair&)>;

// Rows of one value for each factor; factor f has values [0, sizes[f]). Greedy with a seed: each row is the best of some
// candidates that grow from pairs still missing. Stops the program if a pair that `possible` allows fits into no row.
std::vector<std::vector<size_t>> CoverPairs(std::span<const size_t> sizes, const PairRule& possible, uint64_t seed);

// The possible pairs that no row has, counted from the rows alone.
std::vector<ValuePair> MissingPairs(std::span<const std::vector<size_t>> rows, std::span<const size_t> sizes,
                                    const PairRule& possible);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_BITS_COVERING_H_
