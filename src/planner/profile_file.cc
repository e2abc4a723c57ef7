#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "planner/machine_profile.h"

namespace tidemill {
namespace {

constexpr size_t kMaxBytes = 64 << 10;

Error FileError(const char* doing, const std::string& path, int error_number) {
  const ErrorCode code = error_number == ENOENT || error_number == ENOTDIR  ? ErrorCode::kNotFound
                         : error_number == ENOSPC || error_number == EDQUOT ? ErrorCode::kNoSpace
                                                                            : ErrorCode::kIoError;
  return Error(code, std::string(doing) + ": " + path + ": " + std::generic_category().message(error_number));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  int Close() {
    const int result = fd_ >= 0 ? close(fd_) : 0;
    fd_ = -1;
    return result;
  }

 private:
  int fd_;
};

}  // namespace

Result<MachineProfile> LoadProfile(const std::string& path) {
  constexpr const char* kDoing = "read the machine's profile";
  // Not a pipe that nobody writes: the open would wait for ever.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return FileError(kDoing, path, errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return FileError(kDoing, path, errno);
  if (!S_ISREG(status.st_mode))
    return Error(ErrorCode::kIoError, std::string(kDoing) + ": " + path + ": expected a regular file");
  std::string text(kMaxBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(kDoing, path, errno);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > kMaxBytes) {
    return Error(ErrorCode::kUnsupported, std::string(kDoing) + ": " + path + ": expected at most 65536 bytes");
  }
  text.resize(size);
  Result<MachineProfile> profile = ParseProfile(path, text).WithContext(kDoing);
  // kNotFound says that there is no file: whoever hears it may write one.
  if (!profile.ok() && profile.error().code() == ErrorCode::kNotFound)
    return Error(ErrorCode::kCorruptFile, profile.error().message());
  return profile;
}

Result<void> SaveProfile(const MachineProfile& profile, const std::string& path) {
  constexpr const char* kDoing = "keep the machine's profile";
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return FileError(kDoing, path, error.value());
  const std::string part = path + ".part." + std::to_string(getpid());
  Descriptor file(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.get() < 0) return FileError(kDoing, part, errno);
  const std::string text = ProfileText(profile);
  int failed = 0;
  for (size_t written = 0; failed == 0 && written < text.size();) {
    const ssize_t count = write(file.get(), text.data() + written, text.size() - written);
    if (count >= 0) written += static_cast<size_t>(count);
    if (count < 0 && errno != EINTR) failed = errno;
  }
  if (failed == 0 && fsync(file.get()) != 0) failed = errno;
  if (file.Close() != 0 && failed == 0) failed = errno;
  if (failed == 0 && std::rename(part.c_str(), path.c_str()) != 0) failed = errno;
  if (failed == 0) return {};
  unlink(part.c_str());
  return FileError(kDoing, path, failed);
}

}  // namespace tidemill
