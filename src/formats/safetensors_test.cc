#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "formats/safetensors_type.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::safetensors_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::SafetensorsBytes;
using testing::SafetensorsWriter;

Result<SafetensorsFile> Parse(const std::string& bytes) {
  return SafetensorsFile::Parse(std::as_bytes(std::span(bytes)));
}

// A parsed file together with the bytes it borrows.
class Parsed {
 public:
  explicit Parsed(std::string bytes) : bytes_(std::move(bytes)), file_(Parse(bytes_)) {
    EXPECT_TRUE(file_.ok()) << file_.error().message();
  }
  explicit Parsed(const SafetensorsWriter& writer) : Parsed(writer.Build()) {}
  const SafetensorsFile* operator->() const { return &file_.value(); }
  SafetensorsFile Take() { return std::move(file_).value(); }

 private:
  std::string bytes_;
  Result<SafetensorsFile> file_;
};

TEST(Safetensors, SmallestFile_HasNothingInIt) {
  const Parsed file(SafetensorsBytes("{}"));
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_EQ(file->FindTensor(""), nullptr);
}

TEST(Safetensors, Tensors_OfTheTypesThatWeightsHave) {
  SafetensorsWriter w;
  w.SetMetadata("format", "pt")
      .Add("m", "BF16", {3, 2}, std::string(12, 'm'))
      .Add("v", "F32", {5}, std::string(20, 'v'))
      .Add("experts", "F16", {4, 2, 3}, std::string(48, 'e'))
      .Add("conv", "F16", {2, 3, 1, 2}, std::string(24, 'c'))
      .Add("f8", "F8_E4M3", {2, 2}, std::string(4, '8'))
      .Add("f8b", "F8_E5M2", {1}, "5");
  const Parsed file(w);
  struct Expected {
    const char* name;
    DType dtype;
    TensorEncoding encoding;
    const char* type_name;
    std::vector<uint64_t> shape;
    uint64_t rows, cols;
    size_t bytes;
    char data;
  };
  const Expected expected[] = {
      {"m", DType::kBF16, TensorEncoding::kDType, "BF16", {3, 2}, 3, 2, 12, 'm'},
      {"v", DType::kF32, TensorEncoding::kDType, "F32", {5}, 1, 5, 20, 'v'},
      {"experts", DType::kF16, TensorEncoding::kDType, "F16", {4, 2, 3}, 8, 3, 48, 'e'},
      {"conv", DType::kF16, TensorEncoding::kDType, "F16", {2, 3, 1, 2}, 6, 2, 24, 'c'},
      {"f8", DType::kF16, TensorEncoding::kF8E4M3, "F8_E4M3", {2, 2}, 2, 2, 4, '8'},
      {"f8b", DType::kF16, TensorEncoding::kF8E5M2, "F8_E5M2", {1}, 1, 1, 1, '5'},
  };
  ASSERT_EQ(file->tensors().size(), std::size(expected));
  for (const Expected& e : expected) {
    const FileTensor* tensor = file->FindTensor(e.name);
    ASSERT_NE(tensor, nullptr) << e.name;
    EXPECT_EQ(tensor->dtype, e.dtype) << e.name;
    EXPECT_EQ(tensor->encoding, e.encoding) << e.name;
    EXPECT_EQ(tensor->type_name, e.type_name);
    EXPECT_THAT(std::span(tensor->shape).first(tensor->rank), ::testing::ElementsAreArray(e.shape)) << e.name;
    EXPECT_THAT(std::span(tensor->shape).subspan(tensor->rank), Each(1U)) << e.name;
    EXPECT_EQ(tensor->rows, e.rows) << e.name;
    EXPECT_EQ(tensor->cols, e.cols) << e.name;
    EXPECT_EQ(tensor->bytes.size(), e.bytes) << e.name;
    EXPECT_THAT(tensor->bytes, Each(static_cast<std::byte>(e.data))) << e.name;
    EXPECT_TRUE(CheckReadable(*tensor).ok()) << e.name;
  }
}

TEST(Safetensors, EveryOtherType_IsMeasuredAndRefusedWhenWanted) {
  for (const SafetensorsType& type : kSafetensorsTypes) {
    const Parsed file(SafetensorsWriter().Add("t", type.name, {2, 4}, std::string(type.bits, 't')));
    const FileTensor& tensor = file->tensors()[0];
    EXPECT_EQ(tensor.type_name, type.name);
    EXPECT_EQ(tensor.bytes.size(), type.bits);
    const auto readable = CheckReadable(tensor);
    ASSERT_EQ(readable.ok(), type.encoding != TensorEncoding::kOther) << type.name;
    if (readable.ok()) continue;
    EXPECT_EQ(readable.error().code(), ErrorCode::kUnsupported);
    EXPECT_EQ(readable.error().message(),
              "tensor \"t\": expected F32, F16, BF16, F8_E4M3 or F8_E5M2, found type " + std::string(type.name));
  }
}

