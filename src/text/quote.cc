#include "text/quote.h"

#include <cstddef>
#include <cstdint>

#include "text/utf8.h"

namespace tidemill {
namespace {

constexpr size_t kMaxQuotedBytes = 64;

// C0 and C1 controls and the line and paragraph separators would break the line.
bool StaysAsItIs(char32_t c) { return c >= 0x20 && (c < 0x7F || c > 0x9F) && c != 0x2028 && c != 0x2029; }

}  // namespace

std::string Quote(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string quoted = "\"";
  size_t i = 0;
  while (i < text.size() && i < kMaxQuotedBytes) {
    const Utf8Char next = DecodeUtf8(text.substr(i));
    const std::string_view bytes = text.substr(i, next.length);
    i += next.length;
    if (next.status == Utf8Status::kValid && StaysAsItIs(next.code_point)) {
      if (bytes == "\"" || bytes == "\\") quoted += '\\';
      quoted += bytes;
      continue;
    }
    for (const char c : bytes) {
      const auto byte = static_cast<uint8_t>(c);
      quoted += "\\x";
      quoted += kHex[byte >> 4];
      quoted += kHex[byte & 15];
    }
  }
  quoted += i < text.size() ? "\"..." : "\"";
  return quoted;
}

}  // namespace tidemill
