#include "text/piece_symbols.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "text/text_table.h"
#include "text/utf8.h"

namespace tidemill {
namespace {

constexpr size_t kNumCodePoints = 0x110000;

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
  std::vector<bool> is_held(with_loose ? kNumCodePoints : 0);  // by pieces of more than one character
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
        is_held[next.code_point] = true;
      }
      if (i > 0 && next.code_point == kPieceSpace && before != kPieceSpace) space_begins_pieces_ = false;
      before = next.code_point;
      rest.remove_prefix(next.length);
    }
  }
  if (with_loose) {
    for (const Entry& entry : others_) is_held[entry.character] = false;
    for (char32_t c = 0; c < kNumCodePoints; ++c) {
      if (is_held[c]) loose_.push_back(c);
    }
  }
  for (size_t i = 0; i < loose_.size(); ++i) others_.push_back({loose_[i], static_cast<int32_t>(num_tokens_ + i)});
  std::sort(others_.begin(), others_.end(), [](const Entry& a, const Entry& b) { return a.character < b.character; });
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
  const auto text_of = [&](int32_t piece) { return pieces[static_cast<size_t>(piece)].text; };
  TextTable piece_by_text(pieces.size());
  std::vector<float> scores;
  scores.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    piece_by_text.Add(static_cast<int32_t>(i), text_of);
    scores.push_back(pieces[i].score);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());

  const auto find_symbol = [&](std::string_view text) -> int32_t {
    const Utf8Char first = DecodeUtf8(text);
    if (first.length == text.size()) return symbols.Find(first.code_point);
    const int32_t found = piece_by_text.Find(text, text_of);
    return found < 0 ? -1 : pieces[static_cast<size_t>(found)].id;
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