TEST(Safetensors, ScalarsEmptyTensorsAndManyDimensions_MayBeInAFile) {
  SafetensorsWriter w;
  w.Add("scalar", "I64", {}, std::string(8, 's')).Add("none", "F32", {0, 7}, "").Add("none2", "F32", {7, 0}, "");
  w.Add("video", "F32", {1, 2, 1, 2, 1}, std::string(16, 'x'));
  const Parsed file(w);
  const FileTensor* scalar = file->FindTensor("scalar");
  EXPECT_EQ(scalar->rank, 0);
  EXPECT_EQ(scalar->rows, 1U);
  EXPECT_EQ(scalar->cols, 1U);
  EXPECT_EQ(file->FindTensor("none")->rows, 0U);
  EXPECT_EQ(file->FindTensor("none")->cols, 7U);
  EXPECT_EQ(file->FindTensor("none2")->rows, 7U);
  EXPECT_EQ(file->FindTensor("none2")->cols, 0U);
  EXPECT_TRUE(file->FindTensor("none")->bytes.empty());
  const FileTensor* video = file->FindTensor("video");
  EXPECT_EQ(video->rank, 5);
  EXPECT_EQ(video->rows, 4U);
  EXPECT_EQ(CheckReadable(*video).error().message(), "tensor \"video\": expected at most 4 dimensions, found 5");
}

TEST(Safetensors, EscapedNames_AreReadAndOutliveAMove) {
  Parsed parsed(SafetensorsBytes(
      R"({"\u0061b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"\u00e9\ud83c\udf0a/\"":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
      "xyz"));
  const SafetensorsFile file = parsed.Take();
  ASSERT_NE(file.FindTensor("ab"), nullptr);
  EXPECT_THAT(file.FindTensor("ab")->bytes, ElementsAre(std::byte{'x'}, std::byte{'y'}));
  ASSERT_NE(file.FindTensor("\xC3\xA9\xF0\x9F\x8C\x8A/\""), nullptr);
}

TEST(Safetensors, DataInAnyOrderAndFieldsInAnyOrder_AreAllowed) {
  const Parsed file(
      SafetensorsBytes("{ \"b\" : { \"data_offsets\" : [ 4 , 8 ] , \"shape\" : [ 1 ] , \"dtype\" : \"F32\" } ,\n"
                       "\"a\":{\"shape\":[4],\"dtype\":\"I8\",\"data_offsets\":[0,4]},\"__metadata__\":{}}   \n",
                       "aaaabbbb"));
  EXPECT_THAT(file->FindTensor("a")->bytes, Each(std::byte{'a'}));
  EXPECT_THAT(file->FindTensor("b")->bytes, Each(std::byte{'b'}));
  EXPECT_EQ(file->tensors()[0].name, "b");
}

TEST(Safetensors, HeaderOfAnOddLength_PutsTheDataThere) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  for (size_t blanks = 0; blanks < 8; ++blanks) {
    const Parsed file(SafetensorsBytes(header + std::string(blanks, ' '), "abcd"));
    EXPECT_EQ(file->tensors()[0].bytes[0], std::byte{'a'}) << blanks;
    EXPECT_EQ(file->tensors()[0].bytes[3], std::byte{'d'}) << blanks;
  }
}

TEST(Safetensors, ManyTensors_AreFound) {
  constexpr int kTensors = 20'000;
  SafetensorsWriter w;
  for (int i = 0; i < kTensors; ++i)
    w.Add("t" + std::to_string(i * 7919 % kTensors), "U8", {1}, std::string(1, static_cast<char>(i)));
  const Parsed file(w);
  ASSERT_EQ(file->tensors().size(), static_cast<size_t>(kTensors));
  for (int i = 0; i < kTensors; ++i) {
    const FileTensor* tensor = file->FindTensor("t" + std::to_string(i * 7919 % kTensors));
    ASSERT_NE(tensor, nullptr) << i;
    ASSERT_EQ(tensor->bytes[0], static_cast<std::byte>(i)) << i;
  }
}

TEST(SafetensorsType, Names_AreFoundAndNothingElse) {
  for (const SafetensorsType& type : kSafetensorsTypes) EXPECT_EQ(FindSafetensorsType(type.name), &type);
  for (const char* name : {"", "F33", "f32", "F32 ", "F8", "Q4_0", "I4"})
    EXPECT_EQ(FindSafetensorsType(name), nullptr) << name;
}

}  // namespace
}  // namespace tidemill::safetensors_test
