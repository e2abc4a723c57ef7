#include "cli/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "cli/errors.h"
#include "cli/output.h"

namespace tidemill::cli {
namespace {

Result<std::string> ReadAll(std::string_view doing, std::string_view name, int fd) {
  std::string bytes;
  size_t length = 0;
  while (true) {
    if (bytes.size() - length < 4096) bytes.resize(bytes.size() * 2 + 65536);
    const ssize_t got = read(fd, bytes.data() + length, bytes.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {  // somebody made the pipe or terminal non-blocking
      pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
      if (poll(&waiting, 1, -1) < 0 && errno != EINTR) return SystemError(doing, name, errno);
      continue;
    }
    if (got < 0) return SystemError(doing, name, errno);
    if (got == 0) break;
    length += static_cast<size_t>(got);
    if (length > kMaxInputBytes) {
      return Error(ErrorCode::kInvalidArgument,
                   std::string(doing) + ": " + std::string(name) + ": expected at most 64 MiB, found more; split it");
    }
  }
  bytes.resize(length);
  return bytes;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Result<std::string> ReadFile(std::string_view doing, const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(doing, path, errno);
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
    close(fd);
    return Error(ErrorCode::kInvalidArgument,
                 std::string(doing) + ": " + path + ": expected a file, found a folder; name a file in it");
  }
  auto bytes = ReadAll(doing, path, fd);
  close(fd);
  return bytes;
}

Result<std::string> ReadStandardInput(std::string_view doing) { return ReadAll(doing, "standard input", STDIN_FILENO); }

OutputFile::OutputFile(std::string doing, std::string path, std::string temporary_path, int fd)
    : doing_(std::move(doing)), path_(std::move(path)), temporary_path_(std::move(temporary_path)), fd_(fd) {}

Result<std::unique_ptr<OutputFile>> OutputFile::Create(std::string_view doing, const std::string& path) {
  struct stat status {};
  const bool is_there = stat(path.c_str(), &status) == 0;
  if (is_there && S_ISDIR(status.st_mode)) {
    return Error(ErrorCode::kInvalidArgument,
                 std::string(doing) + ": " + path + ": expected a file name, found a folder; name a file in it");
  }
  std::string temporary_path;  // renaming over /dev/full would replace the device
  if (!is_there || S_ISREG(status.st_mode)) temporary_path = path + ".part." + std::to_string(getpid());
  const int flags = temporary_path.empty() ? O_WRONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  const int fd = open(temporary_path.empty() ? path.c_str() : temporary_path.c_str(), flags, 0666);
  if (fd < 0) return SystemError(doing, path, errno);
  return std::unique_ptr<OutputFile>(new OutputFile(std::string(doing), path, std::move(temporary_path), fd));
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
}

Error OutputFile::Failed(int error_number) const { return SystemError(doing_, path_, error_number); }

Result<void> OutputFile::Write(std::string_view bytes) {
  const int error_number = WriteFully(fd_, bytes);
  if (error_number != 0) return Failed(error_number);
  return {};
}

Result<void> OutputFile::Commit() {
  // EINVAL: a pipe or terminal has nothing to sync.
  if (fsync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP) return Failed(errno);
  const int closed = close(std::exchange(fd_, -1));
  const int close_error = errno;
  if (temporary_path_.empty()) {
    if (closed != 0) return Failed(close_error);
    return {};
  }
  if (closed != 0 || std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    const int error_number = closed != 0 ? close_error : errno;
    unlink(temporary_path_.c_str());
    return Failed(error_number);
  }
  const int folder = open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return {};  // may be written but not read: the name is there, only its durability is not asked for
  const int synced = fsync(folder);
  const int sync_error = errno;
  close(folder);
  if (synced != 0 && sync_error != EINVAL && sync_error != ENOTSUP) return Failed(sync_error);
  return {};
}

}  // namespace tidemill::cli
