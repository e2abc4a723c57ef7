// What a file is, by its first bytes, for readers that were given something else than theirs.
#ifndef TIDEMILL_FORMATS_FILE_SIGNATURE_H_
#define TIDEMILL_FORMATS_FILE_SIGNATURE_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tidemill/result.h"

namespace tidemill {

enum class FileSignature {
  kUnknown,
  kGguf,
  kSafetensors,
  kZip,
  kPickle,
  kOldGgml,
  kOnnx,
  kHdf5,
  kArchive,
  kGitLfsPointer,
  kWebPage,
  kJson
};

FileSignature RecognizeFile(std::span<const std::byte> file);

// "a Python pickle; convert the model to GGUF", where `format` is GGUF: what it is, and what to do. Empty for kUnknown.
std::string DescribeSignature(FileSignature signature, std::string_view format);

// kCorruptFile for a file that a failed download left behind, otherwise kUnsupported.
ErrorCode CodeOfSignature(FileSignature signature);

// That a text file is no pointer of Git LFS, and no web page either: "tokenizer.json: expected JSON, found ...".
Result<void> CheckIsDownloaded(std::string_view name, std::span<const std::byte> file);

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_FILE_SIGNATURE_H_
