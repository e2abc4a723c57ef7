// Processor time of the calling thread, for bounds on cost: what a neighbour does to the clock is not seen.
#ifndef TIDEMILL_TESTS_SUPPORT_CPU_SECONDS_H_
#define TIDEMILL_TESTS_SUPPORT_CPU_SECONDS_H_

#include <time.h>

namespace tidemill::testing {

inline double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_CPU_SECONDS_H_
