#include "text/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace tidemill {

namespace {

// Bytes that both begin with, of which `known` are known to be equal.
size_t CommonBytes(std::string_view a, std::string_view b, size_t known) {
  const size_t most = std::min(a.size(), b.size());
  size_t count = known;
  constexpr size_t kWord = sizeof(uint64_t);
  while (count + kWord <= most && std::memcmp(a.data() + count, b.data() + count, kWord) == 0) count += kWord;
  while (count < most && a[count] == b[count]) ++count;
  return count;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(tokens_.size() + 1) {
  TIDEMILL_CHECK(tokens_.size() < std::numeric_limits<uint32_t>::max());
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  std::vector<uint32_t> depth(nodes_.size());
  for (uint32_t node = 1; node < nodes_.size(); ++node) {
    const AddedToken& token = tokens_[node - 1];
    TIDEMILL_CHECK(!token.text.empty() && token.text.size() <= kMaxAddedTokenBytes);
    ++first_[static_cast<uint8_t>(token.text[0]) + size_t{1}];
    uint32_t parent = node - 1;  // sorted: the token before this one, or one that it begins with too
    while (parent != 0 && !token.text.starts_with(tokens_[parent - 1].text)) parent = nodes_[parent].parent;
    // The jumps of a skew-binary list: two of equal length become one that spans both.
    const uint32_t jump = nodes_[parent].jump;
    const bool is_pair = depth[parent] - depth[jump] == depth[jump] - depth[nodes_[jump].jump];
    nodes_[node] = {.length = static_cast<uint32_t>(token.text.size()),
                    .parent = parent,
                    .jump = is_pair ? nodes_[jump].jump : parent,
                    .plain = token.special ? nodes_[parent].plain : node};
    depth[node] = depth[parent] + 1;
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  shared_.resize(tokens_.size());
  for (size_t byte = 0; byte < 256; ++byte) FillShared(first_[byte], first_[byte + 1], first_[byte], first_[byte + 1]);
}

void AddedTokens::FillShared(uint32_t begin, uint32_t end, uint32_t low, uint32_t high) {
  if (low == high) return;
  const uint32_t middle = low + (high - low) / 2;
  const std::string_view token = tokens_[middle].text;
  const auto with = [&](uint32_t other) { return static_cast<uint16_t>(CommonBytes(token, tokens_[other].text, 1)); };
  shared_[middle] = {.below = low == begin ? uint16_t{1} : with(low - 1),
                     .above = high == end ? uint16_t{1} : with(high)};
  FillShared(begin, end, low, middle);
  FillShared(begin, end, middle + 1, high);
}

std::optional<AddedTokens::Match> AddedTokens::FindFirst(const Search& search, size_t from) const {
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
    if (const AddedToken* const token = LongestAt(search.text, at, special_end)) {
      return Match{.begin = at, .end = at + token->text.size(), .id = token->id};
    }
  }
  return std::nullopt;
}

uint32_t AddedTokens::AncestorOfLength(uint32_t node, size_t longest) const {
  while (nodes_[node].length > longest) {
    const uint32_t jump = nodes_[node].jump;
    node = nodes_[jump].length > longest ? jump : nodes_[node].parent;
  }
  return node;
}

const AddedToken* AddedTokens::LongestAt(std::string_view text, size_t at, size_t special_end) const {
  const std::string_view rest = text.substr(at);
  const auto byte = static_cast<uint8_t>(rest[0]);
  // The last token that is not behind `rest` in order. What `rest` begins with is it or its ancestor, and all of its ancestors
  // within the `common` bytes are such.
  uint32_t low = first_[byte], high = first_[byte + size_t{1}];
  size_t common = 1, common_above = 1;  // bytes that `rest` shares with the tokens before `low` and at `high`
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    // The neighbour that `rest` is more like: where the token at `middle` is more or less like it than `rest` is, that decides.
    const bool is_low = common >= common_above;
    const size_t known = std::max(common, common_above);
    const size_t shared = is_low ? shared_[middle].below : shared_[middle].above;
    bool is_behind = shared > known ? !is_low : is_low;
    size_t count = std::min(shared, known);
    if (shared == known) {
      const std::string_view token = tokens_[middle].text;
      count = CommonBytes(token, rest, known);
      is_behind = count < token.size() &&
                  (count == rest.size() || static_cast<uint8_t>(token[count]) > static_cast<uint8_t>(rest[count]));
    }
    if (is_behind) {
      high = middle;
      common_above = count;
    } else {
      low = middle + 1;
      common = count;
    }
  }
  if (low == first_[byte]) return nullptr;
  const uint32_t any = AncestorOfLength(low, std::min(common, special_end - at));  // node `low` is token `low` - 1
  const uint32_t plain = nodes_[AncestorOfLength(low, common)].plain;
  const uint32_t longest = std::max(any, plain);  // a longer one stands behind those that it begins with
  return longest == 0 ? nullptr : &tokens_[longest - 1];
}

}  // namespace tidemill
