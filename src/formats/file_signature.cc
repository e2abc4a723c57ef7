#include "formats/file_signature.h"

#include <algorithm>
#include <cctype>

namespace tidemill {
namespace {

using namespace std::string_view_literals;

constexpr size_t kTarMagicOffset = 257, kHeadBytes = 264;

bool IsWebPage(std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  while (!head.empty() && std::isspace(static_cast<unsigned char>(head[0])) != 0) head.remove_prefix(1);
  std::string begin(head.substr(0, 9));
  std::transform(begin.begin(), begin.end(), begin.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return begin == "<!doctype" || begin.starts_with("<html") || begin.starts_with("<?xml");
}

bool IsArchive(std::string_view head) {
  for (const std::string_view magic : {"\x1F\x8B"sv, "BZh"sv,
                                       "\xFD"
                                       "7zXZ\0"sv,
                                       "\x28\xB5\x2F\xFD"sv, "7z\xBC\xAF\x27\x1C"sv, "Rar!"sv}) {
    if (head.starts_with(magic)) return true;
  }
  return head.size() > kTarMagicOffset && head.substr(kTarMagicOffset).starts_with("ustar");
}

// A protocol buffer that begins with a small ir_version and the name of the program that made it.
bool IsOnnx(std::string_view head) {
  if (head.size() < 5 || head[0] != '\x08' || head[1] < 1 || head[1] > 20 || head[2] != '\x12') return false;
  return head[3] > 0 && std::isalpha(static_cast<unsigned char>(head[4])) != 0;
}

bool IsPickle(std::string_view head) { return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5; }

}  // namespace

FileSignature RecognizeFile(std::span<const std::byte> file) {
  const std::string_view head(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), kHeadBytes));
  if (head.starts_with("GGUF")) return FileSignature::kGguf;
  // Before the others: the length of a header, which is below 100 MB, may begin with any of their bytes.
  if (head.size() > 8 && head[8] == '{' && head.substr(4, 4) == "\0\0\0\0"sv) return FileSignature::kSafetensors;
  if (head.starts_with("PK\x03\x04")) return FileSignature::kZip;
  if (IsPickle(head)) return FileSignature::kPickle;
  for (const std::string_view old : {"lmgg", "fmgg", "tjgg", "algg"}) {
    if (head.starts_with(old)) return FileSignature::kOldGgml;
  }
  if (head.starts_with("version https://git-lfs")) return FileSignature::kGitLfsPointer;
  if (head.starts_with("\x89HDF\r\n")) return FileSignature::kHdf5;
  if (IsWebPage(head)) return FileSignature::kWebPage;
  if (IsArchive(head)) return FileSignature::kArchive;
  if (IsOnnx(head)) return FileSignature::kOnnx;
  if (head.starts_with("{\"") || head.starts_with("{\n") || head.starts_with("{\r\n")) return FileSignature::kJson;
  return FileSignature::kUnknown;
}

std::string DescribeSignature(FileSignature signature, std::string_view format) {
  const std::string convert = "; convert the model to " + std::string(format);
  switch (signature) {
    case FileSignature::kUnknown: return {};
    case FileSignature::kGguf: return "a GGUF file; name it alone";
    case FileSignature::kSafetensors: return "a safetensors file" + convert;
    case FileSignature::kZip: return "a zip archive, such as a PyTorch checkpoint" + convert;
    case FileSignature::kPickle: return "a Python pickle" + convert;
    case FileSignature::kOldGgml: return "a GGML file from before GGUF" + convert;
    case FileSignature::kOnnx: return "an ONNX file" + convert;
    case FileSignature::kHdf5: return "an HDF5 file, such as a Keras checkpoint" + convert;
    case FileSignature::kArchive: return "an archive; unpack it";
    case FileSignature::kGitLfsPointer: return "a pointer of Git LFS in place of the file; fetch it with git lfs pull";
    case FileSignature::kWebPage: return "a web page, as a failed download leaves it; download the file again";
    case FileSignature::kJson: return "a JSON file; name the folder of the model";
  }
  return {};
}

ErrorCode CodeOfSignature(FileSignature signature) {
  const bool is_left_behind = signature == FileSignature::kGitLfsPointer || signature == FileSignature::kWebPage;
  return is_left_behind ? ErrorCode::kCorruptFile : ErrorCode::kUnsupported;
}

Result<void> CheckIsDownloaded(std::string_view name, std::span<const std::byte> file) {
  const FileSignature signature = RecognizeFile(file);
  const bool is_json = name.ends_with(".json");
  if (signature != FileSignature::kGitLfsPointer && !(is_json && signature == FileSignature::kWebPage)) return {};
  return Error(CodeOfSignature(signature), std::string(name) + ": expected " + (is_json ? "JSON" : "a text") +
                                               ", found " + DescribeSignature(signature, ""));
}

}  // namespace tidemill
