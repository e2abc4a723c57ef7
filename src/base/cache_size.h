// How much the processor's last cache holds.
#ifndef TIDEMILL_BASE_CACHE_SIZE_H_
#define TIDEMILL_BASE_CACHE_SIZE_H_

#include <cstdint>
#include <string>

namespace tidemill {

// Bytes of the last-level cache that the first core shares: of a machine with several such caches, of one. 0 where the system does not say.
// `root`: of /sys.
uint64_t LastCacheBytes(const std::string& root = "");

}  // namespace tidemill

#endif  // TIDEMILL_BASE_CACHE_SIZE_H_
