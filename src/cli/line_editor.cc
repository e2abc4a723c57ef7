#include "cli/line_editor.h"

#include <clocale>
#include <cwchar>

#include "cli/utf8.h"

namespace tidemill::cli {
namespace {

constexpr unsigned char kEscape = 0x1B;
constexpr unsigned char Control(char letter) { return static_cast<unsigned char>(letter - '@'); }

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// A newline or tab is kept as it is; other control characters cannot be typed or pasted.
bool IsKept(char32_t code) { return code == '\n' || code == '\t' || (code >= 0x20 && (code < 0x7F || code > 0x9F)); }

}  // namespace

int CharacterWidth(char32_t code) {
  // Widths come from the C library's Unicode tables, which every system has without a locale being installed.
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", static_cast<locale_t>(nullptr));
  if (locale == static_cast<locale_t>(nullptr)) return 1;
  const locale_t before = uselocale(locale);
  const int width = wcwidth(static_cast<wchar_t>(code));
  uselocale(before);
  return width < 0 ? 1 : width;
}

bool LineEditor::asks_for_clear_screen() {
  const bool asks = clear_screen_;
  clear_screen_ = false;
  return asks;
}

size_t LineEditor::Before(size_t offset) const {
  if (offset == 0) return 0;
  --offset;
  while (offset > 0 && IsContinuation(text_[offset])) --offset;
  return offset;
}

size_t LineEditor::After(size_t offset) const {
  if (offset >= text_.size()) return text_.size();
  ++offset;
  while (offset < text_.size() && IsContinuation(text_[offset])) ++offset;
  return offset;
}

size_t LineEditor::WordBefore(size_t offset) const {
  const auto is_blank = [&](size_t i) { return text_[i] == ' ' || text_[i] == '\n' || text_[i] == '\t'; };
  while (offset > 0 && is_blank(offset - 1)) --offset;
  while (offset > 0 && !is_blank(offset - 1)) --offset;
  return offset;
}

size_t LineEditor::WordAfter(size_t offset) const {
  const auto is_blank = [&](size_t i) { return text_[i] == ' ' || text_[i] == '\n' || text_[i] == '\t'; };
  while (offset < text_.size() && is_blank(offset)) ++offset;
  while (offset < text_.size() && !is_blank(offset)) ++offset;
  return offset;
}

void LineEditor::Insert(std::string_view bytes) {
  text_.insert(cursor_, bytes);
  cursor_ += bytes.size();
}

void LineEditor::Erase(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void LineEditor::ShowHistory(size_t index) {
  if (!has_history_index_) {
    typed_ = text_;
    has_history_index_ = true;
  }
  history_index_ = index;
  text_ = index == history_.size() ? typed_ : history_[index];
  cursor_ = text_.size();
}

void LineEditor::MoveInHistory(bool back) {
  const size_t index = has_history_index_ ? history_index_ : history_.size();
  if (back && index > 0) ShowHistory(index - 1);
  if (!back && index < history_.size()) ShowHistory(index + 1);
}

LineEditor::State LineEditor::Feed(unsigned char byte) {
  if (in_escape_) {
    FeedEscape(byte);
    return State::kEditing;
  }
  if (byte == kEscape) {
    in_escape_ = true;
    escape_.clear();
    return State::kEditing;
  }
  if (in_paste_ && byte == '\r') byte = '\n';
  const bool is_text = byte >= 0x20 && byte != 0x7F;
  if (is_text || (in_paste_ && byte != 0x7F)) {
    FeedText(byte);
    return State::kEditing;
  }
  return FeedControl(byte);
}

void LineEditor::FeedText(unsigned char byte) {
  unfinished_ += static_cast<char>(byte);
  const Utf8Character character = CharacterAt(unfinished_, 0);
  if (character.length == unfinished_.size()) {
    if (IsKept(character.code)) Insert(unfinished_);
    unfinished_.clear();
  } else if (unfinished_.size() == 4 || byte < 0x80) {  // not UTF-8: the ASCII byte that ended it counts again
    unfinished_.clear();
    if (byte < 0x80 && IsKept(byte)) Insert(std::string(1, static_cast<char>(byte)));
  }
}

LineEditor::State LineEditor::FeedControl(unsigned char byte) {
  switch (byte) {
    case '\r':
    case '\n':
      if (!text_.empty() && (history_.empty() || history_.back() != text_)) history_.push_back(text_);
      return State::kDone;
    case Control('C'): return State::kAbandoned;
    case Control('D'):
      if (text_.empty()) return State::kEnd;
      Erase(cursor_, After(cursor_));
      break;
    case Control('H'):
    case 0x7F: Erase(Before(cursor_), cursor_); break;
    case Control('A'): cursor_ = 0; break;
    case Control('E'): cursor_ = text_.size(); break;
    case Control('B'): cursor_ = Before(cursor_); break;
    case Control('F'): cursor_ = After(cursor_); break;
    case Control('P'): MoveInHistory(true); break;
    case Control('N'): MoveInHistory(false); break;
    case Control('K'): text_.resize(cursor_); break;
    case Control('U'): Erase(0, cursor_); break;
    case Control('W'): Erase(WordBefore(cursor_), cursor_); break;
    case Control('L'): clear_screen_ = true; break;
    case '\t': Insert("\t"); break;
    default: break;
  }
  return State::kEditing;
}

void LineEditor::FeedEscape(unsigned char byte) {
  constexpr size_t kLongest = 16;  // no key sends more
  const bool is_sequence = !escape_.empty() || byte == '[' || byte == 'O';
  if (!is_sequence) {  // Alt and a key
    in_escape_ = false;
    if (byte == '\r' || byte == '\n') Insert("\n");
    if (byte == 'b') cursor_ = WordBefore(cursor_);
    if (byte == 'f') cursor_ = WordAfter(cursor_);
    return;
  }
  const bool is_last = !escape_.empty() && byte >= 0x40 && byte <= 0x7E;
  if (!is_last) {
    if (escape_.size() < kLongest) escape_ += static_cast<char>(byte);
    return;
  }
  in_escape_ = false;
  if (escape_.size() < kLongest) RunSequence(byte);
}

void LineEditor::RunSequence(unsigned char last) {
  const std::string_view parameters = std::string_view(escape_).substr(1);
  const bool by_words = parameters.ends_with(";5") || parameters.ends_with(";3");
  if (parameters == "200" && last == '~') in_paste_ = true;
  if (parameters == "201" && last == '~') in_paste_ = false;
  if (in_paste_) return;
  switch (last) {
    case 'A': MoveInHistory(true); break;
    case 'B': MoveInHistory(false); break;
    case 'C': cursor_ = by_words ? WordAfter(cursor_) : After(cursor_); break;
    case 'D': cursor_ = by_words ? WordBefore(cursor_) : Before(cursor_); break;
    case 'H': cursor_ = 0; break;
    case 'F': cursor_ = text_.size(); break;
    case '~':
      if (parameters == "1" || parameters == "7") cursor_ = 0;
      if (parameters == "4" || parameters == "8") cursor_ = text_.size();
      if (parameters == "3") Erase(cursor_, After(cursor_));
      break;
    default: break;
  }
}

std::string LineEditor::Redraw(std::string_view prompt, size_t columns) {
  std::string picture;
  if (drawn_cursor_row_ > 0) picture += "\x1b[" + std::to_string(drawn_cursor_row_) + "A";
  picture += "\r\x1b[J";
  Place place, cursor;
  const auto draw = [&](std::string_view text, size_t mark) {
    for (size_t offset = 0; offset <= text.size();) {
      if (offset == mark) cursor = place;
      if (offset == text.size()) break;
      const Utf8Character character = CharacterAt(text, offset);
      const size_t length = character.length == 0 ? 1 : character.length;
      const bool is_newline = character.code == '\n';
      const bool is_tab = character.code == '\t';
      const size_t width = is_newline ? 0 : is_tab ? 1 : static_cast<size_t>(CharacterWidth(character.code));
      if (is_newline || place.column + width > columns) {  // the terminal would wrap by itself, but not all do it alike
        picture += "\r\n";
        ++place.row;
        place.column = 0;
        if (offset == mark && !is_newline) cursor = place;
      }
      if (is_tab) picture += ' ';
      if (!is_newline && !is_tab) picture += text.substr(offset, length);
      place.column += width;
      offset += length;
    }
  };
  draw(prompt, std::string_view::npos);
  draw(text_, cursor_);
  if (cursor.column == columns) {  // behind the last column there is no place to stand
    if (cursor.row == place.row) {
      picture += "\r\n";
      ++place.row;
    }
    cursor = {cursor.row + 1, 0};
  }
  if (place.row > cursor.row) picture += "\x1b[" + std::to_string(place.row - cursor.row) + "A";
  picture += "\r";
  if (cursor.column > 0) picture += "\x1b[" + std::to_string(cursor.column) + "C";
  drawn_cursor_row_ = cursor.row;
  return picture;
}

std::string LineEditor::Leave(std::string_view prompt, size_t columns) {
  cursor_ = text_.size();
  std::string picture = Redraw(prompt, columns) + "\r\n";
  drawn_cursor_row_ = 0;
  return picture;
}

}  // namespace tidemill::cli
