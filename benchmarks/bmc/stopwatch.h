#ifndef TIDEMILL_BENCHMARKS_BMC_STOPWATCH_H_
#define TIDEMILL_BENCHMARKS_BMC_STOPWATCH_H_

#include <chrono>
#include <utility>

namespace tidemill::bmc {

class Stopwatch {
 public:
  // Seconds since it was made or since the last lap.
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace tidemill::bmc

#endif  // TIDEMILL_BENCHMARKS_BMC_STOPWATCH_H_
