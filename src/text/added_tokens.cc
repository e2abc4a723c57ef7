#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tidemill {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  for (const AddedToken& token : tokens_) {
    TIDEMILL_CHECK(!token.text.empty() && token.text.size() <= kMaxAddedTokenBytes);
    begins_[static_cast<uint8_t>(token.text[0])] = true;
  }
}

std::optional<AddedTokens::Match> AddedTokens::FindFirst(const Search& search, size_t from) const {
  if (tokens_.empty()) return std::nullopt;
  // The first range that ends after the place in question.
  auto range = std::partition_point(search.caller.begin(), search.caller.end(),
                                    [from](const ByteRange& r) { return r.end <= from; });
  for (size_t at = from; at < search.text.size(); ++at) {
    if (!begins_[static_cast<uint8_t>(search.text[at])]) continue;
    while (range != search.caller.end() && range->end <= at) ++range;
    const size_t special_end = !search.special                ? at
                               : range == search.caller.end() ? search.text.size()
                                                              : std::max(at, range->begin);
    if (const AddedToken* const token = LongestAt(search.text, at, special_end)) {
      return Match{.begin = at, .end = at + token->text.size(), .id = token->id};
    }
  }
  return std::nullopt;
}

const AddedToken* AddedTokens::LongestAt(std::string_view text, size_t at, size_t special_end) const {
  // [low, high): the tokens that begin with the bytes seen so far; the one that is exactly those bytes stands first.
  auto low = tokens_.begin();
  auto high = tokens_.end();
  const AddedToken* longest = nullptr;
  for (size_t depth = 0; at + depth < text.size(); ++depth) {
    const auto byte = static_cast<uint8_t>(text[at + depth]);
    const auto byte_of = [depth](const AddedToken& token) { return static_cast<uint8_t>(token.text[depth]); };
    low = std::partition_point(low, high, [&](const AddedToken& token) { return byte_of(token) < byte; });
    high = std::partition_point(low, high, [&](const AddedToken& token) { return byte_of(token) == byte; });
    if (low == high) break;
    if (low->text.size() == depth + 1) {
      if (!low->special || at + depth + 1 <= special_end) longest = &*low;
      ++low;
      if (low == high) break;
    }
  }
  return longest;
}

}  // namespace tidemill
