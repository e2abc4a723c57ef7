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
  if (shown_percent_ >= 0) messages_.Say("\r\x1b[K");
}

void ProgressBar::Show(double fraction) {
  if (!messages_.shows_progress()) return;
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100);
  if (percent == shown_percent_) return;
  shown_percent_ = percent;
  const auto filled = static_cast<size_t>(percent * 30 / 100);
  messages_.Say("\r" + label_ + " [" + std::string(filled, '#') + std::string(30 - filled, ' ') + "] " +
                std::to_string(percent) + " %");
}

void ProgressLines::Show(size_t done, size_t all) {
  const Clock::time_point now = Clock::now();
  const auto since = [now](Clock::time_point then) { return std::chrono::duration<double>(now - then).count(); };
  if (messages_.is_terminal() || done == 0 || done >= all || since(shown_) < seconds_) return;
  shown_ = now;
  const double left = since(start_) / static_cast<double>(done) * static_cast<double>(all - done);
  messages_.Note(label_ + ": " + std::to_string(done) + " of " + std::to_string(all) + " " + unit_ + ", about " +
                 std::to_string(std::llround(left)) + " s left");
}

}  // namespace tidemill::cli
