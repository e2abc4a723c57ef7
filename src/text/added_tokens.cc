#include "text/added_tokens.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "text/nfc.h"
#include "text/unicode_class.h"
#include "text/utf8.h"
#include "text/white_space.h"

namespace tidemill {
namespace {

bool IsWordCharacter(const Utf8Char& c) {
  if (c.status != Utf8Status::kValid) return false;
  if (c.code_point == '_' || c.code_point == 0x200C || c.code_point == 0x200D ||
      (ClassesOf(c.code_point) & (kLetter | kNumber)) != 0)
    return true;
  const auto marks = CombiningRanges();
  const auto after = std::upper_bound(marks.begin(), marks.end(), c.code_point,
                                      [](char32_t value, const CombiningRange& range) { return value < range.first; });
  return after != marks.begin() && c.code_point <= after[-1].last;
}

bool BeginsWithWord(std::string_view text) { return !text.empty() && IsWordCharacter(DecodeUtf8(text)); }
bool EndsWithWord(std::string_view text) { return !text.empty() && IsWordCharacter(DecodeLastUtf8(text)); }

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), shorter_(tokens_.size()), ordinary_(tokens_.size()) {
  TIDEMILL_CHECK(tokens_.size() < kNone);
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = tokens_[i].text;
    TIDEMILL_CHECK(!text.empty() && text.size() <= kMaxAddedTokenBytes);
    ++first_[static_cast<uint8_t>(text[0]) + size_t{1}];
    // Sorted: it is the token before this one, or one that that one begins with, too.
    uint32_t shorter = i == 0 ? kNone : i - 1;
    while (shorter != kNone && !text.starts_with(tokens_[shorter].text)) shorter = shorter_[shorter];
    shorter_[i] = shorter;
    ordinary_[i] = shorter == kNone || !tokens_[shorter].special ? shorter : ordinary_[shorter];
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

std::optional<AddedTokens::Match> AddedTokens::FindFirst(const Search& search, size_t from, size_t done) const {
  if (tokens_.empty()) return std::nullopt;
  // The first range that ends after the place in question.
  auto range = std::partition_point(search.caller.begin(), search.caller.end(),
                                    [from](const ByteRange& r) { return r.end <= from; });
  for (size_t at = from; at < search.text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(search.text[at]);
    if (first_[byte] == first_[byte + size_t{1}]) continue;
    while (range != search.caller.end() && range->end <= at) ++range;
    const size_t special_end = !search.special                ? at
                               : range == search.caller.end() ? search.text.size()
                                                              : std::max(at, range->begin);
    const AddedToken* const token = LongestAt(search.text, at, special_end);
    if (token == nullptr) continue;
    const size_t end = at + token->text.size();
    if (token->single_word && (EndsWithWord(search.text.substr(0, at)) || BeginsWithWord(search.text.substr(end)))) {
      at = end - 1;
      continue;
    }
    Match match = {.begin = at, .end = end, .next = end, .id = token->id};
    if (token->rstrip) {
      // One run of white space is looked through once, whatever tokens it is made of.
      if (end < search.white.begin || end > search.white.end) search.white = {end, WhiteSpaceEnd(search.text, end)};
      match.end = search.white.end;
    }
    if (token->lstrip) {
      match.begin = std::max(WhiteSpaceBegin(search.text.substr(0, at), std::min(done, at)), done);
      if (match.begin >= match.end) {  // the token before has taken all of it
        done = std::max(done, match.end);
        at = end - 1;
        continue;
      }
    }
    return match;
  }
  return std::nullopt;
}

const AddedToken* AddedTokens::LongestAt(std::string_view text, size_t at, size_t special_end) const {
  const std::string_view rest = text.substr(at, kMaxAddedTokenBytes);
  const auto byte = static_cast<uint8_t>(rest[0]);
  const auto begin = tokens_.begin() + first_[byte], end = tokens_.begin() + first_[byte + size_t{1}];
  const auto behind = std::upper_bound(
      begin, end, rest, [](std::string_view value, const AddedToken& token) { return value < token.text; });
  // What `rest` begins with is the last token that is not behind it in order, or what that one begins with.
  if (behind == begin) return nullptr;
  const auto mismatch = std::mismatch(rest.begin(), rest.end(), behind[-1].text.begin(), behind[-1].text.end());
  const auto common = static_cast<size_t>(mismatch.first - rest.begin());
  const std::vector<uint32_t>& next = special_end > at ? shorter_ : ordinary_;
  for (auto i = static_cast<uint32_t>(behind - tokens_.begin() - 1); i != kNone; i = next[i]) {
    const AddedToken& token = tokens_[i];
    if (token.text.size() <= common && (!token.special || at + token.text.size() <= special_end)) return &token;
  }
  return nullptr;
}

}  // namespace tidemill
