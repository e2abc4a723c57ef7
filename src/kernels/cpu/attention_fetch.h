// How attention brings keys and values from memory while it multiplies others.
#ifndef TIDEMILL_KERNELS_CPU_ATTENTION_FETCH_H_
#define TIDEMILL_KERNELS_CPU_ATTENTION_FETCH_H_

#include <cstddef>
#include <cstdint>

#include "hwy/base.h"
#include "kernels/cpu/fetch.h"

namespace tidemill {

enum class FetchWay { kBehind, kBehindPastL2, kNext };

// Each class has, as far as it is used, a constructor and three calls. The constructor takes what is read behind the keys or values in hand,
// its bytes, and the products of registers that are made of those in hand. BeginKeys is called as keys are begun, all their rows at once.
// Keys is called before `products` of them, with the lines of memory beside them that nobody has asked for yet. Values is called before
// `products` of `bytes` bytes of a value.

// What is there already.
struct FetchNothing {
  HWY_INLINE void Values(const void*, size_t, size_t) {}
};

// What follows behind the keys or values that are read, some KiB ahead: one stream.
template <int kLocality, size_t kKeysAhead, size_t kValuesAhead>
class FetchBehind {
 public:
  HWY_INLINE FetchBehind(const std::byte* /*next*/, size_t /*bytes*/, size_t /*products*/) {}
  HWY_INLINE explicit FetchBehind(const uint8_t* at) : at_(at) {}  // as Ahead says

  // Of `bytes` bytes of keys that are begun at k.
  static HWY_INLINE const uint8_t* Ahead(const void* k, size_t bytes) {
    return static_cast<const uint8_t*>(k) + HWY_MAX(kKeysAhead, bytes);
  }
  HWY_INLINE void BeginKeys(const void* k, size_t bytes) { at_ = Ahead(k, bytes); }
  HWY_INLINE void Keys(size_t lines, size_t /*products*/) {
    for (; lines != 0; --lines, at_ += 64) __builtin_prefetch(at_, 0, kLocality);
  }
  HWY_INLINE void Values(const void* value, size_t bytes, size_t /*products*/) {
    for (size_t i = 0; i < bytes; i += 64)
      __builtin_prefetch(static_cast<const uint8_t*>(value) + kValuesAhead + i, 0, kLocality);
  }

 private:
  const uint8_t* at_ = nullptr;
};

// What is read next, as much as is read now and, shares being rounded up, a little more: its two halves side by side, evenly over the
// products. Most lines are asked for several times: once each lost (attention_row.cc).
class FetchNext {
 public:
  HWY_INLINE FetchNext(const std::byte* next, size_t bytes, size_t products)
      : at_(reinterpret_cast<const uint8_t*>(next)), half_(bytes / 2), share_((64 * half_ + products - 1) / products) {}

  HWY_INLINE void BeginKeys(const void*, size_t) {}
  HWY_INLINE void Keys(size_t /*lines*/, size_t products) { Fetch(products); }
  HWY_INLINE void Values(const void*, size_t, size_t products) { Fetch(products); }

 private:
  HWY_INLINE void Fetch(size_t products) {
    const size_t bytes = (share_ * products + 63) / 64;
    for (size_t i = 0; i < bytes; i += 64) {
      __builtin_prefetch(at_ + i, 0, kIntoL2);
      __builtin_prefetch(at_ + half_ + i, 0, kIntoL2);
    }
    at_ += bytes;
  }

  const uint8_t* at_;
  size_t half_, share_;  // share_: of a product, in 64ths of a byte of each half
};

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_ATTENTION_FETCH_H_
