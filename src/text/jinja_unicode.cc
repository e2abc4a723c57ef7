#include "text/jinja_unicode.h"

#include <algorithm>
#include <array>
#include <span>

#include "text/unicode_class.h"

namespace tidemill::jinja {
namespace {

struct CharRange {  // first, first + stride, ... last
  char32_t first;
  char32_t last;
  uint32_t stride;
};
struct CaseRange {  // the same, each mapped to itself + delta
  char32_t first;
  char32_t last;
  uint32_t stride;
  int32_t delta;
};
struct CaseExpansion {  // one character that becomes several, UTF-8
  char32_t from;
  const char* to;
};

#include "text/jinja_unicode_data.inc"

// Rows are sorted by `first` and do not overlap.
template <typename Row>
const Row* FindRow(std::span<const Row> rows, char32_t c) {
  const auto after =
      std::upper_bound(rows.begin(), rows.end(), c, [](char32_t x, const Row& row) { return x < row.first; });
  if (after == rows.begin()) return nullptr;
  const Row& row = *std::prev(after);
  return c <= row.last && (c - row.first) % row.stride == 0 ? &row : nullptr;
}

bool InClass(std::span<const CharRange> ranges, char32_t c) { return FindRow(ranges, c) != nullptr; }

struct CaseTable {
  std::span<const CaseRange> ranges;
  std::span<const CaseExpansion> expansions;
};
constexpr CaseTable kUpperTable = {kToUpper, kToUpperExpansions};
constexpr CaseTable kLowerTable = {kToLower, kToLowerExpansions};
constexpr CaseTable kTitleTable = {kToTitle, kToTitleExpansions};

void AppendMapped(std::string& out, const CaseTable& table, char32_t c) {
  if (c < 0x80) {
    const bool is_letter = &table == &kLowerTable ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z';
    out += static_cast<char>(is_letter ? c ^ 0x20 : c);
    return;
  }
  const auto expansion = std::lower_bound(table.expansions.begin(), table.expansions.end(), c,
                                          [](const CaseExpansion& entry, char32_t x) { return entry.from < x; });
  if (expansion != table.expansions.end() && expansion->from == c) {
    out += expansion->to;
  } else if (const CaseRange* range = FindRow(table.ranges, c)) {
    AppendUtf8(static_cast<char32_t>(static_cast<int64_t>(c) + range->delta), out);
  } else {
    AppendUtf8(c, out);
  }
}

constexpr char32_t kSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

// Characters that a word goes on through: apostrophes, accents, soft hyphens. The marks that Unicode calls case ignorable
// are many; these are the ones beside which a sigma stands in running text.
bool IsCaseIgnorable(char32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xAD || c == 0xAF ||
         c == 0xB4 || c == 0xB7 || c == 0xB8 || (c >= 0x300 && c <= 0x36F) || c == 0x2018 || c == 0x2019;
}

// A sigma that a letter stands before and none after.
bool IsFinalSigma(std::string_view text, size_t pos) {
  size_t before = pos;
  while (true) {
    if (before == 0) return false;
    before = PreviousChar(text, before);
    const char32_t c = DecodeChar(text, before);
    if (IsCaseIgnorable(c)) continue;
    if (!IsCased(c)) return false;
    break;
  }
  for (size_t after = pos + CharLength(text, pos); after < text.size(); after += CharLength(text, after)) {
    const char32_t c = DecodeChar(text, after);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

}  // namespace

void AppendLower(char32_t c, std::string& out) { AppendMapped(out, kLowerTable, c); }

bool IsPrintable(char32_t c) { return c < 0x80 ? c >= 0x20 && c < 0x7F : !InClass(kUnprintable, c); }
bool IsAlpha(char32_t c) { return (ClassesOf(c) & kLetter) != 0; }
bool IsDecimal(char32_t c) { return InClass(kDecimal, c); }
bool IsDigitChar(char32_t c) { return InClass(kDigit, c); }
bool IsNumeric(char32_t c) { return InClass(kNumeric, c); }
bool IsUpper(char32_t c) { return c < 0x80 ? c >= 'A' && c <= 'Z' : InClass(kUpper, c); }
bool IsLower(char32_t c) { return c < 0x80 ? c >= 'a' && c <= 'z' : InClass(kLower, c); }
bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || (c >= 0x80 && InClass(kTitle, c)); }

void AppendChangedCase(TextBuilder& out, const Str& text, CaseChange change) {
  bool within_word = false;  // kTitle: the character before is cased
  bool first = true;
  ForEachRun(text, [&](std::string_view piece, bool caller, size_t begin) {
    std::string changed;
    for (size_t pos = 0; pos < piece.size(); pos += CharLength(piece, pos)) {
      const char32_t c = DecodeChar(piece, pos);
      const bool lower = change == CaseChange::kLower || (change == CaseChange::kSwap && IsUpper(c)) ||
                         (change == CaseChange::kCapitalize && !first) || (change == CaseChange::kTitle && within_word);
      const bool upper = change == CaseChange::kUpper || (change == CaseChange::kSwap && IsLower(c));
      if (change == CaseChange::kSwap && !lower && !upper) {
        AppendUtf8(c, changed);
      } else if (lower && c == kSigma) {
        AppendUtf8(IsFinalSigma(text.bytes, begin + pos) ? kFinalSigma : kSigma + 0x20, changed);
      } else {
        AppendMapped(changed, lower ? kLowerTable : upper ? kUpperTable : kTitleTable, c);
      }
      within_word = IsCased(c);
      first = false;
    }
    out.Append(changed, caller);
  });
}

}  // namespace tidemill::jinja
