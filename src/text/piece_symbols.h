// What merging starts from in a SentencePiece-style vocabulary: characters, of which each has a symbol. Symbols are the
// vocabulary's ids, and beyond them one for each "loose" character: it is no token itself, but tokens hold it.
#ifndef TIDEMILL_TEXT_PIECE_SYMBOLS_H_
#define TIDEMILL_TEXT_PIECE_SYMBOLS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "text/byte_pair_merger.h"

namespace tidemill {

// How such vocabularies spell a space: U+2581, lower one eighth block.
inline constexpr char32_t kPieceSpace = 0x2581;
inline constexpr std::string_view kPieceSpaceUtf8 = "\xE2\x96\x81";

// Bounds the work of finding the ways in which two tokens make a third.
inline constexpr size_t kMaxPieceBytes = 512;

// A token that merging may make.
struct Piece {
  std::string_view text;  // borrowed; valid UTF-8, neither empty nor longer than kMaxPieceBytes
  int32_t id = 0;
  float score = 0;
};

// The byte that "<0x0A>" names.
std::optional<uint8_t> ReadByteToken(std::string_view name);

class PieceSymbols {
 public:
  PieceSymbols() = default;
  // `with_loose`: whether characters that are no token get a symbol. The texts of `pieces` differ.
  PieceSymbols(std::span<const Piece> pieces, size_t num_tokens, bool with_loose);

  int32_t Find(char32_t c) const;  // -1: no symbol
  size_t num_symbols() const { return num_tokens_ + loose_.size(); }
  bool IsLoose(int32_t symbol) const { return static_cast<size_t>(symbol) >= num_tokens_; }
  char32_t LooseCharacter(int32_t symbol) const { return loose_[static_cast<size_t>(symbol) - num_tokens_]; }
  // Whether no piece has a space after another character: then no merge reaches over such a place.
  bool space_begins_pieces() const { return space_begins_pieces_; }

 private:
  struct Entry {
    char32_t character = 0;
    int32_t symbol = 0;
  };

  std::array<int32_t, 128> of_ascii_{};
  std::vector<Entry> others_;    // ascending by character
  std::vector<char32_t> loose_;  // ascending; symbol num_tokens_ + i
  size_t num_tokens_ = 0;
  bool space_begins_pieces_ = true;
};

// Merging by score: two symbols whose texts together are a piece make it, the piece of highest score first, the leftmost of
// equals. These are the rules of that, with equal ranks for equal scores.                     arXiv:1808.06226, section 3.1
// Cost: O(n log n) in the bytes of the pieces, times the length of the longest in the worst case.
struct ScoredMerges {
  std::vector<MergeRule> rules;
  std::vector<uint32_t> ranks;  // one per rule
};
ScoredMerges MakeScoredMerges(std::span<const Piece> pieces, const PieceSymbols& symbols);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_PIECE_SYMBOLS_H_
