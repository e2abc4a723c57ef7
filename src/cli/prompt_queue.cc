#include "cli/prompt_queue.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <new>

#include "cli/errors.h"
#include "cli/files.h"

namespace tidemill::cli {

std::optional<PromptQueue::Line> PromptQueue::Take(size_t instance, bool wait) {
  std::unique_lock lock(mutex_);
  if (num_running_[instance] > *std::min_element(num_running_.begin(), num_running_.end())) return std::nullopt;
  while (!ended_ && results_.size() >= kMaxWaiting) {
    if (!wait) return std::nullopt;
    changed_.wait(lock);
  }
  std::optional<Line> line;
  while (!ended_ && !line) {
    const bool is_whole = ReadLine();
    const Input input = is_whole ? Input::kSome : Fill();
    if (input == Input::kNotNow) {
      if (!wait) return std::nullopt;
      lock.unlock();  // others go on meanwhile
      (void)Poll(-1);
      lock.lock();
      continue;
    }
    if (input == Input::kEnd) {
      ended_ = true;
      changed_.notify_all();
    }
    if (!is_whole && input != Input::kEnd) continue;
    if (line_.is_too_long || line_.had_no_memory || line_.text.find_first_not_of(" \t\r") != std::string::npos) {
      results_.emplace(line_.number, std::nullopt);
      ++num_running_[instance];
      line = std::move(line_);
    }
    line_ = {.number = line_.number + 1};
  }
  return line;
}

bool PromptQueue::ReadLine() {
  if (line_.is_whole) return true;
  const size_t end = std::min(buffer_.find('\n', at_), buffer_.size());
  line_.is_too_long = line_.is_too_long || end - at_ > kMaxInputBytes - line_.text.size();
  try {
    if (!line_.is_too_long && !line_.had_no_memory) line_.text.append(buffer_, at_, end - at_);
  } catch (const std::bad_alloc&) {
    line_.had_no_memory = true;
  }
  if (line_.is_too_long || line_.had_no_memory) line_.text = std::string();
  line_.is_whole = end != buffer_.size();
  at_ = end + (line_.is_whole ? 1 : 0);
  return line_.is_whole;
}

PromptQueue::Input PromptQueue::Poll(int timeout_ms) const {
  pollfd watched[] = {{.fd = fd_, .events = POLLIN, .revents = 0},
                      {.fd = signals_.wake_fd(), .events = POLLIN, .revents = 0}};
  const int ready = poll(watched, 2, timeout_ms);
  if (ready > 0 && watched[1].revents != 0) return Input::kEnd;  // a signal
  return ready == 0 ? Input::kNotNow : Input::kSome;
}

PromptQueue::Input PromptQueue::Fill() {
  at_ = 0;
  while (true) {
    buffer_.clear();
    const Input input = Poll(0);
    if (input == Input::kEnd) line_.text.clear();
    if (input != Input::kSome) return input;
    buffer_.resize(size_t{1} << 16);
    const ssize_t count = read(fd_, buffer_.data(), buffer_.size());
    const int error = errno;
    buffer_.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count > 0) return Input::kSome;
    if (count < 0 && (error == EINTR || error == EAGAIN)) continue;
    if (count < 0) failure_ = SystemError("read the prompts", name_, error);
    return Input::kEnd;
  }
}

void PromptQueue::Leave(size_t instance) {
  const std::lock_guard lock(mutex_);
  num_running_[instance] = SIZE_MAX;
}

void PromptQueue::Finish(size_t instance, size_t number, std::string result) {
  const std::lock_guard lock(mutex_);
  --num_running_[instance];
  if (as_completed_) {
    results_.erase(number);
    Write(result);
  } else {
    results_[number] = std::move(result);
    while (!results_.empty() && results_.begin()->second) {
      Write(*results_.begin()->second);
      results_.erase(results_.begin());
    }
  }
  changed_.notify_all();
}

void PromptQueue::Write(const std::string& result) {
  if (failure_) return;
  Result<void> written = out_.Write(result);
  if (written.ok()) return;
  failure_ = std::move(written).error();
  has_failed_ = true;
  ended_ = true;
}

void PromptQueue::
    Stop() {  // may come while another thread waits for input: no lock. Who waits for results looks again at the next one
  ended_ = true;
  changed_.notify_all();
}

Result<void> PromptQueue::Close() {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, result] : results_) {
    if (result) Write(*result);
  }
  results_.clear();
  if (failure_) return *failure_;
  return {};
}

}  // namespace tidemill::cli
