// One integer for a token and its logit that sorts as tokens rank: larger logit first, of equal ones the lower id. The order
// is total, so a selection does not depend on the algorithm.
#ifndef TIDEMILL_DECODING_TOKEN_KEY_H_
#define TIDEMILL_DECODING_TOKEN_KEY_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tidemill {

// Ascending keys are descending logits, then ascending ids. Not NaN; id < 2^32. Without a branch: signs are random.
constexpr uint64_t TokenKey(float logit, size_t id) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 becomes +0: they are equal
  const uint32_t descending =
      bits ^ (((bits >> 31) - 1) >> 1);  // positive: all bits but the sign turned; negative: kept
  return uint64_t{descending} << 32 | id;
}

constexpr size_t IdOfKey(uint64_t key) { return static_cast<uint32_t>(key); }

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_TOKEN_KEY_H_
