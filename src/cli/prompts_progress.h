// How far many requests are: a line on a terminal while they run, and a message where a signal ended them.
#ifndef TIDEMILL_CLI_PROMPTS_PROGRESS_H_
#define TIDEMILL_CLI_PROMPTS_PROGRESS_H_

#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>

#include "cli/messages.h"

namespace tidemill::cli {

// Of a regular file: those with more than blanks. None: it cannot be told beforehand.
std::optional<size_t> CountPromptLines(const std::string& path);

// For any number of threads.
class PromptsProgress {
 public:
  // `total`: requests, where that is known. `shows`: the line.
  PromptsProgress(Messages& messages, bool shows, std::optional<size_t> total);
  ~PromptsProgress();
  PromptsProgress(const PromptsProgress&) = delete;
  PromptsProgress& operator=(const PromptsProgress&) = delete;

  void CountTokens(size_t tokens);          // generated
  enum class End { kDone, kFailed, kCut };  // cut: by a signal
  void CountEnd(End end);
  // The line goes.
  void Stop();
  // "12 of 48 requests finished, 1 failed, 3 cut short".
  std::string Summary() const;

 private:
  using Clock = std::chrono::steady_clock;

  void Show();  // now and then

  Messages& messages_;
  bool shows_;
  std::optional<size_t> total_;
  mutable std::mutex mutex_;
  size_t finished_ = 0, failed_ = 0, cut_ = 0, tokens_ = 0;
  Clock::time_point start_ = Clock::now(), shown_ = start_;
  bool is_shown_ = false;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_PROMPTS_PROGRESS_H_
