#include "cli/errors.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "cli/utf8.h"

namespace tidemill::cli::errors_test {
namespace {

TEST(ExitCode, EveryErrorCode_IsInTheTable) {
  const std::map<ErrorCode, int> expected = {{ErrorCode::kInvalidArgument, 2},
                                             {ErrorCode::kNotFound, 1},
                                             {ErrorCode::kCorruptFile, 1},
                                             {ErrorCode::kUnsupported, 1},
                                             {ErrorCode::kOutOfMemory, 1},
                                             {ErrorCode::kContextFull, 1},
                                             {ErrorCode::kIoError, 1},
                                             {ErrorCode::kNoSpace, 4},
                                             {ErrorCode::kNumericalError, 1},
                                             {ErrorCode::kCancelled, 1},
                                             {ErrorCode::kFailedPrecondition, 1},
                                             {ErrorCode::kInternal, 70}};
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    ASSERT_TRUE(expected.contains(code)) << ErrorCodeName(code);
    EXPECT_EQ(ExitCodeFor(code), expected.at(code)) << ErrorCodeName(code);
  }
}

TEST(ErrorLine, ControlBytesAndInvalidUtf8_AreEscaped) {
  EXPECT_EQ(ErrorLine("a\nb\x1b[31m \xff \x7f \xc2\x85 \xc3\xa4"),
            "tidemill: a\\x0ab\\x1b[31m \\xff \\x7f \\xc2\\x85 \xc3\xa4");
}

TEST(ErrorLine, LongMessage_KeepsBothEndsAndWholeCharacters) {
  for (const std::string letter : {"x", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x8c\x8a"}) {
    std::string middle;
    while (middle.size() < 5000) middle += letter;
    for (size_t shift = 0; shift < 4; ++shift) {
      const std::string line = ErrorLine(std::string(shift, 'a') + "open: " + middle + ": what to do");
      EXPECT_LE(line.size(), kMaxErrorLine);
      EXPECT_GT(line.size(), kMaxErrorLine - 8);
      EXPECT_TRUE(line.starts_with("tidemill: "));
      EXPECT_TRUE(line.ends_with(": what to do"));
      EXPECT_FALSE(FindInvalidUtf8(line).has_value()) << line;
    }
  }
}

TEST(SystemError, FullDisk_IsNoSpace) {
  for (const int number : {ENOSPC, EDQUOT, EFBIG}) EXPECT_EQ(SystemError("a", "b", number).code(), ErrorCode::kNoSpace);
  EXPECT_EQ(SystemError("a", "b", ENOENT).code(), ErrorCode::kNotFound);
  EXPECT_EQ(SystemError("write", "out.bin", EIO).message(), "write: out.bin: Input/output error");
}

TEST(Utf8, MalformedSequences_AreFoundAtTheirFirstByte) {
  const std::map<std::string, size_t> bad = {
      {"\x80", 0},         {"a\xc0\x80", 1},        {"ab\xc1\xbf", 2},       {"\xe0\x9f\xbf", 0},
      {"\xed\xa0\x80", 0}, {"\xf0\x8f\xbf\xbf", 0}, {"\xf4\x90\x80\x80", 0}, {"\xf5\x80\x80\x80", 0},
      {"abc\xe2\x82", 3},  {"\xc3\x28", 0}};
  for (const auto& [text, offset] : bad) EXPECT_EQ(FindInvalidUtf8(text), offset) << Printable(text);
  for (const std::string good : {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                                 "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_FALSE(FindInvalidUtf8(good).has_value()) << Printable(good);
  }
  EXPECT_EQ(CharacterAt("\xf0\x9f\x8c\x8a", 0).code, U'\U0001F30A');
}

}  // namespace
}  // namespace tidemill::cli::errors_test
