#include "base/printable_name.h"

#include <cstdint>

namespace tidemill {
namespace {

// Bytes of the printable character that begins at name[i]; 0 when there is none.
size_t PrintableLength(std::string_view name, size_t i) {
  const auto byte = [&](size_t at) { return static_cast<uint32_t>(static_cast<unsigned char>(name[at])); };
  const uint32_t lead = byte(i);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7F ? 1 : 0;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || length > name.size() - i) return 0;
  uint32_t code = lead & (0x7FU >> length);
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0U) != 0x80) return 0;
    code = (code << 6) | (byte(i + k) & 0x3FU);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return 0;
  return code >= 0x80 && code <= 0x9F ? 0 : length;
}

}  // namespace

size_t FindUnprintableByte(std::string_view name) {
  size_t i = 0;
  while (i < name.size()) {
    const size_t length = PrintableLength(name, i);
    if (length == 0) return i;
    i += length;
  }
  return i;
}

std::string QuoteName(std::string_view name) {
  constexpr size_t kMaxShown = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "\"";
  size_t i = 0;
  while (i < name.size()) {
    const size_t length = PrintableLength(name, i);
    if (i + (length == 0 ? 1 : length) > kMaxShown) break;
    if (length == 0) {
      const auto byte = static_cast<unsigned char>(name[i]);
      quoted += {'\\', 'x', kHex[byte >> 4], kHex[byte & 0xF]};
      ++i;
    } else {
      quoted += name.substr(i, length);
      i += length;
    }
  }
  quoted += i < name.size() ? "...\"" : "\"";
  return quoted;
}

Error ErrorAtByte(ErrorCode code, size_t offset, std::string_view field, const std::string& expected,
                  const std::string& found) {
  return Error(code, "byte " + std::to_string(offset) + ": " + std::string(field) + ": expected " + expected +
                         ", found " + found);
}

}  // namespace tidemill
