// Where a command's text comes from: an argument, -p, a file or standard input.
#ifndef TIDEMILL_CLI_TEXT_SOURCE_H_
#define TIDEMILL_CLI_TEXT_SOURCE_H_

#include <optional>
#include <string>
#include <string_view>

#include "cli/flags.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct TextSource {
  std::optional<std::string> positional;  // "-": standard input
  std::optional<std::string> prompt;      // -p
  std::optional<std::string> file;        // -f

  // Flags -f and, where `with_prompt`, -p; the positional is the command's, since it stands behind MODEL.
  void AddTo(FlagSet& flags, bool with_prompt);

  // The one text that was given, or all of standard input if none was and it is no terminal. kInvalidArgument: two were
  // given; none was, on a terminal (`if_none` says what to do); not UTF-8 (the offset of the first such byte).
  Result<std::string> Read(std::string_view doing, std::string_view if_none) const;
};

// kInvalidArgument: "doing: object: expected UTF-8, found byte 0xNN at offset N".
Result<void> CheckUtf8(std::string_view doing, std::string_view object, std::string_view text);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_TEXT_SOURCE_H_
