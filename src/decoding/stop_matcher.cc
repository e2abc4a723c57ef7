#include "decoding/stop_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace tidemill {

StopMatcher::StopMatcher(std::span<const std::string> stops) {
  stops_.reserve(stops.size());
  for (const std::string& text : stops) {
    TIDEMILL_CHECK(!text.empty());
    Stop stop{text, std::vector<uint32_t>(text.size(), 0), 0};
    for (size_t i = 1; i < text.size(); ++i) {
      size_t length = stop.fallback[i - 1];
      while (length > 0 && text[length] != text[i]) length = stop.fallback[length - 1];
      if (text[length] == text[i]) ++length;
      stop.fallback[i] = static_cast<uint32_t>(length);
    }
    stops_.push_back(std::move(stop));
  }
}

StopMatcher::Output StopMatcher::Push(std::string_view text) {
  buffer_.erase(0, emitted_);
  emitted_ = 0;
  if (stop_index_) return {{}, true};
  size_t held = 0;  // of the text so far
  for (const char byte : text) {
    buffer_.push_back(byte);
    held = 0;
    for (size_t s = 0; s < stops_.size(); ++s) {
      Stop& stop = stops_[s];
      while (stop.matched > 0 && stop.text[stop.matched] != byte) stop.matched = stop.fallback[stop.matched - 1];
      if (stop.text[stop.matched] == byte) ++stop.matched;
      held = std::max(held, stop.matched);
      if (stop.matched < stop.text.size()) continue;
      if (!stop_index_ || stop.text.size() > stops_[*stop_index_].text.size()) stop_index_ = s;
    }
    if (stop_index_) {
      buffer_.resize(buffer_.size() - stops_[*stop_index_].text.size());
      emitted_ = buffer_.size();
      return {buffer_, true};
    }
  }
  if (text.empty()) {
    for (const Stop& stop : stops_) held = std::max(held, stop.matched);
  }
  emitted_ = buffer_.size() - held;
  return {std::string_view(buffer_).substr(0, emitted_), false};
}

std::string_view StopMatcher::Finish() {
  buffer_.erase(0, emitted_);
  emitted_ = buffer_.size();
  for (Stop& stop : stops_) stop.matched = 0;
  return buffer_;
}

}  // namespace tidemill
