// Where the real model that slow tests run is.
#ifndef TIDEMILL_TESTS_SUPPORT_SMOLLM2_PATH_H_
#define TIDEMILL_TESTS_SUPPORT_SMOLLM2_PATH_H_

#include <cstdio>
#include <cstdlib>
#include <string>

namespace tidemill::testing {

// From the environment variable TIDEMILL_SMOLLM2; without it the test program ends: a missing model is a failure, not a skip.
inline std::string SmolLm2Path() {
  const char* path = std::getenv("TIDEMILL_SMOLLM2");
  if (path == nullptr) {
    std::fprintf(
        stderr, "TIDEMILL_SMOLLM2 is not set: expected the path of the SmolLM2 file that tools/get_model.py fetches\n");
    std::exit(1);
  }
  return path;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SMOLLM2_PATH_H_
