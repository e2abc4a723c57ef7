#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "formats/gguf_tensor_type.h"
#include "tests/support/gguf_writer.h"

namespace tidemill::gguf_test {
namespace {

using std::string_literals::operator""s;
using ::testing::ElementsAre;
using testing::GgufWriter;

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

Result<GgufFile> Parse(const std::string& bytes) { return GgufFile::Parse(std::as_bytes(std::span(bytes))); }

// A parsed file together with the bytes it borrows.
class Parsed {
 public:
  explicit Parsed(GgufWriter writer) : bytes_(writer.Build()), file_(Parse(bytes_)) {
    EXPECT_TRUE(file_.ok()) << file_.error().message();
  }
  const GgufFile* operator->() const { return &file_.value(); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  Result<GgufFile> file_;
};

template <typename T>
void ExpectError(const Result<T>& result, ErrorCode code, const std::string& message) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(ErrorCodeName(result.error().code()), ErrorCodeName(code));
  EXPECT_EQ(result.error().message(), message);
}

TEST(Gguf, SmallestFile_HasNothingInIt) {
  for (const uint32_t version : {2U, 3U}) {
    GgufWriter writer;
    writer.version = version;
    const Parsed file(writer);
    EXPECT_EQ(file->version(), version);
    EXPECT_TRUE(file->tensors().empty());
    EXPECT_TRUE(file->keys().empty());
    EXPECT_EQ(file->FindTensor(""), nullptr);
    EXPECT_EQ(file->FindValue("general.architecture"), nullptr);
  }
}

TEST(Gguf, Integers_OfEveryWidthAnswerToGetUint) {
  GgufWriter w;
  w.Set<uint8_t>("u8", 200).Set<int8_t>("i8", 100).Set<uint16_t>("u16", 60000).Set<int16_t>("i16", 30000);
  w.Set<uint32_t>("u32", 4000000000U).Set<int32_t>("i32", 2000000000).Set<uint64_t>("u64", kMax).Set<int64_t>("i64", 1);
  const Parsed file(w);
  EXPECT_EQ(file->GetUint("u8", 0, kMax).value(), 200U);
  EXPECT_EQ(file->GetUint("i8", 0, kMax).value(), 100U);
  EXPECT_EQ(file->GetUint("u16", 0, kMax).value(), 60000U);
  EXPECT_EQ(file->GetUint("i16", 0, kMax).value(), 30000U);
  EXPECT_EQ(file->GetUint("u32", 0, kMax).value(), 4000000000U);
  EXPECT_EQ(file->GetUint("i32", 0, kMax).value(), 2000000000U);
  EXPECT_EQ(file->GetUint("u64", 0, kMax).value(), kMax);
  EXPECT_EQ(file->GetUint("i64", 1, 1).value(), 1U);
}

TEST(Gguf, Integers_OutsideTheRangeAreRefused) {
  GgufWriter w;
  w.Set<uint32_t>("n", 30).Set<int8_t>("i8", -1).Set<int16_t>("i16", -2).Set<int32_t>("i32", -3);
  w.Set<int64_t>("i64", std::numeric_limits<int64_t>::min());
  const Parsed file(w);
  EXPECT_TRUE(file->GetUint("n", 30, 30).ok());
  ExpectError(file->GetUint("n", 31, 40), ErrorCode::kCorruptFile,
              "GGUF metadata key \"n\": byte 37: value: expected an integer from 31 to 40, found 30");
  ExpectError(file->GetUint("n", 1, 29), ErrorCode::kCorruptFile,
              "GGUF metadata key \"n\": byte 37: value: expected an integer from 1 to 29, found 30");
  EXPECT_THAT(file->GetUint("i8", 0, kMax).error().message(), ::testing::EndsWith("found -1"));
  EXPECT_THAT(file->GetUint("i16", 0, kMax).error().message(), ::testing::EndsWith("found -2"));
  EXPECT_THAT(file->GetUint("i32", 0, kMax).error().message(), ::testing::EndsWith("found -3"));
  EXPECT_THAT(file->GetUint("i64", 0, kMax).error().message(), ::testing::EndsWith("found -9223372036854775808"));
}

TEST(Gguf, Floats_MustBeFinite) {
  GgufWriter w;
  w.Set<float>("f32", 0.5f).Set<double>("f64", 1e-5).Set<float>("nan", NAN).Set<double>("inf", -INFINITY);
  w.SetArray<float>("floats", {1.0f, -2.5f}).SetArray<float>("bad", {1.0f, INFINITY}).SetArray<float>("none", {});
  const Parsed file(w);
  EXPECT_EQ(file->GetFloat("f32").value(), 0.5);
  EXPECT_EQ(file->GetFloat("f64").value(), 1e-5);
  EXPECT_THAT(file->GetFloat("nan").error().message(), ::testing::EndsWith("expected a finite f32 or f64, found NaN"));
  EXPECT_THAT(file->GetFloat("inf").error().message(),
              ::testing::EndsWith("expected a finite f32 or f64, found infinity"));
  EXPECT_THAT(file->GetFloats("floats").value(), ElementsAre(1.0f, -2.5f));
  EXPECT_TRUE(file->GetFloats("none").value().empty());
  EXPECT_THAT(file->GetFloats("bad").error().message(),
              ::testing::EndsWith("expected finite numbers, found infinity at element 1"));
}

TEST(Gguf, StringsAndBools_ComeBackAsTheyAre) {
  GgufWriter w;
  w.SetString("s", "a\0b\xFF"s).SetString("empty", "").Set<bool>("yes", true).Set<bool>("no", false);
  w.SetStrings("list", {"one", "", "\xC4\xA0t"}).SetStrings("none", {});
  const Parsed file(w);
  EXPECT_EQ(file->GetString("s").value(), "a\0b\xFF"s);
  EXPECT_EQ(file->GetString("empty").value(), "");
  EXPECT_TRUE(file->GetBool("yes").value());
  EXPECT_FALSE(file->GetBool("no").value());
  EXPECT_THAT(file->GetStrings("list").value(), ElementsAre("one", "", "\xC4\xA0t"));
  EXPECT_TRUE(file->GetStrings("none").value().empty());
}

TEST(Gguf, IntegerArrays_OfEveryWidthAnswerToGetIntsIfTheyFit) {
  GgufWriter w;
  w.SetArray<uint8_t>("u8", {255})
      .SetArray<int8_t>("i8", {-128})
      .SetArray<uint16_t>("u16", {65535})
      .SetArray<int16_t>("i16", {-9});
  w.SetArray<uint32_t>("u32", {2147483647U}).SetArray<int32_t>("i32", {-2147483647 - 1, 5});
  w.SetArray<uint64_t>("u64", {7}).SetArray<int64_t>("i64", {-2147483648LL}).SetArray<int32_t>("none", {});
  w.SetArray<uint32_t>("big32", {1, 2147483648U})
      .SetArray<uint64_t>("big64", {kMax})
      .SetArray<int64_t>("low", {-2147483649LL});
  const Parsed file(w);
  EXPECT_THAT(file->GetInts("u8").value(), ElementsAre(255));
  EXPECT_THAT(file->GetInts("i8").value(), ElementsAre(-128));
  EXPECT_THAT(file->GetInts("u16").value(), ElementsAre(65535));
  EXPECT_THAT(file->GetInts("i16").value(), ElementsAre(-9));
  EXPECT_THAT(file->GetInts("u32").value(), ElementsAre(2147483647));
  EXPECT_THAT(file->GetInts("i32").value(), ElementsAre(-2147483647 - 1, 5));
  EXPECT_THAT(file->GetInts("u64").value(), ElementsAre(7));
  EXPECT_THAT(file->GetInts("i64").value(), ElementsAre(-2147483647 - 1));
  EXPECT_TRUE(file->GetInts("none").value().empty());
  EXPECT_THAT(file->GetInts("big32").error().message(),
              ::testing::EndsWith("expected integers of 32 bits, found 2147483648 at element 1"));
  EXPECT_THAT(file->GetInts("big64").error().message(), ::testing::EndsWith("found 18446744073709551615 at element 0"));
  EXPECT_THAT(file->GetInts("low").error().message(), ::testing::EndsWith("found -2147483649 at element 0"));
}

// Which getters answer to which type: u = GetUint, f = GetFloat, b = GetBool, s = GetString, S = GetStrings, I =
// GetInts, F = GetFloats, B = GetBools.
TEST(Gguf, EveryTypeWithEveryGetter_AnswersOrNamesBothTypes) {
  GgufWriter w;
  w.Set<uint8_t>("u8", 1).Set<int8_t>("i8", 1).Set<uint16_t>("u16", 1).Set<int16_t>("i16", 1).Set<uint32_t>("u32", 1);
  w.Set<int32_t>("i32", 1).Set<uint64_t>("u64", 1).Set<int64_t>("i64", 1).Set<float>("f32", 1).Set<double>("f64", 1);
  w.Set<bool>("bool", true).SetString("string", "x").SetStrings("strings", {"x"}).SetArray<float>("f32s", {1});
  w.SetArray<double>("f64s", {1})
      .SetRawArray("bools", 7, 1, "\1")
      .SetArray<uint8_t>("u8s", {1})
      .SetArray<int64_t>("i64s", {1});
  const Parsed file(w);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"u8", "u"},      {"i8", "u"},   {"u16", "u"}, {"i16", "u"},   {"u32", "u"},  {"i32", "u"},
      {"u64", "u"},     {"i64", "u"},  {"f32", "f"}, {"f64", "f"},   {"bool", "b"}, {"string", "s"},
      {"strings", "S"}, {"f32s", "F"}, {"f64s", ""}, {"bools", "B"}, {"u8s", "I"},  {"i64s", "I"}};
  ASSERT_EQ(expected.size(), file->keys().size());
  for (const auto& [key, getters] : expected) {
    std::string answered;
    const auto note = [&, k = key](char getter, const auto& result) {
      if (result.ok()) {
        answered += getter;
        return;
      }
      EXPECT_EQ(result.error().code(), ErrorCode::kCorruptFile) << k;
      const std::string kind = k.back() == 's' ? "found array of 1 " : "found " + k;
      EXPECT_THAT(result.error().message(), ::testing::HasSubstr("metadata key \"" + k + "\": byte ")) << getter;
      EXPECT_THAT(result.error().message(), ::testing::HasSubstr(kind)) << getter;
    };
    note('u', file->GetUint(key, 0, kMax));
    note('f', file->GetFloat(key));
    note('b', file->GetBool(key));
    note('s', file->GetString(key));
    note('S', file->GetStrings(key));
    note('I', file->GetInts(key));
    note('F', file->GetFloats(key));
    note('B', file->GetBools(key));
    EXPECT_EQ(answered, getters) << key;
  }
}

