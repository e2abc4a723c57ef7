// Bytes that leave memory for a while: a file on disk that has no name and ends with its owner.
#ifndef TIDEMILL_BASE_SPILL_FILE_H_
#define TIDEMILL_BASE_SPILL_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tidemill/result.h"

namespace tidemill {

class SpillFile {
 public:
  // In `folder`; only this process can open it. kNotFound, kIoError, kNoSpace; then nothing is left behind.
  static Result<SpillFile> Write(const std::string& folder, std::span<const std::byte> bytes);

  SpillFile(SpillFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), size_(std::exchange(other.size_, 0)) {}
  SpillFile& operator=(SpillFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~SpillFile();

  size_t size() const { return size_; }
  // All of them. kIoError, kOutOfMemory.
  Result<std::vector<std::byte>> Read() const;

 private:
  SpillFile(int fd, size_t size) : fd_(fd), size_(size) {}

  int fd_;
  size_t size_;
};

}  // namespace tidemill

#endif  // TIDEMILL_BASE_SPILL_FILE_H_
