#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace tidemill::mapped_file_test {
namespace {

// A folder of its own for each test, removed afterwards.
class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "mapped_file_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  static std::string Text(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  static void ExpectError(const std::string& path, ErrorCode code, const std::string& message) {
    const auto file = MappedFile::Open(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(ErrorCodeName(file.error().code()), ErrorCodeName(code));
    EXPECT_EQ(file.error().message(), message);
  }

  std::string folder_;
};

TEST_F(MappedFileTest, Open_ShowsTheBytesOfTheFile) {
  const std::string path = Write("model.gguf", std::string("GGUF\0\xFF", 6));
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(Text(*file), std::string("GGUF\0\xFF", 6));
}

TEST_F(MappedFileTest, MissingPaths_AreNotFound) {
  ExpectError(Path("gone"), ErrorCode::kNotFound, "open " + Path("gone") + ": No such file or directory");
  const std::string file = Write("file", "x");
  ExpectError(file + "/inside", ErrorCode::kNotFound, "open " + file + "/inside: Not a directory");
  ExpectError("", ErrorCode::kNotFound, "open : No such file or directory");
}

TEST_F(MappedFileTest, WhatIsNoRegularFile_IsRefused) {
  ExpectError(folder_, ErrorCode::kIoError, "open " + folder_ + ": expected a file, found a folder");
  ExpectError("/dev/null", ErrorCode::kIoError,
              "open /dev/null: expected a file, found something that is not a regular file");
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);  // that nobody writes to
  ExpectError(Path("pipe"), ErrorCode::kIoError,
              "open " + Path("pipe") + ": expected a file, found something that is not a regular file");
}

TEST_F(MappedFileTest, EmptyFile_IsCorrupt) {
  const std::string path = Write("empty", "");
  ExpectError(path, ErrorCode::kCorruptFile, "open " + path + ": the file is empty");
}

TEST_F(MappedFileTest, NoPermission_IsAnIoError) {
  if (geteuid() == 0) GTEST_SKIP() << "running as root, who may read everything";
  const std::string path = Write("secret", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  ExpectError(path, ErrorCode::kIoError, "open " + path + ": Permission denied");
}

TEST_F(MappedFileTest, RemovedFile_StaysReadableWhileMapped) {
  const std::string path = Write("file", "still here");
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  std::filesystem::remove(path);
  EXPECT_EQ(Text(*file), "still here");
}

TEST_F(MappedFileTest, Move_HandsTheMappingOver) {
  auto first = MappedFile::Open(Write("first", "one"));
  auto second = MappedFile::Open(Write("second", "second"));
  ASSERT_TRUE(first.ok() && second.ok());
  const std::byte* data = first->bytes().data();
  MappedFile moved(std::move(first.value()));
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_TRUE(first->bytes().empty());
  moved = std::move(second.value());
  EXPECT_EQ(Text(moved), "second");
  EXPECT_EQ(moved.path(), Path("second"));
}

TEST_F(MappedFileTest, ReleasedPages_AreReadAgainFromTheFile) {
  std::string bytes(5 * 65536, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i / 4096 + i);
  const auto file = MappedFile::Open(Write("pages", bytes));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(Text(*file), bytes);
  file->Release(file->bytes());
  EXPECT_EQ(Text(*file), bytes);
  file->Release(file->bytes().subspan(100, 3 * 65536));  // page edges inside
  file->Release(file->bytes().subspan(10, 20));          // no whole page: nothing to do
  file->Release({});
  EXPECT_EQ(Text(*file), bytes);
}

}  // namespace
}  // namespace tidemill::mapped_file_test
