// What must hold for every GGUF file that Parse accepts, and for every error it returns. For fuzzing and for tests of
// damage.
#ifndef TIDEMILL_TESTS_SUPPORT_INSPECT_GGUF_H_
#define TIDEMILL_TESTS_SUPPORT_INSPECT_GGUF_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf.h"

namespace tidemill::testing {

// Empty when `error` is one printable line that names the format; otherwise what is wrong with it.
inline std::string FindProblem(const Error& error) {
  const std::string& message = error.message();
  if (!message.starts_with("GGUF ")) return "an error that does not name the format: " + message;
  if (message.size() > 1000) return "an error of " + std::to_string(message.size()) + " bytes";
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  if (std::any_of(message.begin(), message.end(), control)) return "an error with a control character";
  return {};
}

// Empty when every tensor of `file` lies inside `bytes`, apart from the others, with the size of its shape, all indices
// find what they should, and every typed getter answers every key with a value or a clean error. Reads each tensor's
// first and last byte.
inline std::string FindProblem(const GgufFile& file, std::span<const std::byte> bytes) {
  unsigned sum = 0;
  std::vector<std::pair<const std::byte*, const std::byte*>> ranges;
  for (const FileTensor& tensor : file.tensors()) {
    const std::string name(tensor.name);
    if (file.FindTensor(tensor.name) != &tensor) return "FindTensor misses " + name;
    if (tensor.bytes.empty()) return "no bytes in " + name;
    if (tensor.bytes.size() != tensor.rows * RowBytes(tensor.dtype, tensor.cols))
      return "shape and size differ in " + name;
    const std::byte* begin = tensor.bytes.data();
    const std::byte* end = begin + tensor.bytes.size();
    if (begin < bytes.data() || end > bytes.data() + bytes.size()) return "bytes outside the file in " + name;
    sum += std::to_integer<unsigned>(tensor.bytes.front()) + std::to_integer<unsigned>(tensor.bytes.back());
    ranges.emplace_back(begin, end);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) return "two tensors overlap";
  }
  std::string problem;
  const auto check = [&](const auto& result) {
    if (!result.ok() && problem.empty()) problem = FindProblem(result.error());
  };
  for (const std::string_view key : file.keys()) {
    if (file.FindValue(key) == nullptr) return "FindValue misses " + std::string(key);
    check(file.GetUint(key, 1, std::numeric_limits<uint64_t>::max()));
    check(file.GetFloat(key));
    check(file.GetBool(key));
    check(file.GetString(key));
    check(file.GetStrings(key));
    check(file.GetInts(key));
    check(file.GetFloats(key));
  }
  volatile unsigned keep = sum;  // so that the reads are not removed
  static_cast<void>(keep);
  return problem;
}

// Empty when `bytes` parse to a file without a problem or to a clean error.
inline std::string FindGgufProblem(std::span<const std::byte> bytes) {
  const auto file = GgufFile::Parse(bytes);
  return file.ok() ? FindProblem(*file, bytes) : FindProblem(file.error());
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_INSPECT_GGUF_H_
