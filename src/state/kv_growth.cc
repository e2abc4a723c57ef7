#include "state/kv_growth.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/checked_math.h"

namespace tidemill {

size_t KvGrowth::Capacity(size_t first, size_t rows, size_t most) const {
  if (policy == KvPolicy::kReserve) return most;  // addresses cost nothing
  const size_t left = expected == 0 ? most : expected - std::min(expected, first);
  const bool as_expected = left >= rows;
  const size_t all = as_expected ? std::min(left, most) : most;
  if (policy == KvPolicy::kUpfront && as_expected) return all;
  switch (policy) {
    case KvPolicy::kIterative: return rows;
    case KvPolicy::kGeometric: {
      constexpr size_t kFewest = 64;
      const size_t wanted = std::max(rows, kFewest);
      return wanted > all / 2 ? all : std::bit_ceil(wanted);
    }
    case KvPolicy::kBmc:
    case KvPolicy::kUpfront:
    case KvPolicy::kPaged: {
      const size_t wanted = std::max<size_t>(rows, 1);
      return increment > SIZE_MAX - wanted ? all : std::min(all, RoundUp(wanted, increment));
    }
    case KvPolicy::kReserve: break;
  }
  return all;
}

Result<KvPolicy> ParseKvPolicy(std::string_view name) {
  for (const KvPolicy policy : {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc, KvPolicy::kGeometric,
                                KvPolicy::kReserve, KvPolicy::kPaged}) {
    if (KvPolicyName(policy) == name) return policy;
  }
  return Error(ErrorCode::kInvalidArgument, "choose KV policy: '" + std::string(name) +
                                                "': expected iterative, upfront, bmc, geometric, reserve or paged");
}

std::string_view KvPolicyName(KvPolicy policy) {
  switch (policy) {
    case KvPolicy::kIterative: return "iterative";
    case KvPolicy::kUpfront: return "upfront";
    case KvPolicy::kBmc: return "bmc";
    case KvPolicy::kGeometric: return "geometric";
    case KvPolicy::kReserve: return "reserve";
    case KvPolicy::kPaged: return "paged";
  }
  return "unknown";
}

}  // namespace tidemill
