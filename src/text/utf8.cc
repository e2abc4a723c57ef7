#include "text/utf8.h"

#include "base/check.h"

namespace tidemill {
namespace {

// What may follow a lead byte. Only the second byte has a range of its own: it excludes overlong forms, surrogates and what
// lies above U+10FFFF (Unicode 16.0, table 3-7).
struct LeadByte {
  uint8_t length = 0;  // of the whole sequence; 0: not a lead byte
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

constexpr LeadByte ClassifyLead(uint8_t byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte < 0xC2) return {.length = 0};
  if (byte < 0xE0) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .second_min = 0xA0};
  if (byte == 0xED) return {.length = 3, .second_max = 0x9F};
  if (byte < 0xF0) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .second_min = 0x90};
  if (byte < 0xF4) return {.length = 4};
  if (byte == 0xF4) return {.length = 4, .second_max = 0x8F};
  return {.length = 0};
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view bytes) {
  TIDEMILL_DCHECK(!bytes.empty());
  const auto at = [bytes](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {.code_point = lead, .length = 1, .status = Utf8Status::kValid};
  const LeadByte expected = ClassifyLead(lead);
  if (expected.length == 0) return {.length = 1, .status = Utf8Status::kInvalid};
  char32_t code_point = lead & (0x7Fu >> expected.length);
  for (uint8_t i = 1; i < expected.length; ++i) {
    if (i == bytes.size()) return {.length = i, .status = Utf8Status::kIncomplete};
    const uint8_t min = i == 1 ? expected.second_min : 0x80;
    const uint8_t max = i == 1 ? expected.second_max : 0xBF;
    if (at(i) < min || at(i) > max) return {.length = i, .status = Utf8Status::kInvalid};
    code_point = (code_point << 6) | (at(i) & 0x3Fu);
  }
  return {.code_point = code_point, .length = expected.length, .status = Utf8Status::kValid};
}

Utf8Char DecodeLastUtf8(std::string_view bytes) {
  size_t begin = bytes.size() - 1;
  while (begin > 0 && bytes.size() - begin < 4 && (bytes[begin] & 0xC0) == 0x80) --begin;
  const Utf8Char last = DecodeUtf8(bytes.substr(begin));
  return last.status == Utf8Status::kValid && last.length == bytes.size() - begin ? last : Utf8Char{.length = 1};
}

void AppendUtf8(char32_t code_point, std::string& out) {
  TIDEMILL_DCHECK(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF));
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(static_cast<uint8_t>(byte))); };
  const auto put_tail = [&](int shift) { put(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put_tail(0);
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put_tail(6);
    put_tail(0);
  } else {
    put(0xF0 | (code_point >> 18));
    put_tail(12);
    put_tail(6);
    put_tail(0);
  }
}

bool IsValidUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Char next = DecodeUtf8(bytes);
    if (next.status != Utf8Status::kValid) return false;
    bytes.remove_prefix(next.length);
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view bytes) {
  std::string out;
  std::string pending;
  AppendWholeUtf8(bytes, pending, out);
  if (!pending.empty()) out += kReplacementUtf8;
  return out;
}

void AppendWholeUtf8(std::string_view bytes, std::string& pending, std::string& out) {
  pending += bytes;
  std::string_view rest = pending;
  while (!rest.empty()) {
    const Utf8Char next = DecodeUtf8(rest);
    if (next.status == Utf8Status::kIncomplete) break;
    out += next.status == Utf8Status::kValid ? rest.substr(0, next.length) : kReplacementUtf8;
    rest.remove_prefix(next.length);
  }
  pending.erase(0, pending.size() - rest.size());
}

}  // namespace tidemill
