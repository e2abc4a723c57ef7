// An owning block of zeroed memory, aligned to 64 bytes (a cache line, a vector) or more. From 1 MiB on it is a mapping of its own.
#ifndef TIDEMILL_BASE_ALIGNED_BUFFER_H_
#define TIDEMILL_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <span>
#include <utility>

#include "tidemill/result.h"

namespace tidemill {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~AlignedBuffer();

  // `bytes` of zeros. Pages of a mapping become resident when they are first written. kOutOfMemory says how much was asked for.
  static Result<AlignedBuffer> Create(size_t bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // The buffer as an array of T; size() must be a multiple of sizeof(T) where all of it is used.
  template <typename T>
  std::span<T> As() {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> As() const {
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_BASE_ALIGNED_BUFFER_H_
