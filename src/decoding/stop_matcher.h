// Ends a streamed text at a stop string. Text that may be the beginning of one is held back until it is decided.
#ifndef TIDEMILL_DECODING_STOP_MATCHER_H_
#define TIDEMILL_DECODING_STOP_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tidemill {

// The text ends before the stop string that completes first, byte by byte; of those that complete at the same byte, before
// the longest. How the text is cut into pieces therefore changes neither the emitted text nor the match. With stop strings
// and pieces of valid UTF-8, everything emitted is too.
//   Cost: up to O(number of stops) for each byte of text, amortised (Knuth, Morris, Pratt). Holds back less than the
//   longest stop string (256 bytes).
class StopMatcher {
 public:
  explicit StopMatcher(std::span<const std::string> stops);  // none of them empty; none at all: every text passes

  struct Output {
    std::string_view emit;  // borrows from the matcher until its next call
    bool stopped = false;   // and stays so: what is pushed later is dropped
  };
  Output Push(std::string_view text);

  // The end of the text has come some other way: what was held back. Empty after a stop.
  std::string_view Finish();

  // What is held back. Pushed into a new matcher of the same stops it is all of this one's state: whatever is matched ends it.
  std::string_view held() const { return std::string_view(buffer_).substr(emitted_); }

  // Which of `stops` ended the text.
  std::optional<size_t> stop_index() const { return stop_index_; }

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> fallback;  // [bytes] of text[0..i], the longest proper prefix that is also its end
    size_t matched = 0;              // longest prefix of text that ends the pushed text
  };

  std::vector<Stop> stops_;
  std::string buffer_;  // emitted_ bytes that the last call gave out, then those held back
  size_t emitted_ = 0;
  std::optional<size_t> stop_index_;
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_STOP_MATCHER_H_
