// Character classes and case mappings of Python's str, which chat templates were written against.
#ifndef TIDEMILL_TEXT_JINJA_UNICODE_H_
#define TIDEMILL_TEXT_JINJA_UNICODE_H_

#include <cstdint>
#include <string>

#include "text/jinja_text.h"

namespace tidemill::jinja {

inline bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }
bool IsPrintable(char32_t c);
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigitChar(char32_t c);
bool IsNumeric(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsCased(char32_t c);  // upper, lower or title case
inline bool IsAlnum(char32_t c) { return IsAlpha(c) || IsDecimal(c) || IsDigitChar(c) || IsNumeric(c); }

// Appends the lower case of one character, whatever stands around it.
void AppendLower(char32_t c, std::string& out);

// kCapitalize: first character in title case, the rest in lower case. kTitle: so for each run of cased characters.
enum class CaseChange : uint8_t { kUpper, kLower, kCapitalize, kTitle, kSwap };

// text.upper() and so on, with full mappings ("ß" becomes "SS") and the final sigma; each new character has the provenance
// of the one it was made of.
void AppendChangedCase(TextBuilder& out, const Str& text, CaseChange change);

}  // namespace tidemill::jinja

#endif  // TIDEMILL_TEXT_JINJA_UNICODE_H_
