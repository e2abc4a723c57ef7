// One message being typed: bytes from a terminal in raw mode go in, text and a picture of it come out. Knows no terminal.
#ifndef TIDEMILL_CLI_LINE_EDITOR_H_
#define TIDEMILL_CLI_LINE_EDITOR_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tidemill::cli {

// Columns that a character takes on a terminal: 0, 1 or 2.
int CharacterWidth(char32_t code);

class LineEditor {
 public:
  enum class State {
    kEditing,
    kDone,       // Enter
    kEnd,        // Ctrl-D with nothing typed
    kAbandoned,  // Ctrl-C
  };

  explicit LineEditor(std::vector<std::string>& history) : history_(history) {}  // borrowed; Enter appends to it

  // The next byte as it was typed or pasted. Arrows, Home, End, Delete, Ctrl-A E B F P N H D K U W L, Alt-B F, Ctrl- or
  // Alt-arrows; Alt-Enter begins a line within the message; pasted line ends do, too. Bytes that are not UTF-8 are dropped.
  State Feed(unsigned char byte);

  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // byte offset in text()
  bool asks_for_clear_screen();              // Ctrl-L was typed since the last call

  // Terminal output that replaces the picture drawn last by the present one, and leaves the cursor where it belongs.
  std::string Redraw(std::string_view prompt, size_t columns);
  // The same for the last picture: the cursor goes to a new line below the text.
  std::string Leave(std::string_view prompt, size_t columns);

 private:
  struct Place {
    size_t row = 0, column = 0;
  };

  State FeedControl(unsigned char byte);
  void FeedEscape(unsigned char byte);
  void RunSequence(unsigned char last);
  void FeedText(unsigned char byte);
  void Insert(std::string_view bytes);
  void Erase(size_t begin, size_t end);
  void ShowHistory(size_t index);
  void MoveInHistory(bool back);
  size_t Before(size_t offset) const;  // the start of the character that ends there
  size_t After(size_t offset) const;
  size_t WordBefore(size_t offset) const;
  size_t WordAfter(size_t offset) const;

  std::vector<std::string>& history_;
  std::string text_;
  size_t cursor_ = 0;
  std::string unfinished_;  // bytes of a character that is not whole yet
  std::string escape_;      // bytes of an escape sequence after ESC; empty and in_escape_: ESC only
  bool in_escape_ = false;
  bool in_paste_ = false;
  bool clear_screen_ = false;
  size_t history_index_ = 0;  // history_.size(): what is being typed
  bool has_history_index_ = false;
  std::string typed_;            // what was being typed before history was shown
  size_t drawn_cursor_row_ = 0;  // where the last picture left the cursor, from its first row
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_LINE_EDITOR_H_
