#include "base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace tidemill {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// A file of one number; none where there is no such file or it says "max".
std::optional<uint64_t> NumberIn(const char* path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

uint64_t SystemMemory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    uint64_t kib = 0;
    if (name == "MemAvailable:" && file >> kib) return kib * 1024;
    std::getline(file, name);
  }
  return kUnknown;
}

// cgroup v2. Pages of files count as used there, though the system would drop them: the least that is left.
uint64_t CgroupMemory() {
  const auto most = NumberIn("/sys/fs/cgroup/memory.max"), used = NumberIn("/sys/fs/cgroup/memory.current");
  return most && used ? *most - std::min(*most, *used) : kUnknown;
}

}  // namespace

uint64_t AvailableMemory() { return std::min(SystemMemory(), CgroupMemory()); }

}  // namespace tidemill
