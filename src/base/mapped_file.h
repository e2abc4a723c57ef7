// A file mapped read-only into memory.
#ifndef TIDEMILL_BASE_MAPPED_FILE_H_
#define TIDEMILL_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "tidemill/result.h"

namespace tidemill {

class MappedFile {
 public:
  // kNotFound, kIoError (not a regular file, no permission), kCorruptFile (empty). The message names `path`.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Gives back the physical pages that lie wholly inside `range` (a part of bytes()); reading them again reloads them.
  void Release(std::span<const std::byte> range) const;

 private:
  MappedFile() = default;

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_BASE_MAPPED_FILE_H_
