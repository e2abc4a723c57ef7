// A block of Q8_0 as tensor/dtype.h lays it out, for code that works on these blocks alone. No alignment is needed.
#ifndef TIDEMILL_TENSOR_Q8_BLOCK_H_
#define TIDEMILL_TENSOR_Q8_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace tidemill {

struct Q8Block {
  static constexpr size_t kElements = 32;

  uint8_t half[2];  // d
  int8_t q[kElements];

  uint16_t d() const {
    uint16_t bits;
    std::memcpy(&bits, half, sizeof(bits));
    return bits;
  }
  void set_d(uint16_t bits) { std::memcpy(half, &bits, sizeof(bits)); }
};
static_assert(sizeof(Q8Block) == InfoOf(DType::kQ8_0).block_bytes && alignof(Q8Block) == 1);
static_assert(Q8Block::kElements == InfoOf(DType::kQ8_0).block_elements);

}  // namespace tidemill

#endif  // TIDEMILL_TENSOR_Q8_BLOCK_H_
