// The lines of a file of requests, handed out one by one, and their results, put back into the order of the lines.
#ifndef TIDEMILL_CLI_PROMPT_QUEUE_H_
#define TIDEMILL_CLI_PROMPT_QUEUE_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/output.h"
#include "cli/signals.h"
#include "tidemill/result.h"

namespace tidemill::cli {

// For any number of threads.
class PromptQueue {
 public:
  // Lines whose results may wait for an older one's: what bounds the memory for results.
  static constexpr size_t kMaxWaiting = 4096;

  struct Line {
    size_t number = 0;  // from 1
    std::string text = {};
    bool is_too_long = false;    // more than kMaxInputBytes; text is empty
    bool had_no_memory = false;  // for the text, which is empty
    bool is_whole = false;
  };

  // `fd` is read; `name` is said of it in errors. `instances` take lines, by their index.
  PromptQueue(int fd, std::string name, const SignalWatch& signals, Output& out, bool as_completed, size_t instances)
      : fd_(fd),
        name_(std::move(name)),
        signals_(signals),
        out_(out),
        as_completed_(as_completed),
        num_running_(instances) {}

  // The next line that is not blank; none: there is none now, or another instance runs fewer and takes it. `wait`: until there is one, or
  // never will be; only for who runs nothing. Throws std::bad_alloc: then the line is the next one.
  std::optional<Line> Take(size_t instance, bool wait);
  // The result of a line that it took. Written at once or when all before it are; an error of the output is kept, and ends everything.
  void Finish(size_t instance, size_t number, std::string result);
  // It takes no line: none is left to it.
  void Leave(size_t instance);
  // No line is handed out any more. Waits for nothing.
  void Stop();
  // The output takes nothing more: what runs runs for nobody.
  bool has_failed() const { return has_failed_.load(); }
  // Results that still wait for lines that nobody ran: written in order. The first error of the input or the output.
  Result<void> Close();

 private:
  void Write(const std::string& result);
  bool ReadLine();  // from buffer_ into line_; false: the buffer ended before it did
  enum class Input { kSome, kNotNow, kEnd };
  Input Poll(int timeout_ms) const;  // whether there is some; -1: until there is
  Input Fill();                      // buffer_

  int fd_;
  std::string name_;
  const SignalWatch& signals_;
  Output& out_;
  bool as_completed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> ended_ = false;  // nothing more is handed out
  std::string buffer_;               // read, from at_ on not used yet
  size_t at_ = 0;
  Line line_ = {.number = 1};                             // that is being read
  std::map<size_t, std::optional<std::string>> results_;  // of lines handed out and not written; none: it runs
  std::vector<size_t> num_running_;                       // lines, by instance
  std::optional<Error> failure_;
  std::atomic<bool> has_failed_ = false;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_PROMPT_QUEUE_H_
