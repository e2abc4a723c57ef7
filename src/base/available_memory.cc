#include "base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace tidemill {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// The number behind `name` in a file of names and numbers.
std::optional<uint64_t> NumberIn(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string word; file >> word; std::getline(file, word)) {
    uint64_t number = 0;
    if (word == name && file >> number) return number;
  }
  return std::nullopt;
}

// A file of one number; none where there is no such file or it says "max".
std::optional<uint64_t> NumberIn(const char* path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

uint64_t SystemMemory() {
  const auto kib = NumberIn("/proc/meminfo", "MemAvailable:");
  return kib ? *kib * 1024 : kUnknown;
}

// cgroup v2. Pages of files count as used there, though the system drops them when it has to.
uint64_t CgroupMemory() {
  const auto most = NumberIn("/sys/fs/cgroup/memory.max"), current = NumberIn("/sys/fs/cgroup/memory.current");
  if (!most || !current) return kUnknown;
  uint64_t used = *current;
  for (const char* pages : {"inactive_file", "active_file"}) {
    used -= std::min(used, NumberIn("/sys/fs/cgroup/memory.stat", pages).value_or(0));
  }
  return *most - std::min(*most, used);
}

}  // namespace

uint64_t AvailableMemory() { return std::min(SystemMemory(), CgroupMemory()); }

}  // namespace tidemill
