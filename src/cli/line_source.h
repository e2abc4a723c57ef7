// Lines a user types or a script pipes in: with an editor and history on a terminal, plainly elsewhere.
#ifndef TIDEMILL_CLI_LINE_SOURCE_H_
#define TIDEMILL_CLI_LINE_SOURCE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/messages.h"
#include "cli/signals.h"
#include "tidemill/result.h"

namespace tidemill::cli {

class LineSource {
 public:
  // `doing`: for errors, "read a message"; static text.
  LineSource(const char* doing, SignalWatch& signals, Messages& messages);

  struct Line {
    enum class Kind { kText, kAbandoned /* Ctrl-C while typing */, kEnd /* Ctrl-D or end of input */ };
    Kind kind = Kind::kText;
    std::string text;  // without its line end
  };
  // The next line. The prompt is shown on a terminal only, on stderr. kCancelled when a signal came; kInvalidArgument for a
  // line of more than 64 MiB.
  Result<Line> Read(std::string_view prompt);

  bool is_terminal() const { return is_terminal_; }  // both standard input and stderr are

 private:
  Result<Line> ReadPlain();
  Result<Line> ReadEdited(std::string_view prompt);
  Result<std::optional<unsigned char>> NextByte();  // none: end of input

  const char* doing_;
  SignalWatch& signals_;
  Messages& messages_;
  bool is_terminal_;
  std::string buffer_;  // read, from buffer_begin_ on not used yet
  size_t buffer_begin_ = 0;
  std::vector<std::string> history_;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_LINE_SOURCE_H_
