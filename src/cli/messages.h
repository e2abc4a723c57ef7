// Standard error: warnings, what was asked for by --stats, and a progress bar. Writes are best effort: a closed stderr stops nobody.
#ifndef TIDEMILL_CLI_MESSAGES_H_
#define TIDEMILL_CLI_MESSAGES_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace tidemill::cli {

enum class LogLevel { kError, kWarning, kInfo };

class Messages {
 public:
  explicit Messages(int fd);

  void set_level(LogLevel level) { level_ = level; }
  void set_quiet() {
    level_ = LogLevel::kError;
    quiet_ = true;
  }

  // The one line a failing program says, whatever the level.
  void Error(std::string_view message);
  void Warning(std::string_view message);
  void Note(std::string_view message);  // what is no fault, at the level of warnings
  void Info(std::string_view message);
  // What the user asked for: as it is, whatever the level.
  void Say(std::string_view text);

  bool is_terminal() const { return is_terminal_; }
  bool shows_progress() const { return is_terminal_ && !quiet_; }

 private:
  int fd_;
  bool is_terminal_;
  bool quiet_ = false;
  LogLevel level_ = LogLevel::kWarning;
};

// One line on a terminal that is overwritten and disappears; nothing at all elsewhere.
class ProgressBar {
 public:
  ProgressBar(Messages& messages, std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // 0..1, with a text behind it.
  void Show(double fraction, std::string_view behind = {});

 private:
  Messages& messages_;
  std::string label_;
  std::string shown_;
};

// A note now and then, where there is no terminal: "calibrating: 12 of 96 contexts, about 130 s left".
class ProgressLines {
 public:
  // `seconds`: from one to the next, at least. `first`: done before.
  ProgressLines(Messages& messages, std::string label, std::string unit, double seconds = 30, size_t first = 0)
      : messages_(messages), label_(std::move(label)), unit_(std::move(unit)), seconds_(seconds), first_(first) {}

  void Show(size_t done, size_t all);  // the last one says nothing
  // "12 of 96 contexts, about 130 s left"; without a time before something was done.
  std::string Count(size_t done, size_t all) const;

 private:
  using Clock = std::chrono::steady_clock;

  Messages& messages_;
  std::string label_, unit_;
  double seconds_;
  size_t first_;
  Clock::time_point start_ = Clock::now(), shown_ = start_;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_MESSAGES_H_
