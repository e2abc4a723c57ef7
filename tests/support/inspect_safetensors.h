// What must hold for every safetensors file that Parse accepts, and for every error it returns. For fuzzing and for tests of damage.
#ifndef TIDEMILL_TESTS_SUPPORT_INSPECT_SAFETENSORS_H_
#define TIDEMILL_TESTS_SUPPORT_INSPECT_SAFETENSORS_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/safetensors.h"

namespace tidemill::testing {

// Empty when `error` is one printable line that begins with one of `prefixes`; otherwise what is wrong with it.
inline std::string FindErrorProblem(const Error& error, std::initializer_list<std::string_view> prefixes) {
  const std::string& message = error.message();
  const auto begins = [&](std::string_view prefix) { return message.starts_with(prefix); };
  if (std::none_of(prefixes.begin(), prefixes.end(), begins))
    return "an error that does not say what it is about: " + message;
  if (message.size() > 1000) return "an error of " + std::to_string(message.size()) + " bytes";
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  if (std::any_of(message.begin(), message.end(), control)) return "an error with a control character";
  return {};
}

// Empty when the tensors of `file` follow each other through the end of `bytes`, with the sizes of their shapes, and the index finds
// each of them. Reads each tensor's first and last byte.
inline std::string FindProblem(const SafetensorsFile& file, std::span<const std::byte> bytes) {
  unsigned sum = 0;
  std::vector<std::pair<const std::byte*, const std::byte*>> ranges;
  for (const FileTensor& tensor : file.tensors()) {
    const std::string name(tensor.name);
    if (name.empty() || file.FindTensor(tensor.name) != &tensor) return "FindTensor misses " + name;
    const uint64_t elements = tensor.rows * tensor.cols;
    if (tensor.encoding == TensorEncoding::kDType && tensor.bytes.size() != elements * InfoOf(tensor.dtype).block_bytes)
      return "shape and size differ in " + name;
    const bool f8 = tensor.encoding == TensorEncoding::kF8E4M3 || tensor.encoding == TensorEncoding::kF8E5M2;
    if (f8 && tensor.bytes.size() != elements) return "shape and size differ in " + name;
    if (const auto readable = CheckReadable(tensor); !readable.ok()) {
      if (auto problem = FindErrorProblem(readable.error(), {"tensor \""}); !problem.empty()) return problem;
    } else if (tensor.type_name.empty() || tensor.encoding == TensorEncoding::kOther) {
      return "a type without a name in " + name;
    }
    if (tensor.bytes.empty()) continue;
    sum += std::to_integer<unsigned>(tensor.bytes.front()) + std::to_integer<unsigned>(tensor.bytes.back());
    ranges.emplace_back(tensor.bytes.data(), tensor.bytes.data() + tensor.bytes.size());
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first != ranges[i - 1].second) return "two tensors overlap or leave a hole";
  }
  if (!ranges.empty()) {
    if (ranges.front().first < bytes.data() + 8) return "data within the header";
    if (ranges.back().second != bytes.data() + bytes.size()) return "data that does not end with the file";
  }
  volatile unsigned keep = sum;  // so that the reads are not removed
  static_cast<void>(keep);
  return {};
}

inline std::string FindSafetensorsProblem(std::span<const std::byte> bytes) {
  const auto file = SafetensorsFile::Parse(bytes);
  return file.ok() ? FindProblem(*file, bytes)
                   : FindErrorProblem(file.error(), {"safetensors header: ", "safetensors tensor \""});
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_INSPECT_SAFETENSORS_H_
