// UTF-8, one code point at a time, over bytes that nobody has checked.
// What is not valid is cut into maximal subparts (Unicode 16.0, 3.9, "U+FFFD Substitution of Maximal Subparts"): the longest
// stretch that begins a valid sequence, or else one byte. Each stands for one U+FFFD where text is shown.
#ifndef TIDEMILL_TEXT_UTF8_H_
#define TIDEMILL_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tidemill {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

enum class Utf8Status : uint8_t {
  kValid,       // a whole code point
  kInvalid,     // a maximal subpart that no further byte can repair
  kIncomplete,  // the bytes end inside a sequence that further bytes could complete
};

struct Utf8Char {
  char32_t code_point = kReplacementCharacter;  // U+FFFD unless kValid
  uint8_t length = 0;                           // bytes it takes, 1 to 4; less than 4 unless kValid
  Utf8Status status = Utf8Status::kInvalid;
};

// The first code point of `bytes`, which are not empty. Never reads past their end.
Utf8Char DecodeUtf8(std::string_view bytes);

// The last code point of `bytes`, which are not empty; kInvalid, and one byte, where they do not end with a valid one.
Utf8Char DecodeLastUtf8(std::string_view bytes);

// Appends a code point that is not a surrogate and not above U+10FFFF.
void AppendUtf8(char32_t code_point, std::string& out);

bool IsValidUtf8(std::string_view bytes);

// The same text with U+FFFD for each maximal subpart, an incomplete one at the end included.
std::string ReplaceInvalidUtf8(std::string_view bytes);

// Appends to `out` what of `pending` + `bytes` no further byte can change, invalid subparts as U+FFFD, and leaves the rest in
// `pending`: at most 3 bytes, the start of a code point.
void AppendWholeUtf8(std::string_view bytes, std::string& pending, std::string& out);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_UTF8_H_
