// How kernels of attention bring memory ahead of its use: by which prefetch, and how many bytes of values.
#ifndef TIDEMILL_KERNELS_CPU_FETCH_H_
#define TIDEMILL_KERNELS_CPU_FETCH_H_

#include <cstddef>

namespace tidemill {

struct FetchNothing {
  static constexpr int kLocality = 0;  // as __builtin_prefetch counts
  static constexpr size_t kValues = 0;
};
struct FetchIntoL2 {
  static constexpr int kLocality = 2;  // PREFETCHT1
  static constexpr size_t kValues = 8192;
};
struct FetchPastL2 {
  static constexpr int kLocality = 0;  // PREFETCHNTA
  static constexpr size_t kValues = 12288;
};

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_FETCH_H_
