#include "formats/gguf_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace tidemill::gguf_split_test {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;

GgufFile Parse(const std::string& bytes) {
  auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(file.ok()) << file.error().message();
  return std::move(file).value();
}

struct Part {
  std::vector<std::string> tensors;
  uint16_t number = 0;
  uint16_t count = 3;
  int32_t num_tensors = 4;
};

// The parts as files, with the bytes they borrow.
class Parts {
 public:
  explicit Parts(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      GgufWriter w;
      if (bytes_.empty()) w.SetString("general.architecture", "llama");
      w.Set<uint16_t>("split.no", part.number).Set<uint16_t>("split.count", part.count);
      w.Set<int32_t>("split.tensors.count", part.num_tensors);
      for (const std::string& tensor : part.tensors) w.AddTensor(tensor, DType::kF32, {1}, tensor + "---");
      bytes_.push_back(w.Build());
    }
  }
  Result<GgufFile> Join() const {
    std::vector<GgufFile> files;
    for (const std::string& bytes : bytes_) files.push_back(Parse(bytes));
    return JoinGgufParts(std::move(files));
  }

 private:
  std::vector<std::string> bytes_;
};

TEST(GgufSplit, PartsInOrder_AreOneFile) {
  const Parts parts({{{}, 0}, {{"d", "a"}, 1}, {{"c", "b"}, 2}});
  const auto file = parts.Join();
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->GetString("general.architecture").value(), "llama");
  EXPECT_EQ(file->tensors().size(), 4U);
  for (const char* name : {"a", "b", "c", "d"}) {
    ASSERT_NE(file->FindTensor(name), nullptr) << name;
    EXPECT_EQ(file->FindTensor(name)->bytes[0], static_cast<std::byte>(name[0]));
  }
  EXPECT_EQ(file->FindTensor("e"), nullptr);
}

TEST(GgufSplit, PartsThatDoNotFit_AreRefused) {
  const auto message = [](const std::vector<Part>& parts) {
    const auto file = Parts(parts).Join();
    EXPECT_FALSE(file.ok());
    if (file.ok()) return std::string();
    EXPECT_EQ(file.error().code(), ErrorCode::kCorruptFile);
    return file.error().message();
  };
  EXPECT_EQ(message({{{"a", "b"}, 0}, {{"c"}, 2}, {{"d"}, 1}}), "GGUF part 2 of 3: split.no: expected 1, found 2");
  EXPECT_EQ(message({{{"a", "b"}, 0}, {{"c"}, 1, 4}, {{"d"}, 2}}),
            "GGUF part 2 of 3: split.count: expected 3, found 4");
  EXPECT_EQ(message({{{"a", "b"}, 0}, {{"c"}, 0, 1}, {{"d"}, 2}}),
            "GGUF part 2 of 3: split.count: expected 3, found 1");
  EXPECT_EQ(message({{{"a", "b"}, 0}, {{"c"}, 1}, {{"c"}, 2}}),
            "GGUF tensor \"c\": expected in one part, found in parts 2 and 3");
  EXPECT_EQ(message({{{"a"}, 0}, {{"b"}, 1}, {{"c"}, 2}}),
            "GGUF parts: split.tensors.count: expected 3, as many as there are, found 4");
  EXPECT_EQ(
      message({{{"a", "b"}, 0}, {{"c"}, 3, 3}, {{"d"}, 2}}),
      "GGUF part 2 of 3: GGUF metadata key \"split.no\": byte 44: value: expected an integer from 0 to 2, found 3");
}

TEST(GgufSplit, Keys_SayWhichPartAFileIs) {
  const auto read = [](GgufWriter& writer) {
    const std::string bytes = writer.Build();
    return ReadGgufPart(Parse(bytes));
  };
  GgufWriter none, one, second, lost, wrong;
  EXPECT_FALSE(read(none)->has_value());
  EXPECT_FALSE(read(one.Set<uint16_t>("split.count", 1))->has_value());
  const auto part = read(second.Set<uint16_t>("split.count", 3).Set<uint16_t>("split.no", 1));
  ASSERT_TRUE(part.ok() && part->has_value());
  EXPECT_EQ((*part)->number, 2U);
  EXPECT_EQ((*part)->count, 3U);
  EXPECT_EQ(read(lost.Set<uint16_t>("split.count", 3)).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(read(wrong.Set<uint32_t>("split.count", 10'001)).error().message(),
            "GGUF metadata key \"split.count\": byte 47: value: expected an integer from 0 to 10000, found 10001");
}

TEST(GgufSplit, Names_SayWhichPartAFileIs) {
  const auto part = ParsePartName("dir-model-00002-of-00013.gguf", ".gguf");
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->number, 2U);
  EXPECT_EQ(part->count, 13U);
  EXPECT_TRUE(ParsePartName("-00001-of-00001.gguf", ".gguf").has_value());
  EXPECT_TRUE(ParsePartName("model-00001-of-00002.safetensors", ".safetensors").has_value());
  for (const char* name :
       {"", ".gguf", "x.gguf", "x-00001-of-00003.bin", "x-00000-of-00003.gguf", "x-00004-of-00003.gguf",
        "x-0001-of-00003.gguf", "x-00001-of-0003.gguf", "x-00001-of-10001.gguf", "x-00001_of_00003.gguf",
        "x-0000a-of-00003.gguf", "x--0001-of-00003.gguf", "x-+0001-of-00003.gguf", "x 00001-of-00003.gguf"}) {
    EXPECT_FALSE(ParsePartName(name, ".gguf").has_value()) << name;
  }
}

TEST(GgufSplit, NamesOfAllParts_FollowFromOne) {
  EXPECT_THAT(GgufPartNames("a-00002-of-00003.gguf", {2, 3}).value(),
              ElementsAre("a-00001-of-00003.gguf", "a-00002-of-00003.gguf", "a-00003-of-00003.gguf"));
  const auto message = [](const char* name, PartNumber part) { return GgufPartNames(name, part).error().message(); };
  EXPECT_EQ(
      message("renamed.gguf", {2, 3}),
      "GGUF part 2 of 3: file name: expected a name that ends in \"-00002-of-00003.gguf\", found \"renamed.gguf\"");
  EXPECT_EQ(message("a-00001-of-00003.gguf", {2, 3}),
            "GGUF part 2 of 3: file name: expected a name that ends in \"-00002-of-00003.gguf\", found "
            "\"a-00001-of-00003.gguf\"");
  EXPECT_EQ(message("a-00002-of-00004.gguf", {2, 3}),
            "GGUF part 2 of 3: file name: expected a name that ends in \"-00002-of-00003.gguf\", found "
            "\"a-00002-of-00004.gguf\"");
}

}  // namespace
}  // namespace tidemill::gguf_split_test
