#include "cli/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
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

// A new file beside `path`, whose name is not longer than a name may be where `path`'s is not. One that is there was left by a program that
// was killed, or belongs to one in another container: it stays. -1 and errno.
int CreateTemporary(const std::string& path, mode_t mode, std::string* temporary_path) {
  constexpr size_t kLongestStem = 200;
  const size_t name = path.rfind('/') + 1;  // npos + 1 is 0
  const std::string stem =
      path.substr(0, std::min(path.size(), name + kLongestStem)) + ".part." + std::to_string(getpid());
  int fd = -1;
  for (int i = 0; i < 100 && fd < 0; ++i) {
    *temporary_path = i == 0 ? stem : stem + "." + std::to_string(i);
    fd = open(temporary_path->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 && errno != EEXIST) break;
  }
  return fd;
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

OutputFile::OutputFile(std::string doing, std::string path, std::string temporary_path, int fd, Output* out)
    : doing_(std::move(doing)),
      path_(std::move(path)),
      temporary_path_(std::move(temporary_path)),
      fd_(fd),
      out_(out) {}

Result<std::unique_ptr<OutputFile>> OutputFile::Create(std::string_view doing, const std::string& path, Output& out) {
  const auto unexpected = [&](const char* what) {
    return Error(ErrorCode::kInvalidArgument,
                 std::string(doing) + ": " + path + ": expected a file name, found " + what);
  };
  struct stat status {
  }, of_stdout{};
  const bool is_there = stat(path.c_str(), &status) == 0;
  if (is_there && S_ISDIR(status.st_mode)) return unexpected("a folder; name a file in it");
  if (is_there && fstat(STDOUT_FILENO, &of_stdout) == 0 && status.st_dev == of_stdout.st_dev &&
      status.st_ino == of_stdout.st_ino) {  // /dev/stdout, also where that leads to a file
    return std::unique_ptr<OutputFile>(new OutputFile(std::string(doing), path, "", -1, &out));
  }
  if (is_there && !S_ISREG(status.st_mode)) {  // renaming over /dev/full would replace the device
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return SystemError(doing, path, errno);
    return std::unique_ptr<OutputFile>(new OutputFile(std::string(doing), path, "", fd, nullptr));
  }
  std::string target = path;  // of a link: what it leads to, so that the link stays one
  if (std::error_code ignored; std::filesystem::is_symlink(path, ignored)) {
    if (!is_there) return unexpected("a link to a file that is not there; make it or name another");
    std::error_code error;
    target = std::filesystem::canonical(path, error).string();
    if (error) return SystemError(doing, path, error.value());
  }
  // A rename asks for the folder's permission only; who made the file read-only did so on purpose.
  if (is_there && access(target.c_str(), W_OK) != 0) return SystemError(doing, path, errno);
  std::string temporary_path;
  const mode_t mode = is_there ? status.st_mode & 0777 : 0666;
  const int fd = CreateTemporary(target, mode, &temporary_path);
  if (fd < 0) return SystemError(doing, errno == EEXIST ? temporary_path : path, errno);
  std::unique_ptr<OutputFile> file(
      new OutputFile(std::string(doing), std::move(target), std::move(temporary_path), fd, nullptr));
  if (is_there && fchmod(fd, mode) != 0) return SystemError(doing, path, errno);  // open took the umask off
  return file;
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
}

Error OutputFile::Failed(int error_number) const { return SystemError(doing_, path_, error_number); }

Result<void> OutputFile::Write(std::string_view bytes) {
  if (out_ != nullptr) return out_->Write(bytes);
  const int error_number = WriteFully(fd_, bytes);
  if (error_number != 0) return Failed(error_number);
  return {};
}

Result<void> OutputFile::Commit() {
  if (out_ != nullptr) return {};
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
