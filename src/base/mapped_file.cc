#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tidemill {
namespace {

Error FileError(const std::string& path, int error_number) {
  const auto code = error_number == ENOENT || error_number == ENOTDIR ? ErrorCode::kNotFound
                    : error_number == ENOMEM                          ? ErrorCode::kOutOfMemory
                                                                      : ErrorCode::kIoError;
  return Error(code, "open " + path + ": " + std::strerror(error_number));
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe is refused, not waited for
  if (fd < 0) return FileError(path, errno);
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    const int error_number = errno;
    close(fd);
    return FileError(path, error_number);
  }
  if (!S_ISREG(status.st_mode)) {
    close(fd);
    return Error(ErrorCode::kIoError,
                 "open " + path + ": expected a file, found " +
                     (S_ISDIR(status.st_mode) ? "a folder" : "something that is not a regular file"));
  }
  if (status.st_size == 0) {
    close(fd);
    return Error(ErrorCode::kCorruptFile, "open " + path + ": the file is empty");
  }
  MappedFile file;
  file.path_ = path;
  const size_t size = static_cast<size_t>(status.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int error_number = errno;
  close(fd);  // the mapping keeps the file open
  if (data == MAP_FAILED) return FileError(path, error_number);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::Release(std::span<const std::byte> range) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(range.data()) + range.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace tidemill
