// Unigram: of all ways to cut a word into tokens, the one whose scores have the highest sum. A character that no token is costs the
// lowest score less 10, and stands for the unknown token. Ties go to the cut that ends in the longer token.
//                                                                                  arXiv:1808.06226, section 3.2
#ifndef TIDEMILL_TEXT_UNIGRAM_H_
#define TIDEMILL_TEXT_UNIGRAM_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/piece_trie.h"

namespace tidemill {

class Unigram {
 public:
  // A stretch of the word: a token, or, with id -1, unknown characters, which are one stretch where they follow each other.
  struct Part {
    std::string_view text;
    int32_t id = -1;
  };
  // Memory that calls reuse: one per thread, 16 bytes for each byte of the longest word.
  class Scratch {
    friend class Unigram;
    struct Best {
      double score;
      uint32_t length;  // bytes of the last token; 0: nothing ends here
      int32_t id;       // -1: unknown
    };
    std::vector<Best> best_;
  };

  Unigram() = default;
  // `scores`: by id, all finite. `pieces`: what text may become.
  Unigram(std::vector<PieceTrie::Piece> pieces, std::vector<double> scores);

  // The parts of `word`, which has less than 2^32 bytes, in order. A byte that is not valid UTF-8 is an unknown character.
  // Cost: linear in the word, times the longest token.
  void Cut(std::string_view word, Scratch& scratch, std::vector<Part>& parts) const;

 private:
  PieceTrie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_UNIGRAM_H_
