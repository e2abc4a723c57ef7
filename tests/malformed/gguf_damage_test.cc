// Systematic damage to GGUF files: cut, flipped and absurd. Each must give a clean error or a file that keeps every
// promise.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_tensor_type.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/inspect_gguf.h"

namespace tidemill::testing::gguf_damage_test {
namespace {

// A copy without a spare byte behind it, so that AddressSanitizer sees a read past the end.
std::string FindProblemOfCopy(const std::string& bytes) {
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return FindGgufProblem({copy.get(), bytes.size()});
}

GgufWriter Varied() {
  GgufWriter w;
  w.SetString("general.architecture", "llama")
      .Set<uint32_t>("llama.block_count", 1)
      .Set<float>("eps", 1e-5f)
      .Set<bool>("flag", true);
  w.SetAlignment(32)
      .SetStrings("tokens", {"a", "b", "ab"})
      .SetArray<int32_t>("types", {1, 1, 3})
      .SetArray<float>("scores", {0.5f});
  w.SetRawArray("flags", 7, 2, std::string("\1\0", 2)).Set<int64_t>("i64", -1).Set<double>("f64", 0.25);
  w.AddTensor("token_embd.weight", DType::kQ4_1, {32, 3}, std::string(60, 'a'));
  w.AddTensor("blk.0.attn_q.weight", DType::kQ8_0, {64, 2}, std::string(136, 'b'));
  w.AddTensor("blk.0.attn_norm.weight", DType::kF32, {8}, std::string(32, 'c'));
  w.AddTensor("output.weight", DType::kBF16, {8, 3, 1, 1}, std::string(48, 'd'));
  return w;
}

TEST(GgufDamage, CutAtEveryByte_IsAnError) {
  const std::string bytes = Varied().Build();
  ASSERT_EQ(FindProblemOfCopy(bytes), "");
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::string cut = bytes.substr(0, length);
    ASSERT_FALSE(GgufFile::Parse(std::as_bytes(std::span(cut))).ok()) << length;
    ASSERT_EQ(FindProblemOfCopy(cut), "") << length;
  }
}

TEST(GgufDamage, EveryBitOfTheHeaderFlipped_IsACleanErrorOrAFileThatHolds) {
  GgufWriter w = Varied();
  const std::string bytes = w.Build();
  size_t loaded = 0;
  for (size_t bit = 0; bit < w.header_bytes() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_EQ(FindProblemOfCopy(damaged), "") << "bit " << bit;
    loaded += GgufFile::Parse(std::as_bytes(std::span(damaged))).ok() ? 1 : 0;
  }
  EXPECT_GT(loaded, 0U);  // a letter of a string may change
  EXPECT_LT(loaded, w.header_bytes() * 8);
}

TEST(GgufDamage, EveryHeaderByteReplaced_IsACleanErrorOrAFileThatHolds) {
  GgufWriter w = Varied();
  const std::string bytes = w.Build();
  for (size_t at = 0; at < w.header_bytes(); ++at) {
    for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(value);
      ASSERT_EQ(FindProblemOfCopy(damaged), "") << "byte " << at << " = " << value;
    }
  }
}

TEST(GgufDamage, AbsurdDimensions_NeverLoad) {
  const uint64_t absurd[] = {0,
                             uint64_t{1} << 31,
                             uint64_t{1} << 32,
                             (uint64_t{1} << 63) - 1,
                             uint64_t{1} << 63,
                             std::numeric_limits<uint64_t>::max()};
  for (int t = 0; t < kNumDTypes; ++t) {
    const uint32_t type = GgufTensorTypeNumber(static_cast<DType>(t));
    for (size_t rank = 1; rank <= 4; ++rank) {
      for (size_t at = 0; at < rank; ++at) {
        for (const uint64_t dim : absurd) {
          for (const uint64_t others : {uint64_t{1}, uint64_t{32}, dim}) {
            std::vector<uint64_t> dims(rank, others);
            dims[at] = dim;
            const std::string bytes = GgufWriter().AddRawTensor("t", type, dims, std::string(256, 'd')).Build();
            ASSERT_FALSE(GgufFile::Parse(std::as_bytes(std::span(bytes))).ok())
                << type << " rank " << rank << " dim " << dim;
            ASSERT_EQ(FindProblemOfCopy(bytes), "") << type << " rank " << rank << " dim " << dim;
          }
        }
      }
    }
  }
}

TEST(GgufDamage, EveryTensorTypeNumber_LoadsOrIsRefusedByName) {
  for (uint32_t type = 0; type < 64; ++type) {
    const std::string bytes = GgufWriter().AddRawTensor("t", type, {256}, std::string(1024, 'd')).Build();
    const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
    ASSERT_EQ(file.ok(), GgufTensorDType(type).has_value()) << type;
    if (file.ok()) continue;
    EXPECT_EQ(file.error().code(), ErrorCode::kUnsupported) << type;
    const std::string name(GgufTensorTypeName(type));
    const std::string expected = name.empty() ? "unknown tensor type " + std::to_string(type)
                                              : "tensor type " + name + " (" + std::to_string(type) + ")";
    EXPECT_NE(file.error().message().find("found " + expected), std::string::npos) << file.error().message();
  }
}

}  // namespace
}  // namespace tidemill::testing::gguf_damage_test
