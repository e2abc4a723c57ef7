#include "cli/prompts_progress.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>

namespace tidemill::cli {
namespace {

constexpr std::chrono::milliseconds kBetweenLines{250};

}  // namespace

std::optional<size_t> CountPromptLines(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) return std::nullopt;
  size_t lines = 0;
  bool has_text = false;
  std::array<char, 65536> buffer;
  for (size_t bytes = 0; (bytes = std::fread(buffer.data(), 1, buffer.size(), file.get())) != 0;) {
    for (size_t i = 0; i < bytes; ++i) {
      if (buffer[i] == '\n') {
        lines += has_text ? 1U : 0U;
        has_text = false;
      } else if (std::isspace(static_cast<unsigned char>(buffer[i])) == 0) {
        has_text = true;
      }
    }
  }
  return lines + (has_text ? 1U : 0U);
}

PromptsProgress::PromptsProgress(Messages& messages, bool shows, std::optional<size_t> total)
    : messages_(messages), shows_(shows), total_(total) {}

PromptsProgress::~PromptsProgress() { Stop(); }

void PromptsProgress::Stop() {
  const std::lock_guard lock(mutex_);
  if (is_shown_) messages_.Say("\r\x1b[K");
  is_shown_ = shows_ = false;
}

void PromptsProgress::CountTokens(size_t tokens) {
  const std::lock_guard lock(mutex_);
  tokens_ += tokens;
  Show();
}

void PromptsProgress::CountEnd(End end) {
  const std::lock_guard lock(mutex_);
  ++(end == End::kDone ? finished_ : end == End::kFailed ? failed_ : cut_);
  Show();
}

std::string PromptsProgress::Summary() const {
  const std::lock_guard lock(mutex_);
  const std::string of_all = total_ ? " of " + std::to_string(*total_) : "";
  const std::string failed = failed_ == 0 ? "" : ", " + std::to_string(failed_) + " failed";
  const std::string cut = cut_ == 0 ? "" : ", " + std::to_string(cut_) + " cut short";
  return std::to_string(finished_) + of_all + (finished_ == 1 && !total_ ? " request" : " requests") + " finished" +
         cut;
}

void PromptsProgress::Show() {
  const Clock::time_point now = Clock::now();
  if (!shows_ || now - shown_ < kBetweenLines) return;
  shown_ = now;
  is_shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  char line[128];
  int size = std::snprintf(line, sizeof line, "\r\x1b[K%zu", finished_ + failed_);
  const auto add = [&](const char* format, auto... values) {
    size += std::snprintf(line + size, sizeof line - static_cast<size_t>(size), format, values...);
  };
  if (total_) add(" of %zu", *total_);
  add(" requests, %.1f tokens/s", static_cast<double>(tokens_) / seconds);
  if (const size_t ended = finished_ + failed_; total_ && ended != 0) {
    const size_t left = *total_ - std::min(*total_, ended);
    add(", %.0f s left", seconds / static_cast<double>(ended) * static_cast<double>(left));
  }
  messages_.Say(line);
}

}  // namespace tidemill::cli
