// Files that commands read whole and files that they write.
#ifndef TIDEMILL_CLI_FILES_H_
#define TIDEMILL_CLI_FILES_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "cli/output.h"
#include "tidemill/result.h"

namespace tidemill::cli {

inline constexpr size_t kMaxInputBytes = size_t{64} << 20;

// All bytes of a file. `doing` begins the message: "read the prompt". kNotFound, kIoError; kInvalidArgument for a folder or
// more than kMaxInputBytes.
Result<std::string> ReadFile(std::string_view doing, const std::string& path);
// All bytes of standard input.
Result<std::string> ReadStandardInput(std::string_view doing);

// A file that is either complete or as it was: written under another name beside it, synced and renamed. A file that was
// there keeps its mode, a symbolic link still leads to it. A device or pipe is written in place, and standard output by its
// other name (/dev/stdout) as Output writes.
class OutputFile {
 public:
  // kInvalidArgument for a folder and for a link to nothing; kNotFound, kIoError (also for a file that may not be written).
  static Result<std::unique_ptr<OutputFile>> Create(std::string_view doing, const std::string& path, Output& out);
  ~OutputFile();  // without Commit nothing is left behind
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Whether it takes the place of what has that name; else it is written in place.
  bool is_renamed() const { return !temporary_path_.empty(); }

  Result<void> Write(std::string_view bytes);  // kNoSpace, kIoError
  Result<void> Commit();

 private:
  OutputFile(std::string doing, std::string path, std::string temporary_path, int fd, Output* out);
  Error Failed(int error_number) const;

  std::string doing_;
  std::string path_;
  std::string temporary_path_;  // empty: written in place
  int fd_;
  Output* out_;  // borrowed; null: fd_ is written
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_FILES_H_
