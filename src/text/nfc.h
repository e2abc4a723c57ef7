// Unicode's normalisation form C, which some vocabularies want their text in: what can be one code point is one ("e" and a
// combining acute become U+00E9), marks stand in a fixed order. The tables are those of the PyPI package `tokenizers`, so
// that ids are the original's; ICU and utf8proc follow newer Unicode versions than it does.
#ifndef TIDEMILL_TEXT_NFC_H_
#define TIDEMILL_TEXT_NFC_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tidemill {

// `text` in NFC. A byte that is not part of valid UTF-8 stays as it is, and nothing is composed or moved across it.
// Idempotent. Cost: O(n log n) in a text of marks alone, else linear; the result has at most 3 times the bytes.
std::string ToNfc(std::string_view text);

// `text` in NFD, where what can be several code points is: the same, without composing.
std::string ToNfd(std::string_view text);

// The tables, from nfc_table.cc, which is generated. Hangul syllables are not in them: they follow a formula.

// What a code point is made of, in one step; `second` is 0 where it only stands for another.
struct Decomposition {
  char32_t code_point = 0;
  char32_t first = 0;
  char32_t second = 0;
};

struct CombiningRange {
  char32_t first = 0;
  char32_t last = 0;
  uint8_t combining_class = 0;
};

std::span<const Decomposition> Decompositions();    // ascending by code point
std::span<const uint16_t> Compositions();           // indices into them of those that NFC undoes, ascending by pair
std::span<const CombiningRange> CombiningRanges();  // ascending, disjoint; what lies between has class 0

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_NFC_H_
