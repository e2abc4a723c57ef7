// The error for memory that is not there, made where there may be no memory for its words either.
#ifndef TIDEMILL_BASE_OUT_OF_MEMORY_H_
#define TIDEMILL_BASE_OUT_OF_MEMORY_H_

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "tidemill/result.h"

namespace tidemill {

// "what: 4096 bytes: the system has no more memory"; bytes 0: not known. Without memory for that: "out of memory".
inline Error OutOfMemoryError(std::string_view what, uint64_t bytes = 0) noexcept {
  try {
    std::string message(what);
    if (bytes != 0) message += ": " + std::to_string(bytes) + " bytes";
    return Error(ErrorCode::kOutOfMemory, message + ": the system has no more memory");
  } catch (const std::exception&) {
    return Error(ErrorCode::kOutOfMemory, "out of memory");  // short enough for std::string to hold it in itself
  }
}

}  // namespace tidemill

#endif  // TIDEMILL_BASE_OUT_OF_MEMORY_H_
