// Cuts text into words, the units inside which byte pairs merge. Each rule gives the pieces that a published regular
// expression gives (in the original: all matches, and what lies between them, from left to right), written out by hand:
//
//   kGpt2            's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   kDigitsThenGpt2  every number (one code point) is a word of its own; the stretches between numbers by kGpt2, each as a
//                    text of its own
//   kLlama3          (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
//                    \s*[\r\n]+|\s+(?!\S)|\s+
//   kQwen2           as kLlama3, with \p{N} for \p{N}{1,3}. The original first normalises text to NFC, see nfc.h; GGUF files do not
//                    say so, and from them text that is not NFC gets other, equally decodable ids, as llama.cpp's are
//
// A byte that is not part of valid UTF-8 counts as one code point without a class: no letter, number or space.
// The words, joined, are the text. Cost: linear in the text, whatever it is; no allocation, no recursion.
#ifndef TIDEMILL_TEXT_WORD_SPLITTER_H_
#define TIDEMILL_TEXT_WORD_SPLITTER_H_

#include <cstddef>
#include <optional>
#include <string_view>

namespace tidemill {

enum class WordRule { kGpt2, kDigitsThenGpt2, kLlama3, kQwen2 };

// The rule that gives the matches of `expression`, written as files write it. Nothing for another one.
std::optional<WordRule> FindWordRule(std::string_view expression);

// The expression of a rule but kDigitsThenGpt2, which are two.
std::string_view ExpressionOf(WordRule rule);

class WordSplitter {
 public:
  WordSplitter(WordRule rule, std::string_view text) : rule_(rule), text_(text) {}  // borrows `text`

  // The next word; empty when the text is used up.
  std::string_view Next();

 private:
  WordRule rule_;
  std::string_view text_;
  size_t position_ = 0;
  size_t stretch_end_ = 0;  // kDigitsThenGpt2: where the stretch without numbers that holds position_ ends
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_WORD_SPLITTER_H_
