// White space (Unicode's property White_Space) at the ends of a text. Bytes that are not valid UTF-8 are none.
#ifndef TIDEMILL_TEXT_WHITE_SPACE_H_
#define TIDEMILL_TEXT_WHITE_SPACE_H_

#include <cstddef>
#include <string_view>

#include "text/utf8.h"

namespace tidemill {

bool IsWhiteSpace(const Utf8Char& c);

// Where the white space at `at` ends.
size_t WhiteSpaceEnd(std::string_view text, size_t at);
// Where the white space at the end of `text` begins, not before `least`.
size_t WhiteSpaceBegin(std::string_view text, size_t least);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_WHITE_SPACE_H_
