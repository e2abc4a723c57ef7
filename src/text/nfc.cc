#include "text/nfc.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "text/utf8.h"

namespace tidemill {
namespace {

// Hangul: Unicode 16.0, 3.12.
constexpr char32_t kSyllables = 0xAC00;
constexpr char32_t kLeads = 0x1100;
constexpr char32_t kVowels = 0x1161;
constexpr char32_t kTails = 0x11A7;  // one before the first: a syllable without a tail
constexpr char32_t kNumLeads = 19;
constexpr char32_t kNumVowels = 21;
constexpr char32_t kNumTails = 28;
constexpr char32_t kNumSyllables = kNumLeads * kNumVowels * kNumTails;

// Nothing below decomposes or has a combining class.
constexpr char32_t kFirstComposite = 0xC0;

struct NfcChar {
  char32_t code_point = 0;
  uint8_t combining_class = 0;
};

uint8_t CombiningClassOf(char32_t c) {
  const auto ranges = CombiningRanges();
  if (c < ranges.front().first) return 0;
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](char32_t value, const CombiningRange& range) { return value < range.first; });
  const CombiningRange& range = *(after - 1);
  return c <= range.last ? range.combining_class : uint8_t{0};
}

void AppendDecomposed(char32_t c, std::vector<NfcChar>& out) {
  if (c >= kSyllables && c < kSyllables + kNumSyllables) {
    const char32_t index = c - kSyllables;
    out.push_back({kLeads + index / (kNumVowels * kNumTails), 0});
    out.push_back({kVowels + index / kNumTails % kNumVowels, 0});
    if (index % kNumTails != 0) out.push_back({kTails + index % kNumTails, 0});
    return;
  }
  // A step's first part may itself be made of parts, its second never is.
  char32_t seconds[8];
  size_t num_seconds = 0;
  while (c >= kFirstComposite) {
    const auto table = Decompositions();
    const auto found = std::lower_bound(table.begin(), table.end(), c,
                                        [](const Decomposition& d, char32_t value) { return d.code_point < value; });
    if (found == table.end() || found->code_point != c) break;
    if (found->second != 0 && num_seconds < std::size(seconds)) seconds[num_seconds++] = found->second;
    c = found->first;
  }
  out.push_back({c, CombiningClassOf(c)});
  while (num_seconds > 0) {
    const char32_t second = seconds[--num_seconds];
    out.push_back({second, CombiningClassOf(second)});
  }
}

// The code point that (first, second) make; 0 when they make none.
char32_t Compose(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + kNumLeads && second >= kVowels && second < kVowels + kNumVowels) {
    return kSyllables + ((first - kLeads) * kNumVowels + (second - kVowels)) * kNumTails;
  }
  if (first >= kSyllables && first < kSyllables + kNumSyllables && (first - kSyllables) % kNumTails == 0 &&
      second > kTails && second < kTails + kNumTails) {
    return first + (second - kTails);
  }
  const auto parts = Decompositions();
  const auto order = Compositions();
  const std::pair pair{first, second};
  const auto pair_of = [&](uint16_t i) { return std::pair{parts[i].first, parts[i].second}; };
  const auto found =
      std::lower_bound(order.begin(), order.end(), pair,
                       [&](uint16_t i, const std::pair<char32_t, char32_t>& value) { return pair_of(i) < value; });
  return found != order.end() && pair_of(*found) == pair ? parts[*found].code_point : char32_t{0};
}

void SortMarks(std::vector<NfcChar>& chars) {
  auto begin = chars.begin();
  while (begin != chars.end()) {
    const auto end = std::find_if(begin, chars.end(), [](const NfcChar& c) { return c.combining_class == 0; });
    const auto by_class = [](const NfcChar& a, const NfcChar& b) { return a.combining_class < b.combining_class; };
    if (!std::is_sorted(begin, end, by_class)) std::stable_sort(begin, end, by_class);
    begin = end == chars.end() ? end : end + 1;
  }
}

// Appends `chars`, which are decomposed, in order, composed or not, and empties them.
void Flush(std::vector<NfcChar>& chars, bool composes, std::string& out) {
  SortMarks(chars);
  if (!composes) {
    for (const NfcChar& c : chars) AppendUtf8(c.code_point, out);
    chars.clear();
    return;
  }
  size_t kept = 0;  // chars[0, kept) is the composed text so far
  bool has_starter = false;
  size_t starter = 0;  // the last character of class 0 among them
  uint8_t last_class = 0;
  for (size_t i = 0; i < chars.size(); ++i) {
    const NfcChar c = chars[i];
    // Blocked by an equal or higher class between; two characters of class 0 compose only as neighbours.
    const bool reaches = has_starter && (last_class < c.combining_class || (last_class == 0 && starter + 1 == kept));
    if (const char32_t whole = reaches ? Compose(chars[starter].code_point, c.code_point) : 0; whole != 0) {
      chars[starter].code_point = whole;
      continue;
    }
    if (c.combining_class == 0) {
      has_starter = true;
      starter = kept;
    }
    chars[kept++] = c;
    last_class = c.combining_class;
  }
  for (size_t i = 0; i < kept; ++i) AppendUtf8(chars[i].code_point, out);
  chars.clear();
}

std::string Normalize(std::string_view text, bool composes) {
  std::string out;
  out.reserve(text.size());
  std::vector<NfcChar> chars;
  size_t i = 0;
  while (i < text.size()) {
    // Of a run of ASCII only the last character can go together with what follows.
    size_t run = i;
    while (run < text.size() && (text[run] & 0x80) == 0) ++run;
    if (const size_t plain = run == text.size() ? run : std::max(run, i + 1) - 1; plain > i) {
      Flush(chars, composes, out);
      out += text.substr(i, plain - i);
      i = plain;
      continue;
    }
    const Utf8Char next = DecodeUtf8(text.substr(i));
    if (next.status != Utf8Status::kValid) {
      Flush(chars, composes, out);
      out += text[i++];
      continue;
    }
    // ASCII is of class 0 and never the second part of anything: nothing before it changes any more.
    if (next.code_point < 0x80) Flush(chars, composes, out);
    AppendDecomposed(next.code_point, chars);
    i += next.length;
  }
  Flush(chars, composes, out);
  return out;
}

}  // namespace

std::string ToNfc(std::string_view text) { return Normalize(text, true); }
std::string ToNfd(std::string_view text) { return Normalize(text, false); }

}  // namespace tidemill
