// Standard output, which carries the answer and nothing else. Every write is checked: a full disk is an error, a reader that
// went away ends the program quietly.
#ifndef TIDEMILL_CLI_OUTPUT_H_
#define TIDEMILL_CLI_OUTPUT_H_

#include <string_view>

#include "cli/signals.h"
#include "tidemill/result.h"

namespace tidemill::cli {

class Output {
 public:
  Output(int fd, const SignalWatch& signals);

  // All bytes, now: nothing is buffered, so that text appears as it is generated. kNoSpace, kIoError; kCancelled when the
  // reader went away, and then reader_gone() is true, and when a signal came and the reader takes nothing for a second.
  Result<void> Write(std::string_view bytes);
  // The same for text that a model made. On a terminal control characters other than newline and tab are shown as U+FFFD, so
  // that a model cannot steer it.
  Result<void> WriteModelText(std::string_view text);
  // Ends a line on a terminal; a file or pipe gets no byte that is not part of the answer.
  Result<void> EndLineOnTerminal(std::string_view last_text);

  bool is_terminal() const { return is_terminal_; }
  bool reader_gone() const { return reader_gone_; }

 private:
  int fd_;
  const SignalWatch& signals_;
  bool is_terminal_;
  bool reader_gone_ = false;
};

// Every byte of `bytes` to `fd`, over interruptions and short writes; 0 or errno. With `signals`: ECANCELED once a signal came
// while a Grace was alive and then, for a second, nothing more could be written.
int WriteFully(int fd, std::string_view bytes, const SignalWatch* signals = nullptr);

// Opens /dev/null for those of the descriptors 0, 1 and 2 that the caller closed, so that no file of ours gets their numbers.
void OccupyStandardDescriptors();

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_OUTPUT_H_
