// What an error looks like from outside: one line on stderr and an exit code.
#ifndef TIDEMILL_CLI_ERRORS_H_
#define TIDEMILL_CLI_ERRORS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "tidemill/result.h"

namespace tidemill::cli {

// Exit codes that no ErrorCode stands for.
inline constexpr int kExitSomeFailed = 5;    // of many inputs
inline constexpr int kExitReaderGone = 141;  // 128 + SIGPIPE, as if we had died of it
inline constexpr int kExitSignalBase = 128;  // + SIGINT = 130, + SIGTERM = 143

int ExitCodeFor(ErrorCode code);

// `text` fit for a terminal: control characters (U+0000-U+001F, U+007F-U+009F) and bytes that are not UTF-8 become \xNN.
std::string Printable(std::string_view text);
// The same in double quotes; of more than 80 bytes the middle is left out.
std::string Quoted(std::string_view text);

// "tidemill: message", printable, without a newline, at most kMaxErrorLine bytes: of a longer one the middle is left out,
// since what was being done stands in front and what to do at the end.
inline constexpr size_t kMaxErrorLine = 399;  // 400 with the newline
std::string ErrorLine(std::string_view message);

// Wrong usage: "read the command line: WHERE: WHAT".
Error UsageError(std::string_view where, std::string_view what);

// From errno: ENOSPC, EDQUOT, EFBIG: kNoSpace; ENOENT, ENOTDIR: kNotFound; else kIoError. "doing: object: reason".
Error SystemError(std::string_view doing, std::string_view object, int error_number);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_ERRORS_H_
