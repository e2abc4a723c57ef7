#include "base/spill_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "base/out_of_memory.h"

namespace tidemill {
namespace {

// Linux moves at most 0x7ffff000 bytes in a call.
constexpr size_t kMaxBytesOfACall = size_t{1} << 30;

Error Failed(const std::string& what, int error_number) {
  const ErrorCode code = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG ? ErrorCode::kNoSpace
                         : error_number == ENOENT || error_number == ENOTDIR ? ErrorCode::kNotFound
                                                                             : ErrorCode::kIoError;
  return Error(code, what + ": " + std::strerror(error_number));
}

// Without a name from the start where the file system can do that.
int OpenNameless(const std::string& folder) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string path = folder + "/tidemill.XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

}  // namespace

Result<SpillFile> SpillFile::Write(const std::string& folder, std::span<const std::byte> bytes) {
  const int fd = OpenNameless(folder);
  if (fd < 0) return Failed("write a preempted state: a file in " + folder, errno);
  SpillFile file(fd, bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t written =
        pwrite(fd, bytes.data() + at, std::min(bytes.size() - at, kMaxBytesOfACall), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write a preempted state: a file in " + folder, errno);
    at += static_cast<size_t>(written);
  }
  return file;
}

SpillFile::~SpillFile() {
  if (fd_ >= 0) close(fd_);
}

Result<std::vector<std::byte>> SpillFile::Read() const {
  try {
    std::vector<std::byte> bytes(size_);
    for (size_t at = 0; at < size_;) {
      const ssize_t read =
          pread(fd_, bytes.data() + at, std::min(size_ - at, kMaxBytesOfACall), static_cast<off_t>(at));
      if (read < 0 && errno == EINTR) continue;
      if (read < 0) return Failed("read state that was preempted", errno);
      if (read == 0) {
        return Error(ErrorCode::kIoError, "read state that was preempted: expected " + std::to_string(size_) +
                                              " bytes, found " + std::to_string(at));
      }
      at += static_cast<size_t>(read);
    }
    return bytes;
  } catch (const std::exception&) {
    return OutOfMemoryError("read state that was preempted", size_);
  }
}

}  // namespace tidemill
