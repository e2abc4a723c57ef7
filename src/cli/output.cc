#include "cli/output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "cli/errors.h"
#include "cli/utf8.h"

namespace tidemill::cli {

namespace {

// Until `fd` takes bytes or is broken, which the next write says: 0. ECANCELED: a signal came, and a second went by.
int WaitForRoom(int fd, const SignalWatch* signals) {
  constexpr int kPatienceMs = 1000;
  while (true) {
    const bool is_signalled = signals != nullptr && signals->received() != 0;
    pollfd waiting[2] = {
        {.fd = fd, .events = POLLOUT, .revents = 0},
        {.fd = signals == nullptr || is_signalled ? -1 : signals->wake_fd(), .events = POLLIN, .revents = 0}};
    const int ready = poll(waiting, 2, is_signalled ? kPatienceMs : -1);
    if (ready < 0 && errno != EINTR) return errno;
    if (ready > 0 && waiting[0].revents != 0) return 0;
    if (ready == 0 && is_signalled) return ECANCELED;
  }
}

}  // namespace

int WriteFully(int fd, std::string_view bytes, const SignalWatch* signals) {
  while (!bytes.empty()) {
    // A pipe with room takes PIPE_BUF bytes without blocking; more would block where no signal reaches us.
    const size_t count = signals == nullptr ? bytes.size() : std::min<size_t>(bytes.size(), PIPE_BUF);
    if (signals != nullptr) {
      const int error_number = WaitForRoom(fd, signals);
      if (error_number != 0) return error_number;
    }
    const ssize_t written = write(fd, bytes.data(), count);
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {  // somebody made the pipe non-blocking
      const int error_number = WaitForRoom(fd, signals);
      if (error_number != 0) return error_number;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

Output::Output(int fd, const SignalWatch& signals) : fd_(fd), signals_(signals), is_terminal_(isatty(fd) == 1) {}

Result<void> Output::Write(std::string_view bytes) {
  const int error_number = WriteFully(fd_, bytes, &signals_);
  if (error_number == 0) return {};
  if (error_number == EPIPE) {
    reader_gone_ = true;
    return Error(ErrorCode::kCancelled, "write the answer: standard output: the reader went away");
  }
  if (error_number == ECANCELED) {
    return Error(ErrorCode::kCancelled, "write the answer: standard output: stopped by a signal; nobody was reading");
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
