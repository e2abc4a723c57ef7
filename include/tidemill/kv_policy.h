// How far ahead of a sequence its key/value cache is allocated. No policy changes an answer, only its cost in time and memory.
#ifndef TIDEMILL_KV_POLICY_H_
#define TIDEMILL_KV_POLICY_H_

#include <cstdint>
#include <string_view>

#include "tidemill/result.h"

namespace tidemill {

enum class KvPolicy : uint8_t {
  kIterative,  // a new buffer and a copy of everything at each step, as frameworks do that append by concatenation
  kUpfront,    // all rows that the request may need, at once
  kBmc,        // the next multiple of a period of rows, copied into a larger buffer when it is full
  kGeometric,  // the next power of two of rows
  kReserve,    // addresses for all rows at once, memory a period ahead; nothing is copied
  kPaged,      // blocks of a period of rows that stay where they are
};

// "iterative", "upfront", "bmc", "geometric", "reserve", "paged"; kInvalidArgument lists them.
Result<KvPolicy> ParseKvPolicy(std::string_view name);
std::string_view KvPolicyName(KvPolicy policy);

}  // namespace tidemill

#endif  // TIDEMILL_KV_POLICY_H_
