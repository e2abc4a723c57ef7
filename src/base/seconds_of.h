// How long something takes, on the wall's clock.
#ifndef TIDEMILL_BASE_SECONDS_OF_H_
#define TIDEMILL_BASE_SECONDS_OF_H_

#include <chrono>

namespace tidemill {

template <typename Work>
double SecondsOf(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tidemill

#endif  // TIDEMILL_BASE_SECONDS_OF_H_
