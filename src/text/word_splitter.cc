#include "text/word_splitter.h"

#include <array>
#include <cstdint>
#include <utility>

#include "text/unicode_class.h"
#include "text/utf8.h"

namespace tidemill {
namespace {

constexpr auto kExpressions = std::to_array<std::pair<std::string_view, WordRule>>({
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", WordRule::kGpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordRule::kLlama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordRule::kQwen2},
});

// What distinguishes characters in [^\s\p{L}\p{N}] and its neighbours: kLetter, kNumber, kSpace or 0 for the rest.
constexpr UnicodeClasses kKinds = kLetter | kNumber | kSpace;

struct Char {
  UnicodeClasses classes;
  uint8_t length;  // bytes

  UnicodeClasses kind() const { return classes & kKinds; }
};

Char CharAt(std::string_view text, size_t i) {
  const auto byte = static_cast<uint8_t>(text[i]);
  if (byte < 0x80) return {ClassesOf(byte), 1};
  const Utf8Char decoded = DecodeUtf8(text.substr(i));
  if (decoded.status != Utf8Status::kValid) return {0, 1};
  return {ClassesOf(decoded.code_point), decoded.length};
}

bool IsLineBreak(char c) { return c == '\r' || c == '\n'; }

// Past the characters from i on that are of `kind`.
size_t RunEnd(std::string_view text, size_t i, UnicodeClasses kind) {
  while (i < text.size()) {
    const Char c = CharAt(text, i);
    if (c.kind() != kind) break;
    i += c.length;
  }
  return i;
}

// The end of \s+(?!\S)|\s+ at i, where a space is: the run without its last character, if something follows the run and
// that leaves anything.
size_t SpaceWordEnd(std::string_view text, size_t i) {
  size_t end = i;
  size_t last = i;
  while (end < text.size()) {
    const Char c = CharAt(text, end);
    if (c.kind() != kSpace) break;
    last = end;
    end += c.length;
  }
  return end == text.size() || last == i ? end : last;
}

// The length of 's|'t|'re|'ve|'m|'ll|'d at i; 0 when it does not match. Ignoring case, s is also U+017F, the long s.
size_t ContractionLength(std::string_view text, size_t i, bool ignore_case) {
  if (text[i] != '\'') return 0;
  const auto at = [&](size_t k) -> char {
    if (i + k >= text.size()) return '\0';
    const char c = text[i + k];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  switch (at(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return at(2) == 'e' ? 3 : 0;
    case 'l': return at(2) == 'l' ? 3 : 0;
    case '\xC5': return ignore_case && at(2) == '\xBF' ? 3 : 0;
    default: return 0;
  }
}

size_t Gpt2WordEnd(std::string_view text, size_t i) {
  if (const size_t length = ContractionLength(text, i, false); length > 0) return i + length;
  const size_t start = text[i] == ' ' && i + 1 < text.size() ? i + 1 : i;
  const UnicodeClasses kind = CharAt(text, start).kind();
  return kind == kSpace ? SpaceWordEnd(text, i) : RunEnd(text, start, kind);
}

size_t Llama3WordEnd(std::string_view text, size_t i, int max_digits) {
  if (const size_t length = ContractionLength(text, i, true); length > 0) return i + length;
  const Char first = CharAt(text, i);
  if (first.kind() == kLetter) return RunEnd(text, i, kLetter);
  if (first.kind() == kNumber) {
    size_t end = i;
    for (int digits = 0; digits < max_digits && end < text.size(); ++digits) {
      const Char c = CharAt(text, end);
      if (c.kind() != kNumber) break;
      end += c.length;
    }
    return end;
  }
  const size_t second = i + first.length;
  if (!IsLineBreak(text[i]) && second < text.size() && CharAt(text, second).kind() == kLetter) {
    return RunEnd(text, second, kLetter);
  }
  const size_t start = text[i] == ' ' && second < text.size() ? second : i;
  if (CharAt(text, start).kind() == 0) {
    size_t end = RunEnd(text, start, 0);
    while (end < text.size() && IsLineBreak(text[end])) ++end;
    return end;
  }
  const size_t run_end = RunEnd(text, i, kSpace);
  const size_t line_break = text.substr(i, run_end - i).find_last_of("\r\n");
  return line_break != std::string_view::npos ? i + line_break + 1 : SpaceWordEnd(text, i);
}

}  // namespace

std::optional<WordRule> FindWordRule(std::string_view expression) {
  for (const auto& [known, rule] : kExpressions) {
    if (known == expression) return rule;
  }
  return std::nullopt;
}

std::string_view ExpressionOf(WordRule rule) {
  for (const auto& [expression, known] : kExpressions) {
    if (known == rule) return expression;
  }
  return {};
}

std::string_view WordSplitter::Next() {
  if (position_ == text_.size()) return {};
  const size_t begin = position_;
  switch (rule_) {
    case WordRule::kGpt2: position_ = Gpt2WordEnd(text_, begin); break;
    case WordRule::kLlama3: position_ = Llama3WordEnd(text_, begin, 3); break;
    case WordRule::kQwen2: position_ = Llama3WordEnd(text_, begin, 1); break;
    case WordRule::kDigitsThenGpt2: {
      if (begin >= stretch_end_) {
        const Char first = CharAt(text_, begin);
        if ((first.classes & kDigitNumeric) != 0) {
          position_ = begin + first.length;
          break;
        }
        stretch_end_ = begin;
        while (stretch_end_ < text_.size()) {
          const Char c = CharAt(text_, stretch_end_);
          if ((c.classes & kDigitNumeric) != 0) break;
          stretch_end_ += c.length;
        }
      }
      position_ = Gpt2WordEnd(text_.substr(0, stretch_end_), begin);
      break;
    }
  }
  return text_.substr(begin, position_ - begin);
}

}  // namespace tidemill
