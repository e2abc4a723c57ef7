// Systematic damage to safetensors files: cut and flipped. Each must give a clean error or a file that keeps every promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/inspect_safetensors.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::testing::safetensors_damage_test {
namespace {

// Tensors of several types, metadata, an escaped name: what the damage tests cut and flip.
SafetensorsWriter Varied() {
  SafetensorsWriter w;
  w.SetMetadata("format", "pt").SetMetadata("note", "a\\u00e9");
  w.Add("model.embed", "BF16", {3, 4}, std::string(24, 'e')).Add("norm", "F32", {4}, std::string(16, 'n'));
  w.Add("ids\\u002e1", "I64", {1}, std::string(8, 'i'))
      .Add("none", "F16", {0}, "")
      .Add("q", "F8_E4M3", {2, 2, 1}, "qqqq");
  return w;
}

std::string FindProblemOfCopy(const std::string& bytes) {
  const auto copy = std::make_unique<char[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  return FindSafetensorsProblem(std::as_bytes(std::span(copy.get(), bytes.size())));
}

TEST(SafetensorsDamage, EveryCut_IsACleanError) {
  const std::string bytes = Varied().Build();
  ASSERT_EQ(FindProblemOfCopy(bytes), "");
  ASSERT_TRUE(SafetensorsFile::Parse(std::as_bytes(std::span(bytes))).ok());
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::string cut = bytes.substr(0, length);
    ASSERT_FALSE(SafetensorsFile::Parse(std::as_bytes(std::span(cut))).ok()) << length;
    ASSERT_EQ(FindProblemOfCopy(cut), "") << length;
  }
}

TEST(SafetensorsDamage, EveryFlippedBitAndReplacedByteOfTheHeader_IsACleanErrorOrAFileThatHolds) {
  const SafetensorsWriter w = Varied();
  const std::string bytes = w.Build();
  const size_t header_bytes = 8 + w.Header().size();
  size_t loaded = 0;
  for (size_t at = 0; at < header_bytes; ++at) {
    std::vector<char> values = {'\0', '"', '{', ']', '-', '9', '\\', '\x7F', '\xFF'};
    for (int bit = 0; bit < 8; ++bit) values.push_back(static_cast<char>(bytes[at] ^ (1 << bit)));
    for (const char value : values) {
      std::string damaged = bytes;
      damaged[at] = value;
      ASSERT_EQ(FindProblemOfCopy(damaged), "") << "byte " << at << " = " << static_cast<int>(value);
      loaded += SafetensorsFile::Parse(std::as_bytes(std::span(damaged))).ok() ? 1 : 0;
    }
  }
  EXPECT_GT(loaded, 0U);  // a letter of a name may change
  EXPECT_LT(loaded, header_bytes * 17 / 2);
}

}  // namespace
}  // namespace tidemill::testing::safetensors_damage_test
