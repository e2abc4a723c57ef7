// What a model file is, by its first bytes, for readers that were given another format than theirs.
#ifndef TIDEMILL_FORMATS_FILE_SIGNATURE_H_
#define TIDEMILL_FORMATS_FILE_SIGNATURE_H_

#include <cstddef>
#include <span>
#include <string_view>

namespace tidemill {

enum class FileSignature { kUnknown, kGguf, kSafetensors, kZip, kPickle, kOldGgml };

FileSignature RecognizeFile(std::span<const std::byte> file);

// "a safetensors file", "a zip archive, such as a PyTorch checkpoint"; empty for kUnknown.
std::string_view DescribeSignature(FileSignature signature);

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_FILE_SIGNATURE_H_
