#include "base/cache_size.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tidemill::cache_size_test {
namespace {

class CacheSize : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(int index, const std::string& level, const std::string& type, const std::string& size) {
    const std::filesystem::path folder = root_ + "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "level") << level;
    std::ofstream(folder / "type") << type;
    std::ofstream(folder / "size") << size;
  }

  const std::string root_ = ::testing::TempDir() + "/cache_size_test";
};

TEST_F(CacheSize, LastLevel_IsTheOneWithTheHighestNumber) {
  EXPECT_EQ(LastCacheBytes(root_), 0U);  // nothing is said
  Write(0, "1\n", "Data\n", "32K\n");
  EXPECT_EQ(LastCacheBytes(root_), 32U << 10);
  Write(1, "1\n", "Instruction\n", "64K\n");
  EXPECT_EQ(LastCacheBytes(root_), 32U << 10);
  Write(3, "3\n", "Unified\n", "36608K\n");  // in any order, with gaps
  Write(2, "2\n", "Unified\n", "1M\n");
  EXPECT_EQ(LastCacheBytes(root_), 36608U << 10);
  Write(4, "4\n", "Instruction\n", "1G\n");
  EXPECT_EQ(LastCacheBytes(root_), 36608U << 10);
}

TEST_F(CacheSize, DamagedSize_IsUnknown) {
  Write(0, "1\n", "Data\n", "32K\n");
  for (const char* size : {"", "many\n", "3X\n", "99999999999999999999K\n", "18446744073709551615K\n", "K\n"}) {
    Write(1, "3\n", "Unified\n", size);
    EXPECT_EQ(LastCacheBytes(root_), 0U) << size;
  }
  Write(1, "last\n", "Unified\n", "4M\n");  // no level: no cache
  EXPECT_EQ(LastCacheBytes(root_), 32U << 10);
  Write(1, "3\n", "Unified\n", "4096\n");
  EXPECT_EQ(LastCacheBytes(root_), 4096U);
}

}  // namespace
}  // namespace tidemill::cache_size_test
