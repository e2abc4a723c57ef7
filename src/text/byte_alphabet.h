// How byte-level vocabularies spell bytes: one visible character per byte, so that a vocabulary is readable text.
// The bytes that are visible in Latin-1 (0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF) are spelled as themselves; the other 68, in
// ascending order, as U+0100, U+0101, ... So a space is U+0120 and a line feed U+010A.
#ifndef TIDEMILL_TEXT_BYTE_ALPHABET_H_
#define TIDEMILL_TEXT_BYTE_ALPHABET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tidemill {

// The character that spells `byte`.
char32_t SpellByte(uint8_t byte);

// `bytes`, spelled as UTF-8.
std::string SpellBytes(std::string_view bytes);

// The bytes that `spelling` spells; nothing when some character of it spells none.
std::optional<std::string> ReadSpelledBytes(std::string_view spelling);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_BYTE_ALPHABET_H_
