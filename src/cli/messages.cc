#include "cli/messages.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cli/errors.h"
#include "cli/output.h"

namespace tidemill::cli {

Messages::Messages(int fd) : fd_(fd), is_terminal_(isatty(fd) == 1) {}

void Messages::Say(std::string_view text) { [[maybe_unused]] const int ignored = WriteFully(fd_, text); }

void Messages::Error(std::string_view message) { Say(ErrorLine(message) + "\n"); }

void Messages::Warning(std::string_view message) {
  if (level_ >= LogLevel::kWarning) Say(ErrorLine("warning: " + std::string(message)) + "\n");
}

void Messages::Note(std::string_view message) {
  if (level_ >= LogLevel::kWarning) Say(ErrorLine("note: " + std::string(message)) + "\n");
}

void Messages::Info(std::string_view message) {
  if (level_ >= LogLevel::kInfo) Say(ErrorLine(message) + "\n");
}

ProgressBar::ProgressBar(Messages& messages, std::string label) : messages_(messages), label_(std::move(label)) {}

ProgressBar::~ProgressBar() {
  if (!shown_.empty()) messages_.Say("\r\x1b[K");
}

void ProgressBar::Show(double fraction, std::string_view behind) {
  if (!messages_.shows_progress()) return;
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100);
  const auto filled = static_cast<size_t>(percent * 30 / 100);
  std::string line = "\r" + label_ + " [" + std::string(filled, '#') + std::string(30 - filled, ' ') + "] " +
                     std::to_string(percent) + " %";
  if (!behind.empty()) line += ", " + std::string(behind) + "\x1b[K";
  if (line == shown_) return;
  messages_.Say(line);
  shown_ = std::move(line);
}

void ProgressLines::Show(size_t done, size_t all) {
  const Clock::time_point now = Clock::now();
  const double silent = std::chrono::duration<double>(now - shown_).count();
  if (messages_.is_terminal() || done <= first_ || done >= all || silent < seconds_) return;
  shown_ = now;
  messages_.Note(label_ + ": " + Count(done, all));
}

std::string ProgressLines::Count(size_t done, size_t all) const {
  const std::string count = std::to_string(done) + " of " + std::to_string(all) + " " + unit_;
  if (done <= first_) return count;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double left = seconds / static_cast<double>(done - first_) * static_cast<double>(all - done);
  return count + ", about " + std::to_string(std::llround(left)) + " s left";
}

}  // namespace tidemill::cli
