#include "tests/support/bits_covering.h"

#include <numeric>
#include <optional>

#include "base/check.h"

namespace tidemill::testing {
namespace {

using Row = std::vector<size_t>;
constexpr size_t kCandidates = 64;

bool Has(std::span<const size_t> row, const ValuePair& pair) {
  return row[pair.factor_a] == pair.value_a && row[pair.factor_b] == pair.value_b;
}

std::vector<ValuePair> PossiblePairs(std::span<const size_t> sizes, const PairRule& possible) {
  std::vector<ValuePair> pairs;
  for (size_t a = 0; a < sizes.size(); ++a) {
    for (size_t b = a + 1; b < sizes.size(); ++b) {
      for (size_t x = 0; x < sizes[a]; ++x) {
        for (size_t y = 0; y < sizes[b]; ++y) {
          if (const ValuePair pair{a, x, b, y}; possible(pair)) pairs.push_back(pair);
        }
      }
    }
  }
  return pairs;
}

template <typename T>
void Shuffle(std::vector<T>& items, BitsRandom& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.Below(i)]);
}

// A row that has `start`, each further factor set to the allowed value that covers most missing pairs with those set before.
std::optional<Row> Grow(const ValuePair& start, std::span<const size_t> sizes, const PairRule& possible,
                        const std::vector<ValuePair>& missing, BitsRandom& random) {
  constexpr size_t kUnset = ~size_t{0};
  Row row(sizes.size(), kUnset);
  row[start.factor_a] = start.value_a;
  row[start.factor_b] = start.value_b;
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Shuffle(order, random);
  for (const size_t factor : order) {
    if (row[factor] != kUnset) continue;
    std::vector<size_t> values(sizes[factor]);
    std::iota(values.begin(), values.end(), size_t{0});
    Shuffle(values, random);
    std::optional<size_t> best;
    size_t best_gain = 0;
    for (const size_t value : values) {
      bool allowed = true;
      for (size_t other = 0; other < sizes.size() && allowed; ++other) {
        if (row[other] == kUnset) continue;
        allowed = other < factor ? possible({other, row[other], factor, value})
                                 : possible({factor, value, other, row[other]});
      }
      if (!allowed) continue;
      row[factor] = value;
      size_t gain = 0;
      for (const ValuePair& pair : missing)
        gain += (pair.factor_a == factor || pair.factor_b == factor) && Has(row, pair);
      row[factor] = kUnset;
      if (!best.has_value() || gain > best_gain) {
        best = value;
        best_gain = gain;
      }
    }
    if (!best.has_value()) return std::nullopt;
    row[factor] = *best;
  }
  return row;
}

}  // namespace

uint64_t BitsRandom::Next() {
  state_ += 0x9E3779B97F4A7C15U;
  uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

std::vector<Row> CoverPairs(std::span<const size_t> sizes, const PairRule& possible, uint64_t seed) {
  BitsRandom random(seed);
  std::vector<Row> rows;
  std::vector<ValuePair> missing = PossiblePairs(sizes, possible);
  while (!missing.empty()) {
    std::optional<Row> best;
    size_t best_gain = 0;
    for (size_t candidate = 0; candidate < kCandidates; ++candidate) {
      const auto row = Grow(missing[random.Below(missing.size())], sizes, possible, missing, random);
      if (!row.has_value()) continue;
      size_t gain = 0;
      for (const ValuePair& pair : missing) gain += Has(*row, pair);
      if (gain > best_gain) {
        best = row;
        best_gain = gain;
      }
    }
    TIDEMILL_CHECK(best.has_value());
    std::erase_if(missing, [&](const ValuePair& pair) { return Has(*best, pair); });
    rows.push_back(*std::move(best));
  }
  return rows;
}

std::vector<ValuePair> MissingPairs(std::span<const Row> rows, std::span<const size_t> sizes,
                                    const PairRule& possible) {
  std::vector<ValuePair> pairs = PossiblePairs(sizes, possible);
  std::erase_if(pairs, [&](const ValuePair& pair) {
    for (const Row& row : rows) {
      if (Has(row, pair)) return true;
    }
    return false;
  });
  return pairs;
}

}  // namespace tidemill::testing
