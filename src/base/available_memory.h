// How much memory this process may still take.
#ifndef TIDEMILL_BASE_AVAILABLE_MEMORY_H_
#define TIDEMILL_BASE_AVAILABLE_MEMORY_H_

#include <cstdint>

namespace tidemill {

// Bytes that the system could give without swapping, or what is left of the cgroup's limit where that is less. UINT64_MAX where
// neither says anything.
uint64_t AvailableMemory();

}  // namespace tidemill

#endif  // TIDEMILL_BASE_AVAILABLE_MEMORY_H_
