// Model files that are wrong in one place, each with the one line that refuses it. malformed_test.cc puts every one of them before the
// loader, make_malformed_files.cc writes them to a folder. A row of a table is a name, a recipe, and the line:
//
//   {"version 0", [] { return Patched<uint32_t>(Version, 0); }, kUnsupported, "GGUF header: byte 4: version: expected 2 or 3, found 0"}
#ifndef TIDEMILL_TESTS_MALFORMED_MALFORMED_CASE_H_
#define TIDEMILL_TESTS_MALFORMED_MALFORMED_CASE_H_

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tidemill/result.h"

namespace tidemill::testing {

inline constexpr ErrorCode kInvalid = ErrorCode::kInvalidArgument;
inline constexpr ErrorCode kCorrupt = ErrorCode::kCorruptFile;
inline constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;
inline constexpr ErrorCode kNotFound = ErrorCode::kNotFound;

// One file's bytes, made when they are wanted.
class Recipe {
 public:
  Recipe(std::string bytes)
      : make_([bytes = std::move(bytes)] { return bytes; }) {}  // NOLINT(google-explicit-constructor)
  Recipe(const char* text) : Recipe(std::string(text)) {}       // NOLINT(google-explicit-constructor)
  template <std::invocable F>
  Recipe(F make) : make_(std::move(make)) {}  // NOLINT(google-explicit-constructor)
  // The same with a hole behind it, which takes no room on a disk: a file that is as large as its header says.
  Recipe Stretched(uint64_t size) && {
    size_ = size;
    return std::move(*this);
  }

  std::string Make() const { return make_(); }
  uint64_t size() const { return size_; }  // of the file, where its bytes are fewer

 private:
  std::function<std::string()> make_;
  uint64_t size_ = 0;
};

struct MalformedFile {
  std::string name;
  Recipe recipe;
};

// What is asked about the file: what is in it (`tidemill inspect`); to load it, tokenizer and all (`tidemill run`); to load its text
// side alone (`tidemill tokenize`); or to render kOneMessage with it (`tidemill tokenize --chat --chat-template`).
enum class Question { kInspect, kLoad, kText, kRender };
inline constexpr const char* kOneMessage = R"([{"role": "user", "content": "hi"}])";

struct MalformedCase {
  std::string name;  // in its group; the folder that holds the files is called like it
  std::vector<MalformedFile> files;
  std::string opened;  // the file's name; empty: the folder
  ErrorCode code = ErrorCode::kInternal;
  std::string
      message;  // without "inspect {path}: " (a template's: whole), where {path} is what was opened; {folder}: where the files are
  Question question = Question::kInspect;
};

// A row of a table of single files.
struct MalformedRow {
  const char* name;
  Recipe recipe;
  ErrorCode code;
  std::string message;
  Question question = Question::kInspect;
};

struct MalformedGroup {
  const char* name;
  std::vector<MalformedCase> (*make)();
};

// Of GGUF files, safetensors files, JSON files beside them, sets of several files, chat templates, and tokenizers.
std::span<const MalformedGroup> MalformedGroups();

// Rows as cases of `file_name` among `others`; `opened` as in MalformedCase.
std::vector<MalformedCase> CasesOf(std::span<const MalformedRow> rows, const std::string& file_name,
                                   const std::vector<MalformedFile>& others, const std::string& opened);

// The name as a folder: lower case, "-" for whatever is no letter or digit.
std::string FolderName(std::string_view name);
// Writes the files of `c` into `folder`, which is there, and returns the path to open.
std::string WriteFiles(const MalformedCase& c, const std::string& folder);
// The whole line for a file that is opened by `path`.
std::string ExpectedLine(const MalformedCase& c, const std::string& path);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_MALFORMED_MALFORMED_CASE_H_
