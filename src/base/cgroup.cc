#include "base/cgroup.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <locale>
#include <string_view>

namespace tidemill {
namespace {

// Of a "cpu.max": "quota period", both in microseconds, the first perhaps "max".
size_t QuotaIn(const std::string& path) {
  std::ifstream file(path);
  file.imbue(std::locale::classic());
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || !(quota > 0) || !(period > 0)) return 0;
  return static_cast<size_t>(std::clamp(std::ceil(quota / period), 1.0, 1e6));
}

}  // namespace

std::vector<std::string> CgroupFolders(const std::string& root) {
  const std::string hierarchy = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  constexpr std::string_view kSecondVersion = "0::/";
  std::string group;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kSecondVersion)) group = line.substr(kSecondVersion.size() - 1);
  }
  std::vector<std::string> folders;
  // "/a/b", "/a", "": each begins with a '/', so that one is found until nothing is left.
  for (; group.size() > 1; group.resize(group.rfind('/'))) folders.push_back(hierarchy + group);
  folders.push_back(hierarchy);
  return folders;
}

size_t CgroupCpuQuota(const std::string& root) {
  size_t least = 0;
  for (const std::string& folder : CgroupFolders(root)) {
    const size_t quota = QuotaIn(folder + "/cpu.max");
    if (quota != 0 && (least == 0 || quota < least)) least = quota;
  }
  return least;
}

}  // namespace tidemill
