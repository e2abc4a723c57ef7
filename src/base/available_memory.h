// How much memory this process may still take.
#ifndef TIDEMILL_BASE_AVAILABLE_MEMORY_H_
#define TIDEMILL_BASE_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tidemill {

// Bytes that the system could give without swapping, or what is left of the limit of a cgroup around the process where that is
// less. None where neither says anything. `root`: of /proc and /sys.
std::optional<uint64_t> AvailableMemory(const std::string& root = "");

}  // namespace tidemill

#endif  // TIDEMILL_BASE_AVAILABLE_MEMORY_H_