TEST(Gguf, MissingKey_IsNotFoundOrTheFallback) {
  GgufWriter w;
  w.Set<uint32_t>("n", 3).SetString("s", "x").Set<float>("f", 2).Set<bool>("b", true);
  const Parsed file(w);
  ExpectError(file->GetUint("gone", 0, 1), ErrorCode::kNotFound,
              "GGUF metadata key \"gone\": expected in the file, found none");
  EXPECT_EQ(file->GetFloat("gone").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(file->GetBool("gone").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(file->GetString("gone").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(file->GetStrings("gone").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(file->GetInts("gone").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(file->GetFloats("gone").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(file->GetBools("gone").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(file->GetUintOr("gone", 7, 0, 1).value(), 7U);
  EXPECT_EQ(file->GetFloatOr("gone", 0.5).value(), 0.5);
  EXPECT_TRUE(file->GetBoolOr("gone", true).value());
  EXPECT_EQ(file->GetStringOr("gone", "y").value(), "y");
  EXPECT_EQ(file->GetUintOr("n", 7, 0, 9).value(), 3U);
  EXPECT_EQ(file->GetFloatOr("f", 0.5).value(), 2.0);
  EXPECT_TRUE(file->GetBoolOr("b", false).value());
  EXPECT_EQ(file->GetStringOr("s", "y").value(), "x");
  EXPECT_EQ(file->GetUintOr("n", 7, 0, 2).error().code(), ErrorCode::kCorruptFile);  // there and wrong
  EXPECT_EQ(file->GetFloatOr("s", 0.5).error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(file->GetBoolOr("s", false).error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(file->GetStringOr("n", "y").error().code(), ErrorCode::kCorruptFile);
}

TEST(Gguf, Keys_KeepTheOrderOfTheFile) {
  const Parsed file(GgufWriter().Set<bool>("z", true).Set<bool>("a", true).Set<bool>("m", true));
  EXPECT_THAT(file->keys(), ElementsAre("z", "a", "m"));
}

TEST(Gguf, Tensors_OfEveryTypeAndRank) {
  GgufWriter w;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    w.AddTensor("m" + std::to_string(i), dtype, {256, 3},
                std::string(3 * RowBytes(dtype, 256), static_cast<char>('A' + i)));
  }
  w.AddTensor("vector", DType::kF32, {5}, std::string(20, 'v'))
      .AddTensor("ones", DType::kF16, {4, 2, 1, 1}, std::string(16, 'o'));
  const Parsed file(w);
  ASSERT_EQ(file->tensors().size(), kNumDTypes + 2U);
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const FileTensor& tensor = file->tensors()[static_cast<size_t>(i)];
    EXPECT_EQ(tensor.name, "m" + std::to_string(i));
    EXPECT_EQ(tensor.dtype, dtype);
    EXPECT_EQ(tensor.rows, 3U);
    EXPECT_EQ(tensor.cols, 256U);
    ASSERT_EQ(tensor.bytes.size(), 3 * RowBytes(dtype, 256));
    EXPECT_THAT(tensor.bytes, ::testing::Each(static_cast<std::byte>('A' + i)));
    EXPECT_EQ((tensor.bytes.data() - reinterpret_cast<const std::byte*>(file.bytes().data())) % 32, 0);
  }
  const FileTensor* vector = file->FindTensor("vector");
  ASSERT_NE(vector, nullptr);
  EXPECT_EQ(vector->rows, 1U);
  EXPECT_EQ(vector->cols, 5U);
  EXPECT_THAT(vector->bytes, ::testing::Each(std::byte{'v'}));
  const FileTensor* ones = file->FindTensor("ones");
  ASSERT_NE(ones, nullptr);
  EXPECT_EQ(ones->rows, 2U);
  EXPECT_EQ(ones->cols, 4U);
  EXPECT_EQ(file->FindTensor("vecto"), nullptr);
  EXPECT_EQ(file->FindTensor("vector "), nullptr);
}

// Of each shape: what counts as its rank, and its rows.
TEST(Gguf, Shapes_AreOutermostFirstWithoutOuterOnes) {
  struct Case {
    std::vector<uint64_t> dims;  // as the file lists them
    std::vector<uint64_t> shape;
    uint64_t rows, cols;
  };
  const Case cases[] = {
      {{6}, {6}, 1, 6},       {{6, 1}, {6}, 1, 6},       {{6, 1, 1, 1}, {6}, 1, 6},    {{1}, {1}, 1, 1},
      {{1, 6}, {6, 1}, 6, 1}, {{4, 2, 1}, {2, 4}, 2, 4}, {{4, 2, 3}, {3, 2, 4}, 6, 4}, {{4, 1, 3, 1}, {3, 1, 4}, 3, 4},
  };
  for (const Case& c : cases) {
    const Parsed file(GgufWriter().AddRawTensor("t", 0, c.dims, std::string(96, 't')));
    const FileTensor& tensor = file->tensors()[0];
    EXPECT_THAT(std::span(tensor.shape).first(tensor.rank), ::testing::ElementsAreArray(c.shape));
    EXPECT_THAT(std::span(tensor.shape).subspan(tensor.rank), ::testing::Each(1U)) << ShapeText(c.shape);
    EXPECT_EQ(tensor.rows, c.rows) << ShapeText(c.shape);
    EXPECT_EQ(tensor.cols, c.cols) << ShapeText(c.shape);
    EXPECT_EQ(tensor.bytes.size(), c.rows * c.cols * 4) << ShapeText(c.shape);
  }
}

TEST(Gguf, Alignment_MovesTheData) {
  for (const uint32_t alignment : {8U, 32U, 64U, 4096U, 1024U * 1024U}) {
    GgufWriter w;
    w.SetAlignment(alignment).AddTensor("a", DType::kF32, {1}, "aaaa").AddTensor("b", DType::kF32, {1}, "bbbb");
    const Parsed file(w);
    EXPECT_THAT(file->FindTensor("a")->bytes, ::testing::Each(std::byte{'a'})) << alignment;
    EXPECT_THAT(file->FindTensor("b")->bytes, ::testing::Each(std::byte{'b'})) << alignment;
  }
}

TEST(Gguf, HolesShuffledDataAndTrailingBytes_AreAllowed) {
  GgufWriter w;
  w.AddRawTensor("second", 0, {1}, "xxxx", 96).AddRawTensor("first", 0, {1}, std::string(100, 'y'), 32);
  const std::string bytes = w.Build() + std::string(1000, 't');
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(reinterpret_cast<const char*>(file->FindTensor("first")->bytes.data()), bytes.data() + w.data_begin() + 32);
  EXPECT_EQ(reinterpret_cast<const char*>(file->FindTensor("second")->bytes.data()),
            bytes.data() + w.data_begin() + 96);
}

TEST(Gguf, AsManyKeysAsAllowed_LoadAndAreFound) {
  GgufWriter w;
  for (uint64_t i = 0; i < kGgufMaxKeys; ++i)
    w.Set<uint32_t>("k" + std::to_string(i * 7919 % kGgufMaxKeys), static_cast<uint32_t>(i));
  const Parsed file(w);
  EXPECT_EQ(file->keys().size(), kGgufMaxKeys);
  EXPECT_EQ(file->GetUint("k" + std::to_string(5 * 7919 % kGgufMaxKeys), 0, kMax).value(), 5U);
}

TEST(Gguf, Limits_AreRefusedAsUnsupported) {
  GgufWriter keys;
  keys.num_keys = kGgufMaxKeys + 1;
  ExpectError(Parse(keys.Build() + std::string(14 * (kGgufMaxKeys + 1), '\0')), ErrorCode::kUnsupported,
              "GGUF header: byte 16: key count: expected at most 100000, found 100001");
  GgufWriter tensors;
  tensors.num_tensors = kGgufMaxTensors + 1;
  ExpectError(Parse(tensors.Build() + std::string(33 * (kGgufMaxTensors + 1), '\0')), ErrorCode::kUnsupported,
              "GGUF header: byte 8: tensor count: expected at most 1000000, found 1000001");
  ExpectError(Parse(GgufWriter().SetString("s", std::string(kGgufMaxStringBytes + 1, 'x')).Build()),
              ErrorCode::kUnsupported,
              "GGUF metadata key \"s\": byte 37: string length: expected at most 16777216, found 16777217");
  const std::string many(kGgufMaxArrayElements + 1, '\0');
  ExpectError(Parse(GgufWriter().SetRawArray("a", 0, many.size(), many).Build()), ErrorCode::kUnsupported,
              "GGUF metadata key \"a\": byte 41: element count: expected at most 16777216, found 16777217");
}

TEST(GgufTensorType, NumbersAndDTypes_AreInverse) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const uint32_t number = GgufTensorTypeNumber(dtype);
    EXPECT_EQ(GgufTensorDType(number), dtype);
    EXPECT_EQ(GgufTensorTypeName(number), InfoOf(dtype).name);
  }
  EXPECT_EQ(GgufTensorTypeName(14), "Q6_K");
  EXPECT_EQ(GgufTensorTypeNumber(DType::kQ6_K), 14U);
  EXPECT_FALSE(GgufTensorDType(15).has_value());
  EXPECT_EQ(GgufTensorTypeName(39), "MXFP4");
  EXPECT_EQ(GgufTensorTypeName(42), "Q2_0");
  EXPECT_EQ(GgufTensorTypeName(43), "");
  EXPECT_EQ(GgufTensorTypeName(0xFFFFFFFF), "");
}

}  // namespace
}  // namespace tidemill::gguf_test
