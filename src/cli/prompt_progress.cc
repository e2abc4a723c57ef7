#include "cli/prompt_progress.h"

#include <string>

namespace tidemill::cli {

void PromptProgress::Show(size_t read, size_t all) {
  constexpr char kLabel[] = "reading the prompt";
  constexpr std::chrono::milliseconds kBetweenBars{250};
  if (read >= all) return Hide();
  if (!lines_) lines_.emplace(messages_, kLabel, "tokens", 30, read);  // a resumed prompt begins where it was
  lines_->Show(read, all);
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + kBetweenBars;
  if (!bar_) bar_.emplace(messages_, kLabel);
  bar_->Show(static_cast<double>(read) / static_cast<double>(all), lines_->Count(read, all));
}

}  // namespace tidemill::cli
