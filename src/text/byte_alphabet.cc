#include "text/byte_alphabet.h"

#include <array>
#include <cstddef>

#include "text/utf8.h"

namespace tidemill {
namespace {

constexpr bool IsVisible(size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr size_t kNumHidden = 68;

constexpr auto kSpelling = [] {
  std::array<char32_t, 256> spelling{};
  char32_t hidden = 0x100;
  for (size_t byte = 0; byte < spelling.size(); ++byte) {
    spelling[byte] = IsVisible(byte) ? static_cast<char32_t>(byte) : hidden++;
  }
  return spelling;
}();

// By character; -1: spells no byte.
constexpr auto kByteOf = [] {
  std::array<int16_t, 0x100 + kNumHidden> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (size_t byte = 0; byte < kSpelling.size(); ++byte) bytes[kSpelling[byte]] = static_cast<int16_t>(byte);
  return bytes;
}();

}  // namespace

char32_t SpellByte(uint8_t byte) { return kSpelling[byte]; }

std::string SpellBytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) AppendUtf8(SpellByte(static_cast<uint8_t>(byte)), spelling);
  return spelling;
}

std::optional<std::string> ReadSpelledBytes(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const Utf8Char next = DecodeUtf8(spelling);
    if (next.status != Utf8Status::kValid || next.code_point >= kByteOf.size() || kByteOf[next.code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(static_cast<uint8_t>(kByteOf[next.code_point])));
    spelling.remove_prefix(next.length);
  }
  return bytes;
}

}  // namespace tidemill
