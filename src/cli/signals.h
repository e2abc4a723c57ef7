// SIGINT and SIGTERM. They stay blocked in every thread; one thread waits for them, so that what happens on a signal is
// ordinary code that may lock and call the engine. SIGBUS: a mapped model file that shrinks ends the process with an error
// line and exit code 1; a file that is being written (logits, --save-state) may leave its ".part" file behind.
#ifndef TIDEMILL_CLI_SIGNALS_H_
#define TIDEMILL_CLI_SIGNALS_H_

#include <atomic>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace tidemill::cli {

// Made once, before any other thread. Also ignores SIGPIPE and SIGXFSZ, so that writes report EPIPE and EFBIG, and handles
// SIGBUS.
// Without a Grace a signal ends the process at once with 128 + its number: nothing has been generated that could be lost.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // The signal that came while a Grace was alive; 0: none.
  int received() const { return received_.load(); }
  // A chat goes on after an answer was stopped.
  void Forget();
  // Readable once a signal came while a Grace was alive, until Forget: for poll() beside an input.
  int wake_fd() const { return pipe_[0]; }

  // While it lives, the first signal calls `on_signal` (in the watching thread; may be empty) and the process goes on. A
  // second signal ends it at once. Within another one: that one's `on_signal` waits until this one has ended.
  class Grace {
   public:
    Grace(SignalWatch& watch, std::function<void()> on_signal);
    ~Grace();
    Grace(const Grace&) = delete;
    Grace& operator=(const Grace&) = delete;

   private:
    SignalWatch& watch_;
    bool had_grace_;
    std::function<void()> on_signal_before_;
  };

 private:
  void Wait();

  sigset_t waited_for_;
  sigset_t mask_before_;
  int pipe_[2] = {-1, -1};
  std::atomic<int> received_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;  // guards the two below; held while on_signal_ runs
  bool has_grace_ = false;
  std::function<void()> on_signal_;
  std::thread thread_;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_SIGNALS_H_
