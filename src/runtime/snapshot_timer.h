// When a request that reads a long prompt is saved: at most once in so many seconds, and in at most a fiftieth of the time, whatever those of other requests take.
#ifndef TIDEMILL_RUNTIME_SNAPSHOT_TIMER_H_
#define TIDEMILL_RUNTIME_SNAPSHOT_TIMER_H_

#include <algorithm>
#include <chrono>
#include <limits>

namespace tidemill {

class SnapshotTimer {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  static constexpr double kShare = 0.02;  // of the time, by what the last snapshot took

  // `seconds`: from the end of one to the next, at least; 0: there are none.
  SnapshotTimer(double seconds, Clock::time_point now) : seconds_(seconds), end_(now) {}

  bool IsDue(Clock::time_point now, double share = kShare) const { return SecondsLeft(now, share) <= 0; }
  // Until it is due; infinity: never.
  double SecondsLeft(Clock::time_point now, double share = kShare) const {
    if (seconds_ == Seconds(0)) return std::numeric_limits<double>::infinity();
    const Seconds left = std::max(seconds_, took_ * (1 / share - 1)) - (now - end_);
    return left.count();
  }
  void Begin(Clock::time_point now) {
    begin_ = now;
    is_making_ = true;
  }
  // Of one that is being made; else nothing.
  void End(Clock::time_point now) {
    if (!is_making_) return;
    is_making_ = false;
    took_ = now - begin_;
    end_ = now;
  }

 private:
  Seconds seconds_, took_{0};
  Clock::time_point begin_, end_;
  bool is_making_ = false;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_SNAPSHOT_TIMER_H_
