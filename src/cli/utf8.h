// UTF-8 as far as a command line needs it: is this text, and where does the next character end.
#ifndef TIDEMILL_CLI_UTF8_H_
#define TIDEMILL_CLI_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tidemill::cli {

struct Utf8Character {
  char32_t code = 0;
  size_t length = 0;  // 1 to 4 bytes; 0: no well-formed character begins here
};

// The character that begins at text[offset]; offset < text.size(). Overlong forms, surrogates and codes above U+10FFFF are
// not well formed.
Utf8Character CharacterAt(std::string_view text, size_t offset);

// The offset of the first byte that belongs to no well-formed character.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_UTF8_H_
