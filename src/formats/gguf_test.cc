#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <string>

namespace tidemill {
namespace {

using std::string_literals::operator""s;

Result<GgufFile> Parse(const std::string& bytes) { return GgufFile::Parse(std::as_bytes(std::span(bytes))); }

TEST(Gguf, SmallestFile_HasNothingInIt) {
  const auto bytes = "GGUF\x03\0\0\0"s + std::string(16, '\0');
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->version(), 3U);
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_TRUE(file->keys().empty());
}

TEST(Gguf, NoBytes_IsCorrupt) {
  const auto file = Parse("");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(file.error().message(),
            "GGUF header: byte 0: magic: expected 4 bytes, found 0; the file is truncated or damaged");
}

}  // namespace
}  // namespace tidemill
