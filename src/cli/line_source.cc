#include "cli/line_source.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "cli/errors.h"
#include "cli/files.h"
#include "cli/line_editor.h"

namespace tidemill::cli {
namespace {

// Bytes as they are typed, without echo; pasted text is bracketed. As it was before when destroyed.
class RawMode {
 public:
  explicit RawMode(Messages& messages) : messages_(messages) {
    if (tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    raw.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    is_on_ = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    if (is_on_) messages_.Say("\x1b[?2004h");
  }
  ~RawMode() {
    if (!is_on_) return;
    messages_.Say("\x1b[?2004l");
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

 private:
  Messages& messages_;
  termios before_{};
  bool is_on_ = false;
};

size_t TerminalColumns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

LineSource::LineSource(const char* doing, SignalWatch& signals, Messages& messages)
    : doing_(doing),
      signals_(signals),
      messages_(messages),
      is_terminal_(isatty(STDIN_FILENO) == 1 && messages.is_terminal()) {}

Result<std::optional<unsigned char>> LineSource::NextByte() {
  while (buffer_begin_ == buffer_.size()) {
    pollfd waiting[2] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                         {.fd = signals_.wake_fd(), .events = POLLIN, .revents = 0}};
    if (poll(waiting, 2, -1) < 0 && errno != EINTR) return SystemError(doing_, "standard input", errno);
    if (signals_.received() != 0) return Error(ErrorCode::kCancelled, std::string(doing_) + ": stopped by a signal");
    if (waiting[0].revents == 0) continue;
    buffer_.resize(65536);
    const ssize_t got = read(STDIN_FILENO, buffer_.data(), buffer_.size());
    const int error_number = errno;
    buffer_.resize(got > 0 ? static_cast<size_t>(got) : 0);
    buffer_begin_ = 0;
    if (got == 0) return std::optional<unsigned char>();
    // EIO: the terminal hung up.
    if (got < 0 && error_number == EIO && is_terminal_) return std::optional<unsigned char>();
    if (got < 0 && error_number != EINTR && error_number != EAGAIN) {
      return SystemError(doing_, "standard input", error_number);
    }
  }
  return std::optional<unsigned char>(static_cast<unsigned char>(buffer_[buffer_begin_++]));
}

Result<LineSource::Line> LineSource::ReadPlain() {
  Line line;
  bool is_empty = true;
  while (true) {
    TIDEMILL_TRY(byte, NextByte());
    if (!byte && is_empty) return Line{.kind = Line::Kind::kEnd, .text = ""};
    if (!byte || *byte == '\n') return line;
    is_empty = false;
    line.text += static_cast<char>(*byte);
    if (line.text.size() > kMaxInputBytes) {
      return Error(ErrorCode::kInvalidArgument,
                   std::string(doing_) + ": standard input: expected at most 64 MiB in a line, found more");
    }
  }
}

Result<LineSource::Line> LineSource::ReadEdited(std::string_view prompt) {
  const RawMode raw(messages_);
  LineEditor editor(history_);
  messages_.Say(editor.Redraw(prompt, TerminalColumns()));
  while (true) {
    TIDEMILL_TRY(byte, NextByte());
    const LineEditor::State state = byte ? editor.Feed(*byte) : LineEditor::State::kEnd;
    if (state != LineEditor::State::kEditing) {
      messages_.Say(editor.Leave(prompt, TerminalColumns()));
      if (state == LineEditor::State::kEnd) return Line{.kind = Line::Kind::kEnd, .text = ""};
      if (state == LineEditor::State::kAbandoned) return Line{.kind = Line::Kind::kAbandoned, .text = ""};
      return Line{.kind = Line::Kind::kText, .text = editor.text()};
    }
    if (editor.asks_for_clear_screen()) messages_.Say("\x1b[H\x1b[2J");
    // A paste is drawn once, not once a byte.
    if (buffer_begin_ == buffer_.size()) messages_.Say(editor.Redraw(prompt, TerminalColumns()));
  }
}

Result<LineSource::Line> LineSource::Read(std::string_view prompt) {
  const SignalWatch::Grace grace(signals_, nullptr);  // NextByte polls; a terminal is left as it was
  return is_terminal_ ? ReadEdited(prompt) : ReadPlain();
}

}  // namespace tidemill::cli
