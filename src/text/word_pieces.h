// WordPiece: from the left, always the longest token that the rest of the word begins with; a word of which some rest begins with none, or of
// too many characters, is the unknown token as a whole.                                          arXiv:1609.08144, section 4.1
#ifndef TIDEMILL_TEXT_WORD_PIECES_H_
#define TIDEMILL_TEXT_WORD_PIECES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/piece_trie.h"

namespace tidemill {

class WordPieces {
 public:
  struct Prefixes {
    std::string first;  // of a token that begins a word: "" in tokenizer.json, "▁" in GGUF
    std::string rest;   // of one that goes on: "##" in tokenizer.json, "" in GGUF
  };

  WordPieces() = default;
  WordPieces(std::vector<PieceTrie::Piece> pieces, const Prefixes& prefixes, size_t max_characters);

  // Appends the tokens of `word`; false, and nothing, where it is unknown. Cost: linear in the word, times the longest token.
  bool AppendTokens(std::string_view word, std::vector<int32_t>& out) const;

 private:
  uint32_t Follow(std::string_view text) const;

  PieceTrie trie_;
  uint32_t first_ = PieceTrie::kRoot;  // the nodes behind the prefixes
  uint32_t rest_ = PieceTrie::kRoot;
  size_t max_characters_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_WORD_PIECES_H_
