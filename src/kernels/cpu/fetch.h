// How kernels bring memory ahead of its use.
#ifndef TIDEMILL_KERNELS_CPU_FETCH_H_
#define TIDEMILL_KERNELS_CPU_FETCH_H_

namespace tidemill {

// As __builtin_prefetch counts: PREFETCHT0, PREFETCHT1 and PREFETCHNTA.
inline constexpr int kIntoL1 = 3, kIntoL2 = 2, kPastL2 = 0;

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_FETCH_H_
