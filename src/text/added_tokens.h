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
};

// Bounds the cost of a search in text that almost spells a token, again and again: two such texts share at most so many bytes.
inline constexpr size_t kMaxAddedTokenBytes = 1024;

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);  // borrows the texts, which differ from each other

  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = 0;
  };
  struct Search {
    std::string_view text;
    bool special = true;  // whether special tokens may be recognised at all
    // Where they may not: sorted, disjoint, none empty; a match that touches one is void.
    std::span<const ByteRange> caller = {};
  };
  // The first match at or after `from`: leftmost, then longest of those that may be recognised there.
  // Cost: a step per byte; at a byte that some token begins with also a binary search, in all of which no more bytes are
  // compared than one token has: kMaxAddedTokenBytes + 60 steps with the worst vocabulary.
  std::optional<Match> FindFirst(const Search& search, size_t from) const;

 private:
  // Token i is node i + 1; its parent is the longest token that it begins with, node 0 (of length 0) where there is none.
  // So the tokens that a text begins with lie on one way to the root.
  struct Node {
    uint32_t length = 0;
    uint32_t parent = 0;
    uint32_t jump = 0;   // an ancestor, chosen so that any other is O(log) jumps and parents away
    uint32_t plain = 0;  // the nearest that is not special, itself included
  };

  // What the binary search over [low, high) needs to know of its middle, for it and for the searches that follow it.
  struct Shared {
    uint16_t below = 1;  // bytes shared with the token before `low`
    uint16_t above = 1;  // and with that at `high`; 1, the byte that all share, where there is none
  };
  void FillShared(uint32_t begin, uint32_t end, uint32_t low, uint32_t high);

  // The longest token that begins at `at`; a special one must end at or before `special_end`. Null: none.
  const AddedToken* LongestAt(std::string_view text, size_t at, size_t special_end) const;
  // `node` or the nearest ancestor that is not longer.
  uint32_t AncestorOfLength(uint32_t node, size_t longest) const;

  std::vector<AddedToken> tokens_;     // ascending by text
  std::vector<Node> nodes_;            // [tokens + 1]
  std::vector<Shared> shared_;         // [tokens]
  std::array<uint32_t, 257> first_{};  // tokens_[first_[byte], first_[byte + 1]) begin with `byte`
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_ADDED_TOKENS_H_
