// Strings from files and requests, made fit for one line of an error message.
#ifndef TIDEMILL_TEXT_QUOTE_H_
#define TIDEMILL_TEXT_QUOTE_H_

#include <string>
#include <string_view>

namespace tidemill {

// "text" in double quotes: valid UTF-8 stays, quotes, backslashes, control characters and other bytes become \", \\ and \xNN;
// what follows the first 64 bytes becomes "...".
std::string Quote(std::string_view text);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_QUOTE_H_
