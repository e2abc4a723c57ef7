#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tidemill::cgroup_test {
namespace {

class Cgroup : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_ + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  const std::string root_ = ::testing::TempDir() + "/cgroup_test";
};

TEST_F(Cgroup, Folders_AreThoseOfTheGroupAndAroundIt) {
  const std::string hierarchy = root_ + "/sys/fs/cgroup";
  const std::vector<std::string> only_root = {hierarchy};
  EXPECT_EQ(CgroupFolders(root_), only_root);  // no /proc
  for (const char* told : {"", "0::/\n", "12:cpu:/a/b\n1:name=systemd:/c\n", "0::", "\n\n"}) {
    Write("/proc/self/cgroup", told);
    EXPECT_EQ(CgroupFolders(root_), only_root) << told;
  }
  Write("/proc/self/cgroup", "3:cpu:/old\n0::/system.slice/a b.service/worker\n");
  EXPECT_EQ(CgroupFolders(root_), (std::vector<std::string>{hierarchy + "/system.slice/a b.service/worker",
                                                            hierarchy + "/system.slice/a b.service",
                                                            hierarchy + "/system.slice", hierarchy}));
  Write("/proc/self/cgroup", "0::/../elsewhere\n");  // outside what a container shows
  EXPECT_EQ(CgroupFolders(root_),
            (std::vector<std::string>{hierarchy + "/../elsewhere", hierarchy + "/..", hierarchy}));
}

TEST_F(Cgroup, CpuQuota_IsTheLeastOfAllLevels) {
  EXPECT_EQ(CgroupCpuQuota(root_), 0U);
  Write("/proc/self/cgroup", "0::/system.slice/a.service\n");
  Write("/sys/fs/cgroup/system.slice/cpu.max", "max 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 0U);
  Write("/sys/fs/cgroup/system.slice/a.service/cpu.max", "350000 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 4U);
  Write("/sys/fs/cgroup/system.slice/cpu.max", "200000 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 2U);
  Write("/sys/fs/cgroup/cpu.max", "1000 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 1U);
}

TEST_F(Cgroup, DamagedQuota_IsNone) {
  for (const char* told : {"", "many few\n", "100000\n", "100000 0\n", "0 100000\n", "-1 100000\n", "nan 1\n"}) {
    Write("/sys/fs/cgroup/cpu.max", told);
    EXPECT_EQ(CgroupCpuQuota(root_), 0U) << told;
  }
  Write("/sys/fs/cgroup/cpu.max", "1e300 1\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 1000000U);
}

}  // namespace
}  // namespace tidemill::cgroup_test
