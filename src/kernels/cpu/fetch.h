// How kernels bring memory ahead of its use.
#ifndef TIDEMILL_KERNELS_CPU_FETCH_H_
#define TIDEMILL_KERNELS_CPU_FETCH_H_

#include <cstddef>

namespace tidemill {

// As __builtin_prefetch counts: PREFETCHT0, PREFETCHT1 and PREFETCHNTA.
inline constexpr int kIntoL1 = 3, kIntoL2 = 2, kPastL2 = 0;

// The lines of the `bytes` bytes that begin at `at`, at most nine.
template <int kLocality, size_t bytes>
[[gnu::always_inline]] inline void FetchLines(const unsigned char* at) {
#pragma GCC unroll 9
  for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line, 0, kLocality);
}

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_FETCH_H_
