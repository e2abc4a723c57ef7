#include "formats/file_signature.h"

#include <algorithm>

namespace tidemill {

FileSignature RecognizeFile(std::span<const std::byte> file) {
  const std::string_view head(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 16));
  if (head.starts_with("GGUF")) return FileSignature::kGguf;
  // Before the others: the length of a header, which is below 100 MB, may begin with any of their bytes.
  if (head.size() > 8 && head[8] == '{' && head.substr(4, 4) == std::string_view("\0\0\0\0", 4)) {
    return FileSignature::kSafetensors;
  }
  if (head.starts_with("PK\x03\x04")) return FileSignature::kZip;
  if (head.starts_with("\x80\x02") || head.starts_with("\x80\x04")) return FileSignature::kPickle;
  for (const std::string_view old : {"lmgg", "fmgg", "tjgg", "algg"}) {
    if (head.starts_with(old)) return FileSignature::kOldGgml;
  }
  return FileSignature::kUnknown;
}

std::string_view DescribeSignature(FileSignature signature) {
  switch (signature) {
    case FileSignature::kUnknown: return {};
    case FileSignature::kGguf: return "a GGUF file";
    case FileSignature::kSafetensors: return "a safetensors file";
    case FileSignature::kZip: return "a zip archive, such as a PyTorch checkpoint";
    case FileSignature::kPickle: return "a Python pickle";
    case FileSignature::kOldGgml: return "a GGML file from before GGUF";
  }
  return {};
}

}  // namespace tidemill
