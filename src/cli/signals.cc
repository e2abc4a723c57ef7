#include "cli/signals.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <utility>

#include "cli/errors.h"

namespace tidemill::cli {

SignalWatch::SignalWatch() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
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
  received_ = 0;
  char bytes[16];
  while (read(pipe_[0], bytes, sizeof bytes) > 0) {
  }
}

SignalWatch::Grace::Grace(SignalWatch& watch, std::function<void()> on_signal) : watch_(watch) {
  const std::lock_guard lock(watch_.mutex_);
  watch_.has_grace_ = true;
  watch_.on_signal_ = std::move(on_signal);
}

SignalWatch::Grace::~Grace() {
  const std::lock_guard lock(watch_.mutex_);
  watch_.has_grace_ = false;
  watch_.on_signal_ = nullptr;
}

}  // namespace tidemill::cli
