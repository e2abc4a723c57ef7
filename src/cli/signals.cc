#include "cli/signals.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <utility>

#include "cli/errors.h"

namespace tidemill::cli {
namespace {

// A page of a mapped file could not be read: the file became shorter, or the disk failed. Async-signal-safe: whoever
// faulted may hold any lock.
void EndOnBusError(int number, siginfo_t* info, void*) {
  if (info->si_code <= 0) {  // sent by a process, not by a page: it means what it always means
    std::signal(number, SIG_DFL);
    raise(number);  // delivered on return
    return;
  }
  static std::atomic_flag is_ending = ATOMIC_FLAG_INIT;
  while (is_ending.test_and_set()) pause();  // another thread says it
  constexpr std::string_view kLine =
      "tidemill: read a mapped file (the model, or a saved state): it became shorter or unreadable while it was in "
      "use; start again with the "
      "whole file\n";
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, kLine.data(), kLine.size());
  _exit(ExitCodeFor(ErrorCode::kIoError));
}

}  // namespace

SignalWatch::SignalWatch() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  struct sigaction on_bus_error {};
  on_bus_error.sa_sigaction = EndOnBusError;
  on_bus_error.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &on_bus_error, nullptr);
  sigemptyset(&waited_for_);
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction current {};
    sigaction(number, nullptr, &current);
    // Whoever started us with the signal ignored (nohup, a background job of a script) wants it so.
    const bool is_ignored = (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == SIG_IGN;
    if (!is_ignored || number == SIGTERM) sigaddset(&waited_for_, number);
  }
  pthread_sigmask(SIG_BLOCK, &waited_for_, &mask_before_);
  if (pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) pipe_[0] = pipe_[1] = -1;  // poll() skips negative descriptors
  thread_ = std::thread([this] { Wait(); });
}

SignalWatch::~SignalWatch() {
  stopping_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  for (const int fd : pipe_) {
    if (fd >= 0) close(fd);
  }
}

void SignalWatch::Wait() {
  while (true) {
    int number = 0;
    if (sigwait(&waited_for_, &number) != 0) continue;
    if (stopping_) return;
    const std::lock_guard lock(mutex_);
    const int already = received_.exchange(number);
    if (!has_grace_ || already != 0) _exit(kExitSignalBase + number);
    if (on_signal_) on_signal_();
    const char byte = 0;
    [[maybe_unused]] const ssize_t ignored = write(pipe_[1], &byte, 1);  // full: it is readable already
  }
}

void SignalWatch::Forget() {
  const std::lock_guard lock(mutex_);  // a signal that is being handled has written its byte
  received_ = 0;
  char bytes[16];
  while (read(pipe_[0], bytes, sizeof bytes) > 0) {
  }
}

SignalWatch::Grace::Grace(SignalWatch& watch, std::function<void()> on_signal) : watch_(watch) {
  const std::lock_guard lock(watch_.mutex_);
  had_grace_ = std::exchange(watch_.has_grace_, true);
  on_signal_before_ = std::exchange(watch_.on_signal_, std::move(on_signal));
}

SignalWatch::Grace::~Grace() {
  const std::lock_guard lock(watch_.mutex_);
  watch_.has_grace_ = had_grace_;
  watch_.on_signal_ = std::move(on_signal_before_);
}

}  // namespace tidemill::cli
