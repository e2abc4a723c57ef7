// The character map of a SentencePiece model: which stretches of text stand for which others ("ﬁ" for "fi"), found in a trie.
//
//   bytes   u32 size of the trie in bytes, little-endian; the trie, a double array of u32 as Darts-clone writes it; then the texts, each
//           with a zero byte behind it. A leaf's value is where its text begins.
#ifndef TIDEMILL_TEXT_CHARS_MAP_H_
#define TIDEMILL_TEXT_CHARS_MAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "tidemill/result.h"

namespace tidemill {

// Which stretches are looked up.
enum class CharsMapSearch : uint8_t {
  kLongest,    // SentencePiece: the longest one that the map has, at each place
  kGraphemes,  // the library `tokenizers`: each grapheme of less than 6 bytes, by the shortest entry it begins with, else its characters
};

class CharsMap {
 public:
  CharsMap() = default;  // maps nothing
  // Errors: kCorruptFile when the sizes contradict each other; those of Regex::Compile.
  static Result<CharsMap> Create(std::string_view bytes, CharsMapSearch search);

  // `text`, mapped. Bytes that are not valid UTF-8 stay. Stops where more than `max_bytes` have come. Errors: those of Regex::Find.
  // Cost: linear, times the longest entry.
  Result<std::string> Map(std::string_view text, size_t max_bytes, Regex::Scratch& scratch, RegexBudget& budget) const;

 private:
  struct Found {
    size_t length = 0;  // bytes of the text; 0: none
    std::string_view replacement;
  };
  // The shortest or longest entry that `text` begins with.
  Found Find(std::string_view text, bool longest) const;
  void AppendMapped(std::string_view grapheme, std::string& out) const;

  std::vector<uint32_t> trie_;
  std::string texts_;
  std::optional<Regex> grapheme_;  // none: the longest entry is looked up
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_CHARS_MAP_H_
