#include "base/spill_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/available_memory.h"

namespace tidemill::spill_file_test {
namespace {

std::string EmptyFolder() {
  const std::string folder = ::testing::TempDir() + "/spill_file";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  return folder;
}

std::vector<std::byte> Bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

TEST(SpillFile, GivesBackWhatItTook_AndHasNoName) {
  const std::string folder = EmptyFolder();
  for (const size_t count : {size_t{0}, size_t{1}, size_t{4096}, size_t{1000003}}) {
    auto file = SpillFile::Write(folder, Bytes(count));
    ASSERT_TRUE(file.ok()) << file.error().message();
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    EXPECT_EQ(file->size(), count);
    SpillFile moved = std::move(*file);
    for (int time = 0; time < 2; ++time) {
      const auto read = moved.Read();
      ASSERT_TRUE(read.ok()) << read.error().message();
      EXPECT_EQ(*read, Bytes(count));
    }
  }
}

TEST(SpillFile, FolderThatIsNotThere_IsAnError) {
  const auto file = SpillFile::Write(EmptyFolder() + "/none", Bytes(3));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(file.error().message().find("/none"), std::string::npos);
}

TEST(SpillFile, NoSpace_IsAnErrorAndLeavesNothing) {
  const std::string folder = EmptyFolder();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto file = SpillFile::Write(folder, Bytes(5000));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::kNoSpace);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(AvailableMemory, IsAPlausibleNumber) {
  ASSERT_TRUE(AvailableMemory().has_value());  // Linux says it
  EXPECT_GT(*AvailableMemory(), uint64_t{1} << 20);
  EXPECT_LT(*AvailableMemory(), uint64_t{1} << 50);
}

TEST(AvailableMemory, WhatTheSystemSays_IsTheLeastOfIt) {
  const std::string root = ::testing::TempDir() + "/available_memory";
  const auto write = [&root](const std::string& name, const std::string& text) {
    const std::filesystem::path path = root + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  std::filesystem::remove_all(root);
  EXPECT_EQ(AvailableMemory(root), std::nullopt);
  write("/proc/meminfo", "MemTotal: 1000 kB\n");  // before Linux 3.14
  write("/sys/fs/cgroup/memory.max", "max\n");
  write("/sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(AvailableMemory(root), std::nullopt);
  write("/sys/fs/cgroup/memory.max", "700000\n");
  EXPECT_EQ(AvailableMemory(root), 695000U);
  write("/sys/fs/cgroup/memory.stat", "anon 3000\ninactive_file 400\nactive_file 600\n");
  EXPECT_EQ(AvailableMemory(root), 696000U);
  write("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable:  600 kB\n");
  EXPECT_EQ(AvailableMemory(root), 600U * 1024);
  write("/proc/meminfo", "MemAvailable: 18446744073709551615 kB\n");
  EXPECT_EQ(AvailableMemory(root), 696000U);
  write("/sys/fs/cgroup/memory.current", "800000\n");
  EXPECT_EQ(AvailableMemory(root), 0U);
  write("/sys/fs/cgroup/memory.current", "5000\n");
  write("/proc/self/cgroup", "0::/service/a\n");  // one of the groups around it has less left than it has
  write("/sys/fs/cgroup/service/memory.max", "9000\n");
  write("/sys/fs/cgroup/service/memory.current", "2000\n");
  write("/sys/fs/cgroup/service/a/memory.max", "8000\n");
  write("/sys/fs/cgroup/service/a/memory.current", "500\n");
  EXPECT_EQ(AvailableMemory(root), 7000U);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tidemill::spill_file_test
