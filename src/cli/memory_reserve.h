// Memory for the moment in which there is none: what is being made is taken apart, and the error is said.
#ifndef TIDEMILL_CLI_MEMORY_RESERVE_H_
#define TIDEMILL_CLI_MEMORY_RESERVE_H_

#include <cstddef>

namespace tidemill::cli {

// One in a process, while it lives: the first allocation that fails gives it back to the system and throws std::bad_alloc, as all that fail do.
class MemoryReserve {
 public:
  static constexpr size_t kBytes = size_t{4} << 20;  // addresses: no page of it is touched

  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Sets it aside again, if the system has it.
  static void Refill();
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_MEMORY_RESERVE_H_
