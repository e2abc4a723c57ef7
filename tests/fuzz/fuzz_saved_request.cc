// The reader of saved requests over arbitrary bytes: a clean error, or a record that is written as the same bytes again. Each input
// also with a size and a checksum that fit, which a fuzzer does not find by itself.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "runtime/request_record.h"

namespace {

void Check(std::span<const std::byte> bytes) {
  const auto record = tidemill::DecodeRequest(bytes);
  if (!record.ok()) {
    if (record.error().message().find('\n') == std::string::npos) return;
    std::fprintf(stderr, "an error of more than one line\n");
    std::abort();
  }
  const std::vector<std::byte> again = tidemill::EncodeRequest(*record);
  if (std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) return;
  std::fprintf(stderr, "%zu bytes were read that are written otherwise\n", bytes.size());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  Check(bytes);
  if (size < tidemill::kRequestRecordHeaderBytes) return 0;
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  tidemill::SealRequest(sealed);
  Check(sealed);
  return 0;
}
