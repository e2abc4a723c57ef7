#include "text/unicode_class.h"

#include <algorithm>
#include <array>

namespace tidemill {
namespace {

constexpr auto kAsciiClasses = [] {
  std::array<UnicodeClasses, 128> classes{};
  for (size_t c = 0; c < classes.size(); ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) classes[c] = kLetter;
    if (c >= '0' && c <= '9') classes[c] = kNumber | kDigitNumeric;
    if (c == ' ' || (c >= '\t' && c <= '\r')) classes[c] = kSpace;
  }
  return classes;
}();

}  // namespace

UnicodeClasses ClassesOf(char32_t code_point) {
  if (code_point < kAsciiClasses.size()) return kAsciiClasses[code_point];
  const auto ranges = UnicodeClassRanges();
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                      [](char32_t c, const UnicodeClassRange& range) { return c < range.first; });
  if (after == ranges.begin()) return 0;
  const UnicodeClassRange& range = *(after - 1);
  return code_point <= range.last ? range.classes : UnicodeClasses{0};
}

}  // namespace tidemill
