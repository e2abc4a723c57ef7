#include "text/chars_map.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "text/utf8.h"

namespace tidemill {
namespace {

constexpr size_t kMaxMappedGrapheme = 5;  // bytes
// No published map has longer entries; a trie with a circle, or texts without an end, would else cost a long search at each byte.
constexpr size_t kMaxEntryBytes = 64;
constexpr size_t kMaxReplacementBytes = 512;

// One unit of the trie.
bool HasLeaf(uint32_t unit) { return ((unit >> 8) & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000FF; }
size_t OffsetOf(uint32_t unit) { return size_t{unit >> 10} << ((unit & 0x200) >> 6); }

}  // namespace

Result<CharsMap> CharsMap::Create(std::string_view bytes, CharsMapSearch search) {
  CharsMap map;
  if (search == CharsMapSearch::kGraphemes) {
    TIDEMILL_TRY(grapheme, Regex::Compile(R"(\X)"));
    map.grapheme_ = std::move(grapheme);
  }
  if (bytes.empty()) return map;
  uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof(trie_bytes)) std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  if (bytes.size() < sizeof(trie_bytes) || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - sizeof(trie_bytes)) {
    return Error(ErrorCode::kCorruptFile,
                 "character map: expected the size of its trie, whole numbers of 4 bytes within " +
                     std::to_string(bytes.size()) + ", found " + std::to_string(trie_bytes));
  }
  map.trie_.resize(trie_bytes / 4);
  if (trie_bytes > 0) std::memcpy(map.trie_.data(), bytes.data() + sizeof(trie_bytes), trie_bytes);
  map.texts_ = bytes.substr(sizeof(trie_bytes) + trie_bytes);
  return map;
}

CharsMap::Found CharsMap::Find(std::string_view text, bool longest) const {
  Found found;
  if (trie_.empty()) return found;
  size_t node = OffsetOf(trie_[0]);
  for (size_t i = 0; i < std::min(text.size(), kMaxEntryBytes); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= trie_.size() || LabelOf(trie_[node]) != byte) break;
    const uint32_t unit = trie_[node];
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= trie_.size() || ValueOf(trie_[node]) >= texts_.size()) break;
    const size_t begin = ValueOf(trie_[node]);
    const std::string_view rest = std::string_view(texts_).substr(begin, kMaxReplacementBytes);
    const size_t end = rest.find('\0');
    if (end == std::string_view::npos) break;
    found = {.length = i + 1, .replacement = rest.substr(0, end)};
    if (!longest) break;
  }
  return found;
}

void CharsMap::AppendMapped(std::string_view grapheme, std::string& out) const {
  if (grapheme.size() <= kMaxMappedGrapheme) {
    if (const Found found = Find(grapheme, false); found.length > 0) {
      out += found.replacement;
      return;
    }
  }
  while (!grapheme.empty()) {
    const std::string_view character = grapheme.substr(0, DecodeUtf8(grapheme).length);
    const Found found = Find(character, false);
    out += found.length > 0 ? found.replacement : character;
    grapheme.remove_prefix(character.size());
  }
}

Result<std::string> CharsMap::Map(std::string_view text, size_t max_bytes, Regex::Scratch& scratch,
                                  RegexBudget& budget) const {
  std::string out;
  out.reserve(text.size());
  if (!grapheme_) {
    while (!text.empty() && out.size() <= max_bytes) {
      const Found found = Find(text, true);
      const size_t length = found.length > 0 ? found.length : DecodeUtf8(text).length;
      out += found.length > 0 ? found.replacement : text.substr(0, length);
      text.remove_prefix(length);
    }
    return out;
  }
  while (!text.empty() && out.size() <= max_bytes) {
    // A stretch of valid characters, then a byte that is none.
    size_t valid = 0;
    while (valid < text.size()) {
      const Utf8Char next = DecodeUtf8(text.substr(valid));
      if (next.status != Utf8Status::kValid) break;
      valid += next.length;
    }
    for (size_t at = 0; at < valid && out.size() <= max_bytes;) {
      size_t end = at + 1;
      // Two characters of ASCII are two graphemes, but for a line's end.
      if ((text[at] & 0x80) != 0 || text[at] == '\r' || (end < valid && (text[end] & 0x80) != 0)) {
        TIDEMILL_TRY(match, grapheme_->Find(text.substr(0, valid), at, scratch, budget));
        end = match ? match->end : valid;
      }
      AppendMapped(text.substr(at, end - at), out);
      at = end;
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += text[0];
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace tidemill
