// What the control groups that this process is in (cgroup v2) allow it.
#ifndef TIDEMILL_BASE_CGROUP_H_
#define TIDEMILL_BASE_CGROUP_H_

#include <cstddef>
#include <string>
#include <vector>

namespace tidemill {

// The folders of this process's group and of those around it, without "/" at the end, from the innermost to the root of the
// hierarchy, which is always there; each of them limits the process. Some may not exist, as a container need not show the groups around
// it. `root`: of /proc and /sys.
std::vector<std::string> CgroupFolders(const std::string& root = "");

// The least quota of them in whole CPUs, rounded up, at least 1; 0 where there is none.
size_t CgroupCpuQuota(const std::string& root = "");

}  // namespace tidemill

#endif  // TIDEMILL_BASE_CGROUP_H_
