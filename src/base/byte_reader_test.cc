#include "base/byte_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace tidemill::byte_reader_test {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(ByteReader, Read_TakesLittleEndianValuesInOrder) {
  const std::string bytes("\x01\x02\x03\x04\x05\xFF\x00\x00\x80\x3F", 10);
  ByteReader reader(Bytes(bytes));
  EXPECT_EQ(reader.Read<uint8_t>("a").value(), 1);
  EXPECT_EQ(reader.Read<uint32_t>("b").value(), 0x05040302U);
  EXPECT_EQ(reader.position(), 5U);
  EXPECT_EQ(reader.remaining(), 5U);
  EXPECT_EQ(reader.Read<int8_t>("c").value(), -1);
  EXPECT_EQ(reader.Read<float>("d").value(), 1.0f);
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(ByteReader, ReadPastTheEnd_NamesTheFieldAndConsumesNothing) {
  const std::string bytes = "abcde";
  ByteReader reader(Bytes(bytes));
  EXPECT_TRUE(reader.Read<uint16_t>("first").ok());
  const auto past = reader.Read<uint32_t>("tensor count");
  ASSERT_FALSE(past.ok());
  EXPECT_EQ(past.error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(past.error().message(),
            "byte 2: tensor count: expected 4 bytes, found 3; the file is truncated or damaged");
  EXPECT_EQ(reader.position(), 2U);
  EXPECT_TRUE(reader.Read<uint16_t>("second").ok());
}

TEST(ByteReader, Take_BorrowsTheBytesGiven) {
  const std::string bytes = "abcde";
  ByteReader reader(Bytes(bytes));
  EXPECT_TRUE(reader.Take(0, "nothing").value().empty());
  EXPECT_EQ(reader.Take(5, "all").value().data(), Bytes(bytes).data());
  EXPECT_TRUE(reader.Take(0, "nothing at the end").ok());
  EXPECT_FALSE(reader.Take(1, "one more").ok());
}

TEST(ByteReader, TakeOfAnAbsurdCount_IsAnErrorNotAWrap) {
  const std::string bytes = "abcde";
  ByteReader reader(Bytes(bytes));
  ASSERT_TRUE(reader.Read<uint8_t>("one").ok());
  for (const uint64_t count : {uint64_t{5}, uint64_t{1} << 63, std::numeric_limits<uint64_t>::max()}) {
    const auto taken = reader.Take(count, "string");
    ASSERT_FALSE(taken.ok()) << count;
    EXPECT_EQ(taken.error().message(), "byte 1: string: expected " + std::to_string(count) +
                                           " bytes, found 4; the file is truncated or damaged");
    EXPECT_EQ(reader.position(), 1U);
  }
}

TEST(ByteReader, NoBytes_HaveNothingToRead) {
  ByteReader reader({});
  EXPECT_EQ(reader.remaining(), 0U);
  EXPECT_FALSE(reader.Read<uint8_t>("anything").ok());
}

}  // namespace
}  // namespace tidemill::byte_reader_test
