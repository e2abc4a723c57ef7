// The GGUF reader over arbitrary bytes: a clean error, or a file whose every tensor and every value can be read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>

#include "formats/gguf.h"

namespace tidemill {
namespace {

// A wrong answer is a finding, as a crash is.
void Require(bool condition) {
  if (!condition) std::abort();
}

void RequireCleanError(const Error& error) {
  Require(error.message().starts_with("GGUF "));
  Require(error.message().size() < 1000);
  Require(std::none_of(error.message().begin(), error.message().end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }));
}

template <typename T>
void RequireValueOrCleanError(const Result<T>& result) {
  if (!result.ok()) RequireCleanError(result.error());
}

void ReadEverything(const GgufFile& file, std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    Require(file.FindTensor(tensor.name) == &tensor);
    Require(tensor.bytes.size() == tensor.rows * RowBytes(tensor.dtype, tensor.cols) && !tensor.bytes.empty());
    Require(tensor.bytes.data() >= bytes.data() && tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
    sum += std::to_integer<unsigned>(tensor.bytes.front()) + std::to_integer<unsigned>(tensor.bytes.back());
  }
  for (const std::string_view key : file.keys()) {
    Require(file.FindValue(key) != nullptr);
    RequireValueOrCleanError(file.GetUint(key, 1, std::numeric_limits<uint64_t>::max()));
    RequireValueOrCleanError(file.GetFloat(key));
    RequireValueOrCleanError(file.GetBool(key));
    RequireValueOrCleanError(file.GetString(key));
    RequireValueOrCleanError(file.GetStrings(key));
    RequireValueOrCleanError(file.GetInts(key));
    RequireValueOrCleanError(file.GetFloats(key));
  }
  volatile unsigned keep = sum;  // so that the reads are not removed
  static_cast<void>(keep);
}

}  // namespace
}  // namespace tidemill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = tidemill::GgufFile::Parse(bytes);
  if (file.ok()) {
    tidemill::ReadEverything(*file, bytes);
  } else {
    tidemill::RequireCleanError(file.error());
  }
  return 0;
}
