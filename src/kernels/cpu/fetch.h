// How kernels bring memory ahead of its use: by which prefetch; in attention also how many bytes of values.
#ifndef TIDEMILL_KERNELS_CPU_FETCH_H_
#define TIDEMILL_KERNELS_CPU_FETCH_H_

#include <stddef.h>

namespace tidemill {

// As __builtin_prefetch counts: PREFETCHT0, PREFETCHT1 and PREFETCHNTA.
inline constexpr int kIntoL1 = 3, kIntoL2 = 2, kPastL2 = 0;

struct FetchNothing {
  static constexpr int kLocality = kPastL2;
  static constexpr size_t kValues = 0;
};
struct FetchIntoL2 {
  static constexpr int kLocality = kIntoL2;
  static constexpr size_t kValues = 8192;
};
struct FetchPastL2 {
  static constexpr int kLocality = kPastL2;
  static constexpr size_t kValues = 12288;
};

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_FETCH_H_
