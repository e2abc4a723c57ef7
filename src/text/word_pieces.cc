#include "text/word_pieces.h"

#include <utility>

#include "text/utf8.h"

namespace tidemill {

WordPieces::WordPieces(std::vector<PieceTrie::Piece> pieces, const Prefixes& prefixes, size_t max_characters)
    : trie_(std::move(pieces)), max_characters_(max_characters) {
  first_ = Follow(prefixes.first);
  rest_ = Follow(prefixes.rest);
}

uint32_t WordPieces::Follow(std::string_view text) const {
  uint32_t node = PieceTrie::kRoot;
  for (const char byte : text) {
    if (node != PieceTrie::kNowhere) node = trie_.Step(node, static_cast<uint8_t>(byte));
  }
  return node;
}

bool WordPieces::AppendTokens(std::string_view word, std::vector<int32_t>& out) const {
  size_t characters = 0;
  for (size_t at = 0; at < word.size(); at += DecodeUtf8(word.substr(at)).length) ++characters;
  if (characters > max_characters_) return false;
  const size_t kept = out.size();
  for (size_t at = 0; at < word.size();) {
    uint32_t node = at == 0 ? first_ : rest_;
    size_t longest = at;
    int32_t id = -1;
    for (size_t end = at; end < word.size() && node != PieceTrie::kNowhere;) {
      node = trie_.Step(node, static_cast<uint8_t>(word[end++]));
      if (node == PieceTrie::kNowhere || trie_.IdAt(node) < 0) continue;
      longest = end;
      id = trie_.IdAt(node);
    }
    if (id < 0) {
      out.resize(kept);
      return false;
    }
    out.push_back(id);
    at = longest;
  }
  return true;
}

}  // namespace tidemill
