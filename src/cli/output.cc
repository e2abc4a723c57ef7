#include "cli/output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "cli/errors.h"
#include "cli/utf8.h"

namespace tidemill::cli {

int WriteFully(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {  // somebody made the pipe non-blocking
      pollfd waiting{.fd = fd, .events = POLLOUT, .revents = 0};
      if (poll(&waiting, 1, -1) < 0 && errno != EINTR) return errno;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

Output::Output(int fd) : fd_(fd), is_terminal_(isatty(fd) == 1) {}

Result<void> Output::Write(std::string_view bytes) {
  const int error_number = WriteFully(fd_, bytes);
  if (error_number == 0) return {};
  if (error_number == EPIPE) {
    reader_gone_ = true;
    return Error(ErrorCode::kCancelled, "write the answer: standard output: the reader went away");
  }
  return SystemError("write the answer", "standard output", error_number);
}

Result<void> Output::WriteModelText(std::string_view text) {
  if (!is_terminal_) return Write(text);
  std::string shown;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Character character = CharacterAt(text, offset);
    const bool is_layout = character.code == '\n' || character.code == '\t';
    const bool is_control = character.code < 0x20 || (character.code >= 0x7F && character.code <= 0x9F);
    if (character.length == 0 || (is_control && !is_layout)) {
      shown += "\xEF\xBF\xBD";
    } else {
      shown += text.substr(offset, character.length);
    }
    offset += character.length == 0 ? 1 : character.length;
  }
  return Write(shown);
}

Result<void> Output::EndLineOnTerminal(std::string_view last_text) {
  if (!is_terminal_ || last_text.ends_with('\n')) return {};
  return Write("\n");
}

void OccupyStandardDescriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
      // Read-only: a write to a standard output that was closed still fails.
      if (open("/dev/null", O_RDONLY) != fd) return;
    }
  }
}

}  // namespace tidemill::cli
