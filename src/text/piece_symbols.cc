#include "text/piece_symbols.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "base/check.h"
#include "text/utf8.h"

namespace tidemill {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::optional<uint8_t> ReadByteToken(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return std::nullopt;
  const int high = HexDigit(name[3]);
  const int low = HexDigit(name[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

PieceSymbols::PieceSymbols(std::span<const Piece> pieces, size_t num_tokens, bool with_loose)
    : num_tokens_(num_tokens) {
  of_ascii_.fill(-1);
  for (const Piece& piece : pieces) {
    TIDEMILL_CHECK(!piece.text.empty() && piece.text.size() <= kMaxPieceBytes);
    std::string_view rest = piece.text;
    char32_t before = 0;
    for (size_t i = 0; !rest.empty(); ++i) {
      const Utf8Char next = DecodeUtf8(rest);
      TIDEMILL_CHECK(next.status == Utf8Status::kValid);
      if (next.length == piece.text.size()) {
        others_.push_back({next.code_point, piece.id});
      } else if (with_loose) {
        loose_.push_back(next.code_point);
      }
      if (i > 0 && next.code_point == kPieceSpace && before != kPieceSpace) space_begins_pieces_ = false;
      before = next.code_point;
      rest.remove_prefix(next.length);
    }
  }
  const auto by_character = [](const Entry& a, const Entry& b) { return a.character < b.character; };
  std::sort(others_.begin(), others_.end(), by_character);
  std::sort(loose_.begin(), loose_.end());
  loose_.erase(std::unique(loose_.begin(), loose_.end()), loose_.end());
  std::erase_if(loose_, [&](char32_t c) {
    return std::binary_search(others_.begin(), others_.end(), Entry{.character = c}, by_character);
  });
  for (size_t i = 0; i < loose_.size(); ++i) others_.push_back({loose_[i], static_cast<int32_t>(num_tokens_ + i)});
  std::sort(others_.begin(), others_.end(), by_character);
  for (const Entry& entry : others_) {
    if (entry.character < of_ascii_.size()) of_ascii_[entry.character] = entry.symbol;
  }
}

int32_t PieceSymbols::Find(char32_t c) const {
  if (c < of_ascii_.size()) return of_ascii_[c];
  const auto found = std::lower_bound(others_.begin(), others_.end(), c,
                                      [](const Entry& entry, char32_t value) { return entry.character < value; });
  return found != others_.end() && found->character == c ? found->symbol : -1;
}

ScoredMerges MakeScoredMerges(std::span<const Piece> pieces, const PieceSymbols& symbols) {
  std::unordered_map<std::string_view, int32_t> id_by_text;
  id_by_text.reserve(pieces.size());
  std::vector<float> scores;
  scores.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    id_by_text.emplace(piece.text, piece.id);
    scores.push_back(piece.score);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());

  const auto find_symbol = [&](std::string_view text) -> int32_t {
    const Utf8Char first = DecodeUtf8(text);
    if (first.length == text.size()) return symbols.Find(first.code_point);
    const auto found = id_by_text.find(text);
    return found == id_by_text.end() ? -1 : found->second;
  };
  ScoredMerges merges;
  for (const Piece& piece : pieces) {
    const auto rank = static_cast<uint32_t>(
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) - scores.begin());
    for (size_t at = DecodeUtf8(piece.text).length; at < piece.text.size();
         at += DecodeUtf8(piece.text.substr(at)).length) {
      const int32_t left = find_symbol(piece.text.substr(0, at));
      if (left < 0) continue;
      const int32_t right = find_symbol(piece.text.substr(at));
      if (right < 0) continue;
      merges.rules.push_back({left, right, piece.id});
      merges.ranks.push_back(rank);
    }
  }
  return merges;
}

}  // namespace tidemill
