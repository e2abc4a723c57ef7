// How far a long prompt has been read, on stderr: a bar on a terminal, else a note now and then.
#ifndef TIDEMILL_CLI_PROMPT_PROGRESS_H_
#define TIDEMILL_CLI_PROMPT_PROGRESS_H_

#include <chrono>
#include <cstddef>
#include <optional>

#include "cli/messages.h"

namespace tidemill::cli {

class PromptProgress {
 public:
  // A prompt that is read in less time says nothing.
  static constexpr std::chrono::seconds kPatience{1};

  explicit PromptProgress(Messages& messages) : messages_(messages) {}

  // At first, and after each step: `read` of the prompt's `all` tokens. Once all are read the bar disappears.
  void Show(size_t read, size_t all);
  // The bar makes room for a message; the next Show brings it back.
  void Hide() { bar_.reset(); }

 private:
  using Clock = std::chrono::steady_clock;

  Messages& messages_;
  Clock::time_point next_ = Clock::now() + kPatience;
  std::optional<ProgressLines> lines_;
  std::optional<ProgressBar> bar_;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_PROMPT_PROGRESS_H_
