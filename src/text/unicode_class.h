// What a code point is, as far as splitting rules ask: the classes \p{L}, \p{N} and \s of their regular expressions. And
// what the "digits" step takes for a number (a newer Unicode version in the original, so a class of its own).
#ifndef TIDEMILL_TEXT_UNICODE_CLASS_H_
#define TIDEMILL_TEXT_UNICODE_CLASS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemill {

// A set of UnicodeClass bits.
using UnicodeClasses = uint8_t;

inline constexpr UnicodeClasses kLetter = 1;        // \p{L}
inline constexpr UnicodeClasses kNumber = 2;        // \p{N}
inline constexpr UnicodeClasses kSpace = 4;         // \s, the property White_Space
inline constexpr UnicodeClasses kDigitNumeric = 8;  // \p{N} of the "digits" step

// Code points [first, last] with the same classes.
struct UnicodeClassRange {
  char32_t first = 0;
  char32_t last = 0;
  UnicodeClasses classes = 0;
};

// Ascending, disjoint; what lies between has no class. From unicode_class_table.cc, which is generated.
std::span<const UnicodeClassRange> UnicodeClassRanges();

// 0 for a code point with none of the classes, and for numbers that are not code points.
UnicodeClasses ClassesOf(char32_t code_point);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_UNICODE_CLASS_H_
