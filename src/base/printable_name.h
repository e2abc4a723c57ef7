// Names that come from a file and go into messages: what may stand in one, and how a message shows it.
#ifndef TIDEMILL_BASE_PRINTABLE_NAME_H_
#define TIDEMILL_BASE_PRINTABLE_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "tidemill/result.h"

namespace tidemill {

// The index of the first byte that does not belong to well-formed UTF-8 (no overlong forms, no surrogates, at most
// U+10FFFF) or that begins a control character (U+0000-U+001F, U+007F-U+009F); name.size() when there is none. Linear.
size_t FindUnprintableByte(std::string_view name);

// `name` between quotes, at most 80 bytes of it (then "..."), with every unprintable byte as \xNN: safe in a log.
std::string QuoteName(std::string_view name);

// "byte 24: header length: expected ..., found ...": the caller puts the section in front.
Error ErrorAtByte(ErrorCode code, size_t offset, std::string_view field, const std::string& expected,
                  const std::string& found);

}  // namespace tidemill

#endif  // TIDEMILL_BASE_PRINTABLE_NAME_H_
