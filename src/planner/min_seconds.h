// The best of several short measurements: noisy neighbours only add time.
#ifndef TIDEMILL_PLANNER_MIN_SECONDS_H_
#define TIDEMILL_PLANNER_MIN_SECONDS_H_

#include <algorithm>
#include <limits>

#include "base/seconds_of.h"

namespace tidemill {

// Never 0, whatever the clock says.
template <typename Work>
double MinSeconds(const Work& work) {
  constexpr int kRounds = 4;               // at least
  constexpr double kSeconds = 0.012;       // at least
  constexpr double kEnoughSeconds = 0.25;  // whatever the rounds: of a machine that takes as long, fewer will do
  constexpr int kMaxRounds = 100'000;      // where the clock stands still
  double least = std::numeric_limits<double>::infinity(), all = 0;
  for (int i = 0; (i < kRounds || all < kSeconds) && all < kEnoughSeconds && i < kMaxRounds; ++i) {
    const double seconds = std::max(1e-9, SecondsOf(work));
    least = std::min(least, seconds);
    all += seconds;
  }
  return least;
}

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_MIN_SECONDS_H_
