#include "base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/cgroup.h"

namespace tidemill {
namespace {

// The number behind `name` in a file of names and numbers.
std::optional<uint64_t> NumberIn(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string word; file >> word; std::getline(file, word)) {
    uint64_t number = 0;
    if (word == name && file >> number) return number;
  }
  return std::nullopt;
}

// A file of one number; none where there is no such file or it says "max".
std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

std::optional<uint64_t> SystemMemory(const std::string& root) {
  const auto kib = NumberIn(root + "/proc/meminfo", "MemAvailable:");
  if (!kib || *kib > UINT64_MAX / 1024) return std::nullopt;
  return *kib * 1024;
}

// cgroup v2. Pages of files count as used there, though the system drops them when it has to.
std::optional<uint64_t> CgroupMemory(const std::string& root) {
  std::optional<uint64_t> least;
  for (const std::string& folder : CgroupFolders(root)) {
    const std::string group = folder + "/memory.";
    const auto most = NumberIn(group + "max"), current = NumberIn(group + "current");
    if (!most || !current) continue;
    uint64_t used = *current;
    for (const char* pages : {"inactive_file", "active_file"}) {
      used -= std::min(used, NumberIn(group + "stat", pages).value_or(0));
    }
    const uint64_t left = *most - std::min(*most, used);
    least = std::min(least.value_or(left), left);
  }
  return least;
}

}  // namespace

std::optional<uint64_t> AvailableMemory(const std::string& root) {
  const auto system = SystemMemory(root), cgroup = CgroupMemory(root);
  if (!system || !cgroup) return system ? system : cgroup;
  return std::min(*system, *cgroup);
}

}  // namespace tidemill
