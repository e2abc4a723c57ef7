// Says when an answer does nothing but repeat itself: its last 256 tokens have a period of at most 64.
#ifndef TIDEMILL_DECODING_REPETITION_DETECTOR_H_
#define TIDEMILL_DECODING_REPETITION_DETECTOR_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace tidemill {

// The last kWindow tokens t[n - kWindow .. n) have the period p where t[i] == t[i - p] for each i of the window behind its first p.
//   State: derived from the tokens alone. Whoever restores an answer pushes its tokens again.
//   Cost: one comparison for each period and token. Allocates nothing.
class RepetitionDetector {
 public:
  static constexpr size_t kWindow = 256;
  static constexpr size_t kMaxPeriod = 64;

  // The answer's next token. True: with it, the last kWindow tokens have a period of at most kMaxPeriod.
  bool Push(int32_t token) {
    bool is_periodic = false;
    for (size_t period = 1; period <= kMaxPeriod; ++period) {
      size_t& equal = equal_[period - 1];
      const bool is_equal = period <= num_tokens_ && last_[(num_tokens_ - period) % kMaxPeriod] == token;
      equal = is_equal ? equal + 1 : 0;
      is_periodic = is_periodic || equal >= kWindow - period;
    }
    last_[num_tokens_++ % kMaxPeriod] = token;
    return is_periodic;
  }

 private:
  size_t num_tokens_ = 0;
  std::array<int32_t, kMaxPeriod> last_ = {};  // token i of the answer is last_[i % kMaxPeriod]
  std::array<size_t, kMaxPeriod> equal_ = {};  // [period - 1]: tokens in a row that equal the one `period` before
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_REPETITION_DETECTOR_H_
