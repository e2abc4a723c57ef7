#include "text/jinja_heap.h"

#include <algorithm>

namespace tidemill::jinja {

void Fail(std::string message) { throw TemplateError{ErrorCode::kInvalidArgument, std::move(message)}; }

std::string_view Heap::CopyText(std::string_view text) {
  if (text.empty()) return {};
  char* copy = static_cast<char*>(Allocate(text.size()));
  std::memcpy(copy, text.data(), text.size());
  return {copy, text.size()};
}

std::string_view Heap::AdoptCharged(std::string&& text) {
  if (text.empty()) return {};
  if (text.size() >= 4096) {
    adopted_.push_back(std::move(text));
    return adopted_.back();
  }
  char* copy = static_cast<char*>(AllocateCharged(text.size()));
  std::memcpy(copy, text.data(), text.size());
  return {copy, text.size()};
}

void* Heap::AllocateSlowly(size_t rounded) {
  if (rounded >= kFirstBlock) {  // a block of its own; what is left of the current one stays in use
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(rounded));
    return blocks_.back().get();
  }
  blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(block_size_));
  next_ = blocks_.back().get() + rounded;
  block_left_ = block_size_ - rounded;
  block_size_ = std::min(block_size_ * 2, kLargestBlock);
  return blocks_.back().get();
}

const std::byte* Heap::ExtendBytes(std::span<const std::byte> left, std::span<const std::byte> right) {
  Scan(right.size());
  for (Tail& tail : tails_) {
    if (left.empty() || tail.end != left.data() + left.size() || tail.room < right.size()) continue;
    if (!right.empty()) std::memcpy(tail.end, right.data(), right.size());
    tail.end += right.size();
    tail.room -= right.size();
    return left.data();
  }
  Scan(left.size());
  const size_t size = left.size() + right.size();
  if (size > bytes_left_ / 2) FailOnBytes();
  std::byte* joined = static_cast<std::byte*>(Allocate(2 * size));
  if (!left.empty()) std::memcpy(joined, left.data(), left.size());
  if (!right.empty()) std::memcpy(joined + left.size(), right.data(), right.size());
  tails_[next_tail_] = {joined + size, size};
  next_tail_ = (next_tail_ + 1) % tails_.size();
  return joined;
}

void Heap::FailOnBytes() const {
  Fail("more than " + std::to_string(max_bytes_) + " bytes of intermediate values: the template makes too much text");
}

void Heap::FailOnSteps() const {
  Fail("more than " + std::to_string(max_steps_) + " steps of work: the template loops too long");
}

}  // namespace tidemill::jinja
