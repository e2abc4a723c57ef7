// The safetensors reader over arbitrary bytes: a clean error, or a file whose every tensor can be read.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "tests/support/inspect_safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string problem = tidemill::testing::FindSafetensorsProblem(std::as_bytes(std::span(data, size)));
  if (!problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    std::abort();
  }
  return 0;
}
