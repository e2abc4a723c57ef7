#include "text/jinja_text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

namespace tidemill::jinja {
namespace {

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Knuth, Morris and Pratt: position of the first needle in [text, text_end), or the length of the text.
template <typename Iterator>
size_t FindLinear(Iterator text, size_t text_size, Iterator needle, size_t needle_size) {
  const auto at = [](Iterator base, size_t i) { return base[static_cast<std::ptrdiff_t>(i)]; };
  std::vector<uint32_t> border(needle_size, 0);  // longest proper border of needle[0 .. i]
  for (size_t i = 1, k = 0; i < needle_size; ++i) {
    while (k > 0 && at(needle, i) != at(needle, k)) k = border[k - 1];
    if (at(needle, i) == at(needle, k)) ++k;
    border[i] = static_cast<uint32_t>(k);
  }
  for (size_t i = 0, k = 0; i < text_size; ++i) {
    while (k > 0 && at(text, i) != at(needle, k)) k = border[k - 1];
    if (at(text, i) == at(needle, k)) ++k;
    if (k == needle_size) return i + 1 - needle_size;
  }
  return text_size;
}

constexpr size_t kShortNeedle = 64;  // up to it comparing at each place is fast and its worst case is small

}  // namespace

const Str* BorrowStr(Heap& heap, std::string_view bytes, bool caller) {
  Str text{bytes, {}};
  if (caller && !bytes.empty()) text.caller = {heap.New(ByteRange{0, bytes.size()}), 1};
  return heap.New(text);
}

const Str* NewStr(Heap& heap, std::string_view bytes, bool caller) {
  return BorrowStr(heap, heap.CopyText(bytes), caller);
}

const Str* SliceStr(Heap& heap, const Str& text, size_t begin, size_t end) {
  begin = std::min(begin, text.bytes.size());
  end = std::clamp(end, begin, text.bytes.size());
  Str slice{text.bytes.substr(begin, end - begin), {}, text.markup};
  const auto first = std::partition_point(text.caller.begin(), text.caller.end(),
                                          [begin](const ByteRange& range) { return range.end <= begin; });
  const auto last =
      std::partition_point(first, text.caller.end(), [end](const ByteRange& range) { return range.begin < end; });
  const std::span<ByteRange> ranges = heap.NewArray<ByteRange>(static_cast<size_t>(last - first));
  std::transform(first, last, ranges.begin(), [begin, end](const ByteRange& range) {
    return ByteRange{std::max(range.begin, begin) - begin, std::min(range.end, end) - begin};
  });
  slice.caller = ranges;
  return heap.New(slice);
}

const Str* JoinStr(Heap& heap, const Str& left, const Str& right, bool markup) {
  const std::span<const char> bytes =
      heap.Extend(std::span<const char>(left.bytes), std::span<const char>(right.bytes));
  std::vector<ByteRange> moved(right.caller.begin(), right.caller.end());
  for (ByteRange& range : moved) {
    range.begin += left.bytes.size();
    range.end += left.bytes.size();
  }
  const std::span<const ByteRange> caller =
      moved.empty() ? left.caller : heap.Extend(left.caller, std::span<const ByteRange>(moved));
  return heap.New(Str{{bytes.data(), bytes.size()}, caller, markup});
}

const Str* WithMarkup(Heap& heap, const Str& text, bool markup) {
  return text.markup == markup ? &text : heap.New(Str{text.bytes, text.caller, markup});
}

const Str* EscapeStr(Heap& heap, const Str& text) {
  if (text.markup) return &text;
  heap.Scan(text.bytes.size());
  static constexpr std::string_view kEscaped = "&<>'\"";
  if (text.bytes.find_first_of(kEscaped) == std::string_view::npos) return WithMarkup(heap, text, true);
  TextBuilder out(heap);
  ForEachRun(text, [&out](std::string_view piece, bool caller, size_t) {
    size_t plain = 0;  // start of what needs no escape
    for (size_t at = piece.find_first_of(kEscaped); at != std::string_view::npos;
         at = piece.find_first_of(kEscaped, plain)) {
      static constexpr std::array<std::string_view, 5> kEntities = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
      out.Append(piece.substr(plain, at - plain), caller);
      out.Append(kEntities[kEscaped.find(piece[at])], caller);
      plain = at + 1;
    }
    out.Append(piece.substr(plain), caller);
  });
  return out.Finish(true);
}

bool IsCallerByte(const Str& text, size_t pos) {
  const auto range =
      std::partition_point(text.caller.begin(), text.caller.end(), [pos](const ByteRange& r) { return r.end <= pos; });
  return range != text.caller.end() && range->begin <= pos;
}

void TextBuilder::MarkCaller(size_t begin, size_t end) {
  if (begin == end) return;
  if (!caller_.empty() && caller_.back().end == begin) {
    caller_.back().end = end;
  } else {
    heap_->Charge(sizeof(ByteRange));
    caller_.push_back({begin, end});
  }
}

void TextBuilder::Append(const Str& text, size_t begin, size_t end) {
  if (begin >= end) return;
  heap_->Charge(end - begin);
  const size_t base = bytes_.size();
  bytes_.append(text.bytes.substr(begin, end - begin));
  auto range = std::partition_point(text.caller.begin(), text.caller.end(),
                                    [begin](const ByteRange& r) { return r.end <= begin; });
  for (; range != text.caller.end() && range->begin < end; ++range) {
    MarkCaller(base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin);
  }
}

void TextBuilder::Append(std::string_view bytes, bool caller) {
  heap_->Charge(bytes.size());
  const size_t base = bytes_.size();
  bytes_.append(bytes);
  if (caller) MarkCaller(base, bytes_.size());
}

void TextBuilder::AppendCodepoint(char32_t codepoint, bool caller) {
  std::string bytes;
  AppendUtf8(codepoint, bytes);
  Append(bytes, caller);
}

const Str* TextBuilder::Finish(bool markup) {
  Str text{heap_->AdoptCharged(std::move(bytes_)), heap_->Copy(caller_), markup};
  bytes_.clear();
  caller_.clear();
  return heap_->New(text);
}

PromptText TextBuilder::TakePrompt() { return {std::move(bytes_), std::move(caller_)}; }

size_t CharLength(std::string_view text, size_t pos) {
  const auto lead = static_cast<unsigned char>(text[pos]);
  const size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  return std::min(length, text.size() - pos);
}

size_t PreviousChar(std::string_view text, size_t pos) {
  --pos;
  while (pos > 0 && IsContinuation(text[pos])) --pos;
  return pos;
}

char32_t DecodeChar(std::string_view text, size_t pos) {
  const size_t length = CharLength(text, pos);
  const auto byte = [&text, pos](size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[pos + k])); };
  switch (length) {
    case 1: return byte(0);
    case 2: return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3: return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default: return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

namespace {

// How many of the eight bytes at `text` begin a character.
size_t CharsOfWord(const char* text) {
  uint64_t word = 0;
  std::memcpy(&word, text, sizeof word);
  const uint64_t continuation = (word >> 7) & (~word >> 6) & 0x0101010101010101U;
  return 8 - static_cast<size_t>((continuation * 0x0101010101010101U) >> 56);
}

}  // namespace

size_t CountChars(std::string_view text) {
  size_t chars = 0;
  size_t pos = 0;
  for (; pos + 8 <= text.size(); pos += 8) chars += CharsOfWord(text.data() + pos);
  for (; pos < text.size(); ++pos) chars += IsContinuation(text[pos]) ? size_t{0} : size_t{1};
  return chars;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t pos = 0;
  while (pos + 8 <= text.size()) {
    const size_t chars = CharsOfWord(text.data() + pos);
    if (chars > index) break;
    index -= chars;
    pos += 8;
  }
  while (pos < text.size() && IsContinuation(text[pos])) ++pos;  // of a character that began before
  while (index > 0 && pos < text.size()) {
    pos += CharLength(text, pos);
    --index;
  }
  return pos;
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

namespace {

template <typename Predicate>
ByteRange StripWhere(std::string_view text, bool left, bool right, const Predicate& strip) {
  ByteRange kept{0, text.size()};
  while (left && kept.begin < kept.end && strip(kept.begin)) kept.begin += CharLength(text, kept.begin);
  while (right && kept.begin < kept.end) {
    const size_t last = PreviousChar(text, kept.end);
    if (!strip(last)) break;
    kept.end = last;
  }
  return kept;
}

}  // namespace

ByteRange StripRange(std::string_view text, bool left, bool right) {
  return StripWhere(text, left, right, [text](size_t pos) { return IsSpace(DecodeChar(text, pos)); });
}

ByteRange StripRange(std::string_view text, std::string_view chars, bool left, bool right) {
  return StripWhere(text, left, right, [text, chars](size_t pos) {
    return chars.find(text.substr(pos, CharLength(text, pos))) != std::string_view::npos;
  });
}

size_t FindText(Heap& heap, std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size() || needle.size() > text.size() - from) return std::string_view::npos;
  if (needle.empty()) return from;
  if (needle.size() > kShortNeedle) {
    const size_t found = from + FindLinear(text.data() + from, text.size() - from, needle.data(), needle.size());
    heap.Work(1 + (found - from + needle.size()) / 4);
    return found == text.size() ? std::string_view::npos : found;
  }
  const size_t last = text.size() - needle.size();
  for (size_t at = from;; ++at) {  // a step for each place where the first character stands
    const size_t found = text.substr(0, last + 1).find(needle.front(), at);
    heap.Scan(std::min(found, last) - at);
    if (found == std::string_view::npos) return found;
    if (std::memcmp(text.data() + found, needle.data(), needle.size()) == 0) return found;
    at = found;
    if (at == last) return std::string_view::npos;
  }
}

size_t FindTextBackwards(Heap& heap, std::string_view text, std::string_view needle, size_t to) {
  text = text.substr(0, to);
  if (needle.size() > text.size()) return std::string_view::npos;
  size_t found = std::string_view::npos;
  if (needle.size() <= kShortNeedle) {
    found = text.rfind(needle);
  } else {
    const size_t skipped = FindLinear(text.rbegin(), text.size(), needle.rbegin(), needle.size());
    if (skipped != text.size()) found = text.size() - skipped - needle.size();
  }
  heap.Work(1 + (text.size() - (found == std::string_view::npos ? 0 : found)) / 4);
  return found;
}

std::string ForMessage(std::string_view text, size_t max_bytes) {
  std::string line;
  for (size_t i = 0; i < text.size();) {
    if (line.size() >= max_bytes) return line + "...";
    const size_t length = CharLength(text, i);
    const char32_t c = DecodeChar(text, i);
    if (c == '\n') {
      line += "\\n";
    } else if (c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || (c >= 0x202A && c <= 0x202E) ||
               (c >= 0x2066 && c <= 0x2069)) {
      constexpr std::string_view kHex = "0123456789abcdef";
      line += "\\u";
      for (const unsigned shift : {12u, 8u, 4u, 0u}) line += kHex[c >> shift & 0xF];
    } else {
      line += text.substr(i, length);
    }
    i += length;
  }
  return line;
}

}  // namespace tidemill::jinja
