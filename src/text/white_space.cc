#include "text/white_space.h"

#include "text/unicode_class.h"

namespace tidemill {

bool IsWhiteSpace(const Utf8Char& c) {
  return c.status == Utf8Status::kValid && (ClassesOf(c.code_point) & kSpace) != 0;
}

size_t WhiteSpaceEnd(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char next = DecodeUtf8(text.substr(at));
    if (!IsWhiteSpace(next)) break;
    at += next.length;
  }
  return at;
}

size_t WhiteSpaceBegin(std::string_view text, size_t least) {
  while (text.size() > least) {
    const Utf8Char last = DecodeLastUtf8(text);
    if (!IsWhiteSpace(last)) break;
    text.remove_suffix(last.length);
  }
  return text.size();
}

}  // namespace tidemill
