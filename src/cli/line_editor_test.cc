#include "cli/line_editor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemill::cli::line_editor_test {
namespace {

using ::testing::ElementsAre;

// The text after `keys` were typed, with a | where the cursor stands.
std::string Typed(const std::string& keys, std::vector<std::string> history = {}) {
  LineEditor editor(history);
  for (const char key : keys) EXPECT_EQ(editor.Feed(static_cast<unsigned char>(key)), LineEditor::State::kEditing);
  std::string text = editor.text();
  return text.insert(editor.cursor(), "|");
}

// A terminal of `columns` that knows what the editor sends: shows the rows and the cursor.
class Screen {
 public:
  explicit Screen(size_t columns) : columns_(columns), rows_(1) {}

  void Show(const std::string& bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == '\r') {
        column_ = 0;
      } else if (bytes[i] == '\n') {
        if (++row_ == rows_.size()) rows_.emplace_back();
      } else if (bytes[i] == '\x1b') {
        size_t end = i + 2, number = 0;
        for (; std::isdigit(static_cast<unsigned char>(bytes[end])) != 0; ++end)
          number = number * 10 + size_t(bytes[end] - '0');
        Run(bytes[end], number);
        i = end;
      } else {
        ASSERT_LT(column_, columns_) << "wrote behind the last column";
        rows_[row_].resize(std::max(rows_[row_].size(), column_ + 1), ' ');
        rows_[row_][column_++] = bytes[i];
      }
    }
  }
  const std::vector<std::string>& rows() const { return rows_; }
  size_t row() const { return row_; }
  size_t column() const { return column_; }

 private:
  void Run(char command, size_t number) {
    if (command == 'A') {
      ASSERT_LE(number, row_);
      row_ -= number;
    } else if (command == 'C') {
      column_ += number;
    } else if (command == 'J') {
      rows_.resize(row_ + 1);
      rows_[row_].resize(std::min(rows_[row_].size(), column_));
    } else {
      FAIL() << "an unknown sequence ends with " << command;
    }
  }

  size_t columns_;
  std::vector<std::string> rows_;
  size_t row_ = 0, column_ = 0;
};

TEST(LineEditor, Keys_MoveAndErase) {
  EXPECT_EQ(Typed("abc"), "abc|");
  EXPECT_EQ(Typed("abc\x02\x02X"), "aX|bc");            // Ctrl-B
  EXPECT_EQ(Typed("abc\x1b[D\x1b[DX\x1b[C"), "aXb|c");  // arrows
  EXPECT_EQ(Typed("abc\x01X\x05Y"), "XabcY|");          // Ctrl-A, Ctrl-E
  EXPECT_EQ(Typed("abc\x1b[HX\x1b[FY"), "XabcY|");      // Home, End
  EXPECT_EQ(Typed("abc\x1b[1~X\x1b[4~Y"), "XabcY|");
  EXPECT_EQ(Typed("abc\x1bOHX"), "X|abc");
  EXPECT_EQ(Typed("abc\x7f\x08"), "a|");
  EXPECT_EQ(Typed("abc\x01\x1b[3~"), "|bc");   // Delete
  EXPECT_EQ(Typed("abc\x01\x04"), "|bc");      // Ctrl-D
  EXPECT_EQ(Typed("one two  \x17"), "one |");  // Ctrl-W
  EXPECT_EQ(Typed("one two\x1b"
                  "b\x0b"),
            "one |");                                // Alt-B, Ctrl-K
  EXPECT_EQ(Typed("one two\x1b[1;5D\x15"), "|two");  // Ctrl-Left, Ctrl-U
  EXPECT_EQ(Typed("\x7f\x1b[D\x1b[3~x"), "x|");
}

TEST(LineEditor, Characters_StayWhole) {
  EXPECT_EQ(Typed("a\xc3\xa4\xf0\x9f\x8c\x8a\x7f"), "a\xc3\xa4|");
  EXPECT_EQ(Typed("a\xc3\xa4\x1b[DX"), "aX|\xc3\xa4");
  EXPECT_EQ(Typed("\xff\xfe\x80z"), "z|");                // not UTF-8
  EXPECT_EQ(Typed("\x1b[99999999999999999999zz"), "z|");  // no key sends that much: passed over up to its end
}

TEST(LineEditor, Paste_KeepsItsLines) {
  EXPECT_EQ(Typed("\x1b[200~one\rtwo\n\x03three\x1b[201~"), "one\ntwo\nthree|");
  EXPECT_EQ(Typed("one\x1b\rtwo"), "one\ntwo|");  // Alt-Enter
}

TEST(LineEditor, History_ComesBackAndWhatWasTypedStays) {
  const std::vector<std::string> history = {"first", "second"};
  EXPECT_EQ(Typed("new\x1b[A", history), "second|");
  EXPECT_EQ(Typed("new\x10\x10\x10", history), "first|");
  EXPECT_EQ(Typed("new\x10\x10\x0e\x0e\x0e", history), "new|");
}

TEST(LineEditor, Ends_AreToldApart) {
  std::vector<std::string> history;
  EXPECT_EQ(LineEditor(history).Feed(4), LineEditor::State::kEnd);
  EXPECT_EQ(LineEditor(history).Feed(3), LineEditor::State::kAbandoned);
  EXPECT_EQ(LineEditor(history).Feed('\r'), LineEditor::State::kDone);
  for (int i = 0; i < 2; ++i) {
    LineEditor editor(history);
    editor.Feed('x');
    EXPECT_EQ(editor.Feed('\r'), LineEditor::State::kDone);
  }
  EXPECT_THAT(history, ElementsAre("x"));  // neither empty lines nor repetitions
}

TEST(LineEditor, Picture_WrapsAndFollowsTheCursor) {
  std::vector<std::string> history;
  LineEditor editor(history);
  Screen screen(10);
  const auto type = [&](const std::string& keys) {
    for (const char key : keys) {
      editor.Feed(static_cast<unsigned char>(key));
      screen.Show(editor.Redraw(">>> ", 10));
    }
  };
  type("abcdef");
  EXPECT_THAT(screen.rows(), ElementsAre(">>> abcdef", ""));  // the cursor has no place in a full row
  EXPECT_EQ(screen.row(), 1U);
  EXPECT_EQ(screen.column(), 0U);
  type("gh\x1b\rij");
  EXPECT_THAT(screen.rows(), ElementsAre(">>> abcdef", "gh", "ij"));
  type("\x01X");
  EXPECT_THAT(screen.rows(), ElementsAre(">>> Xabcde", "fgh", "ij"));
  EXPECT_EQ(screen.row(), 0U);
  EXPECT_EQ(screen.column(), 5U);
  type("\x0b");
  EXPECT_THAT(screen.rows(), ElementsAre(">>> X"));
  screen.Show(editor.Leave(">>> ", 10));
  EXPECT_EQ(screen.row(), 1U);
  EXPECT_EQ(screen.column(), 0U);
}

TEST(CharacterWidth, WideAndCombining_AreKnown) {
  if (CharacterWidth(U'\u4E2D') == 1) GTEST_SKIP() << "the C library has no locale C.UTF-8";
  EXPECT_EQ(CharacterWidth(U'a'), 1);
  EXPECT_EQ(CharacterWidth(U'\u4E2D'), 2);
  EXPECT_EQ(CharacterWidth(U'\u0301'), 0);
}

}  // namespace
}  // namespace tidemill::cli::line_editor_test
