// Memory and work of one template: everything that parsing or rendering makes lives in a Heap until the Heap dies, so
// values are plain pointers, nothing is freed piece by piece, and no chain of destructors can run deep. Both bytes and
// work are counted; going over a limit throws TemplateError.
//
// Inside the template engine (namespace jinja) errors are exceptions of type TemplateError: an evaluator passes values up
// through dozens of small functions. ChatTemplate::Parse and Render catch them; no exception leaves this room.
#ifndef TIDEMILL_TEXT_JINJA_HEAP_H_
#define TIDEMILL_TEXT_JINJA_HEAP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tidemill/result.h"

namespace tidemill::jinja {

// Thrown by everything in this namespace. `message` says what is wrong; `offset` is the byte of the template's source, if
// the place that threw knew it (the interpreter knows which expression it was evaluating).
struct TemplateError {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
  std::optional<uint32_t> offset = std::nullopt;
  bool is_refusal = false;  // raise_exception: the template is in order, it does not want this conversation
};

[[noreturn]] void Fail(std::string message);

class Heap {
 public:
  // `max_bytes` counts every byte handed out over the Heap's life, also those no longer reachable; `max_steps` counts work.
  Heap(size_t max_bytes, uint64_t max_steps)
      : bytes_left_(max_bytes), steps_left_(max_steps), max_bytes_(max_bytes), max_steps_(max_steps) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Counts `steps` of work: one evaluated node, one element looked at.
  void Work(uint64_t steps) {
    if (steps > steps_left_) FailOnSteps();
    steps_left_ -= steps;
  }
  // Counts looking at `bytes` of text, which is much cheaper than a step for each.
  void Scan(size_t bytes) { Work(1 + bytes / 64); }
  // Counts looking at each character of `bytes` of text.
  void Read(size_t bytes) { Work(1 + bytes); }
  // Counts `bytes` of text that are about to be made outside the Heap and adopted later.
  void Charge(size_t bytes) {
    if (bytes > bytes_left_) FailOnBytes();
    bytes_left_ -= bytes;
  }
  size_t bytes_left() const { return bytes_left_; }

  template <typename T>
  T* New(T value) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (Allocate(sizeof(T))) T(std::move(value));
  }
  // `count` default-constructed objects.
  template <typename T>
  std::span<T> NewArray(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (count == 0) return {};
    if (count > bytes_left_ / sizeof(T)) FailOnBytes();
    T* array = static_cast<T*>(Allocate(count * sizeof(T)));
    std::uninitialized_value_construct_n(array, count);
    return {array, count};
  }
  template <typename T>
  std::span<const T> Copy(std::span<const T> source) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<T> copy = NewArray<T>(source.size());
    if (!source.empty()) std::memcpy(copy.data(), source.data(), source.size_bytes());
    return copy;
  }
  template <typename T>
  std::span<const T> Copy(const std::vector<T>& source) {
    return Copy(std::span<const T>(source));
  }
  // `left` and then `right`. Takes room behind `left` where an earlier Extend left some, so that a value which grows by small parts
  // costs what it has in the end. Views of `left` stay valid.
  template <typename T>
  std::span<const T> Extend(std::span<const T> left, std::span<const T> right) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::byte* joined = ExtendBytes(std::as_bytes(left), std::as_bytes(right));
    return {reinterpret_cast<const T*>(joined), left.size() + right.size()};
  }
  std::string_view CopyText(std::string_view text);
  // Keeps a text whose bytes were charged already.
  std::string_view AdoptCharged(std::string&& text);

 private:
  static constexpr size_t kAlignment = alignof(std::max_align_t);
  static constexpr size_t kFirstBlock = size_t{16} << 10;
  static constexpr size_t kLargestBlock = size_t{1} << 20;

  void* Allocate(size_t size) {
    Charge(size);
    return AllocateCharged(size);
  }
  void* AllocateCharged(size_t size) {
    const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded > block_left_) return AllocateSlowly(rounded);
    void* result = next_;
    next_ += rounded;
    block_left_ -= rounded;
    return result;
  }
  void* AllocateSlowly(size_t rounded);
  const std::byte* ExtendBytes(std::span<const std::byte> left, std::span<const std::byte> right);
  [[noreturn]] void FailOnBytes() const;
  [[noreturn]] void FailOnSteps() const;

  size_t bytes_left_;
  uint64_t steps_left_;
  size_t max_bytes_;
  uint64_t max_steps_;
  std::byte* next_ = nullptr;
  size_t block_left_ = 0;
  size_t block_size_ = kFirstBlock;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::deque<std::string> adopted_;
  struct Tail {
    std::byte* end = nullptr;  // of what is used
    size_t room = 0;           // bytes behind it
  };
  std::array<Tail, 8> tails_ = {};  // what Extend made last
  size_t next_tail_ = 0;
};

}  // namespace tidemill::jinja

#endif  // TIDEMILL_TEXT_JINJA_HEAP_H_
