// Finds the tokens that stand for themselves in text ("<|im_start|>") before it is split into words.
#ifndef TIDEMILL_TEXT_ADDED_TOKENS_H_
#define TIDEMILL_TEXT_ADDED_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tidemill/tokenizer.h"

namespace tidemill {

struct AddedToken {
  std::string_view text;  // not empty, at most kMaxAddedTokenBytes
  int32_t id = 0;
  bool special = false;  // recognised only where the text may contain special tokens
  bool single_word =
      false;            // recognised only between characters that are no part of a word: letters, numbers, marks, _
  bool lstrip = false;  // takes the white space before it along
  bool rstrip = false;  // and behind it
};

// Bounds the cost of a search in text that almost spells a token, again and again: two such texts share at most so many bytes.
inline constexpr size_t kMaxAddedTokenBytes = 1024;

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);  // borrows the texts, which differ from each other

  struct Match {
    size_t begin = 0;  // with the white space that it takes along
    size_t end = 0;
    size_t next = 0;  // where the search goes on: behind the token itself
    int32_t id = 0;
  };
  struct Search {
    std::string_view text;
    bool special = true;  // whether special tokens may be recognised at all
    // Where they may not: sorted, disjoint, none empty; a match that touches one is void.
    std::span<const ByteRange> caller = {};
    mutable ByteRange white = {};  // where the white space was that a token has taken last
  };
  // The first match at or after `from`: leftmost, then longest of those that may be recognised there. The matches before it
  // have taken the text up to `done`.
  // Cost: a step per byte; at a byte that some token begins with, a binary search among those tokens and a step for each length of
  // token that the text begins with there, at most kMaxAddedTokenBytes.
  std::optional<Match> FindFirst(const Search& search, size_t from, size_t done) const;
  std::optional<Match> FindFirst(const Search& search, size_t from) const { return FindFirst(search, from, from); }

  bool empty() const { return tokens_.empty(); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The longest token that begins at `at`; a special one must end at or before `special_end`. Null: none.
  const AddedToken* LongestAt(std::string_view text, size_t at, size_t special_end) const;

  std::vector<AddedToken> tokens_;     // ascending by text
  std::vector<uint32_t> shorter_;      // [tokens]: the longest other token that this one begins with, or kNone
  std::vector<uint32_t> ordinary_;     // [tokens]: the same among those that are not special
  std::array<uint32_t, 257> first_{};  // tokens_[first_[byte], first_[byte + 1]) begin with `byte`
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_ADDED_TOKENS_H_
