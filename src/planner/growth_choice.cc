#include "planner/growth_choice.h"

#include <algorithm>
#include <limits>

#include "state/kv_growth.h"

namespace tidemill {
namespace {

size_t CeilDivide(size_t a, size_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

size_t ChooseGrowthIncrement(size_t positions, uint64_t row_bytes, uint64_t share) {
  const uint64_t rows = row_bytes == 0 ? UINT64_MAX : share / kIdlePart / row_bytes;
  size_t increment = positions;
  for (size_t blocks = 1; increment > 1 && increment > rows;) {
    blocks = blocks > positions / 2 ? positions : 2 * blocks;
    increment = CeilDivide(positions, blocks);
  }
  return increment;
}

size_t ChooseIncrement(KvPolicy policy, size_t positions, uint64_t row_bytes, uint64_t share) {
  if (policy == KvPolicy::kBmc) return ChooseGrowthIncrement(positions, row_bytes, share);
  return std::min(KvGrowth().increment, positions);
}

double RowsCopied(KvPolicy policy, size_t increment, size_t positions) {
  switch (policy) {
    case KvPolicy::kUpfront:
    case KvPolicy::kReserve:
    case KvPolicy::kPaged: return 0;
    case KvPolicy::kIterative: increment = 1; break;
    case KvPolicy::kBmc: break;
    case KvPolicy::kGeometric: {
      const KvGrowth growth{.policy = policy};
      double copied = 0;
      for (size_t rows = growth.Capacity(0, 1, positions); rows < positions;
           rows = growth.Capacity(0, rows + 1, positions)) {
        copied += static_cast<double>(rows);
      }
      return copied;
    }
  }
  const auto blocks = static_cast<double>(CeilDivide(positions, increment));
  return static_cast<double>(increment) * blocks * (blocks - 1) / 2;
}

double EarlyGrowth::Seconds(size_t length, size_t capacity, size_t rows) const {
  switch (growth.policy) {
    case KvPolicy::kUpfront:
    case KvPolicy::kPaged: return std::numeric_limits<double>::infinity();
    case KvPolicy::kReserve: return 0;
    case KvPolicy::kIterative:
    case KvPolicy::kBmc:
    case KvPolicy::kGeometric: break;
  }
  const size_t got = growth.Capacity(0, rows, most) - capacity;
  return row_seconds * static_cast<double>(length) * static_cast<double>(rows - capacity) / static_cast<double>(got);
}

size_t MaxIdleRows(KvPolicy policy, size_t increment, size_t positions) {
  switch (policy) {
    case KvPolicy::kIterative: return 0;
    case KvPolicy::kUpfront: return positions - 1;
    case KvPolicy::kBmc:
    case KvPolicy::kPaged: return std::min(increment, positions) - 1;
    case KvPolicy::kReserve: return std::min(increment, positions - 1);  // pages ahead of the row that needed some
    case KvPolicy::kGeometric: break;
  }
  const KvGrowth growth{.policy = policy};
  size_t most = 0;
  for (size_t rows = 0; rows < positions;) {
    const size_t capacity = growth.Capacity(0, rows + 1, positions);
    most = std::max(most, capacity - rows - 1);
    rows = capacity;
  }
  return most;
}

}  // namespace tidemill
