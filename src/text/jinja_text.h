// Text with provenance: every byte knows whether the caller supplied it (message contents, roles, tools) or the template.
// All text is valid UTF-8, and a range of caller bytes begins and ends between characters.
#ifndef TIDEMILL_TEXT_JINJA_TEXT_H_
#define TIDEMILL_TEXT_JINJA_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_heap.h"
#include "text/utf8.h"
#include "tidemill/tokenizer.h"

namespace tidemill::jinja {

// Borrows from the Heap that made it. `caller` is sorted and disjoint, none is empty; two touch at most where JoinStr joined.
struct Str {
  std::string_view bytes;
  std::span<const ByteRange> caller;
  bool markup = false;  // made by safe or escape: what is added to it is escaped
};

const Str* NewStr(Heap& heap, std::string_view bytes, bool caller);     // copies `bytes`
const Str* BorrowStr(Heap& heap, std::string_view bytes, bool caller);  // `bytes` outlive the Heap
// The bytes [begin, end) of `text`, sharing its memory; markup if it is. Cost: O(log ranges + ranges kept).
const Str* SliceStr(Heap& heap, const Str& text, size_t begin, size_t end);
// `left` and then `right`. Cost: of `right`, where `left` was made so (Heap::Extend).
const Str* JoinStr(Heap& heap, const Str& left, const Str& right, bool markup);
// Below it copying is as good as JoinStr.
inline constexpr size_t kLongText = 2048;
// The same text, marked or not.
const Str* WithMarkup(Heap& heap, const Str& text, bool markup);
// `text` with & < > ' " as entities, as markup; markup stays as it is.
const Str* EscapeStr(Heap& heap, const Str& text);
// Whether the byte at `pos` is the caller's.
bool IsCallerByte(const Str& text, size_t pos);

// Puts a text together, byte by byte with its provenance, and charges the Heap for it as it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(&heap) {}

  void Append(const Str& text) { Append(text, 0, text.bytes.size()); }
  void Append(const Str& text, size_t begin, size_t end);
  void Append(std::string_view bytes, bool caller);
  void AppendCodepoint(char32_t codepoint, bool caller);

  size_t size() const { return bytes_.size(); }
  const Str* Finish(bool markup = false);  // moves the text into the Heap; the builder is empty then
  PromptText TakePrompt();                 // moves the text out

 private:
  void MarkCaller(size_t begin, size_t end);

  Heap* heap_;
  std::string bytes_;
  std::vector<ByteRange> caller_;
};

// Calls visit(piece, caller, begin) for each longest stretch of one provenance, in order.
template <typename Visit>
void ForEachRun(const Str& text, const Visit& visit) {
  size_t at = 0;
  for (const ByteRange& range : text.caller) {
    if (range.begin > at) visit(text.bytes.substr(at, range.begin - at), false, at);
    visit(text.bytes.substr(range.begin, range.end - range.begin), true, range.begin);
    at = range.end;
  }
  if (at < text.bytes.size()) visit(text.bytes.substr(at), false, at);
}

// Characters of valid UTF-8.
size_t CharLength(std::string_view text, size_t pos);    // bytes of the character that begins at `pos`
size_t PreviousChar(std::string_view text, size_t pos);  // where the character before `pos` > 0 begins
char32_t DecodeChar(std::string_view text, size_t pos);
size_t CountChars(std::string_view text);
// Byte offset of character number `index`; text.size() when there are fewer.
size_t ByteOffset(std::string_view text, size_t index);

// What Python's str.isspace and str.splitlines take for white space and for line ends.
bool IsSpace(char32_t codepoint);
bool IsLineEnd(char32_t codepoint);

// [begin, end) without white space, or without any of the characters in `chars`, at the sides asked for.
ByteRange StripRange(std::string_view text, bool left, bool right);
ByteRange StripRange(std::string_view text, std::string_view chars, bool left, bool right);

// Position of `needle` at or after `from` / ending at or before `to`; npos if there is none. Linear whatever the texts are.
size_t FindText(Heap& heap, std::string_view text, std::string_view needle, size_t from);
size_t FindTextBackwards(Heap& heap, std::string_view text, std::string_view needle, size_t to);

// One printable line of at most `max_bytes` bytes for an error message: control characters escaped, the rest cut off.
std::string ForMessage(std::string_view text, size_t max_bytes = 200);

}  // namespace tidemill::jinja

#endif  // TIDEMILL_TEXT_JINJA_TEXT_H_
