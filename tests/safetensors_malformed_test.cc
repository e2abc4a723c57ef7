// safetensors files that are wrong in one place, each with the code and the message its reader owes the user; and every cut and
// every flipped bit of a valid one.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/inspect_safetensors.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::testing {
namespace {

using std::string_literals::operator""s;

constexpr ErrorCode kCorrupt = ErrorCode::kCorruptFile;
constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;

struct Case {
  const char* name;
  std::string bytes;
  ErrorCode code;
  std::string message;
};

std::string WithLength(uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

// One tensor "t" with this entry, in front of `data`.
std::string WithEntry(const std::string& entry, const std::string& data = std::string(16, 'd')) {
  return SafetensorsBytes("{\"t\":" + entry + "}", data);
}
std::string WithShape(const std::string& dtype, const std::string& shape, const std::string& offsets = "[0,16]") {
  return WithEntry("{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}");
}
std::string WithOffsets(const std::string& offsets) { return WithShape("F32", "[2,2]", offsets); }
std::string WithName(const std::string& name) {
  return SafetensorsBytes("{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "d");
}
// Tensors "a" and "b" of 8 bytes each at these ranges.
std::string TwoAt(const std::string& a, const std::string& b, size_t data = 16) {
  return SafetensorsBytes("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":" + a +
                              "},\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":" + b + "}}",
                          std::string(data, 'd'));
}
std::string WithMetadata(const std::string& metadata) {
  return SafetensorsBytes("{\"__metadata__\":" + metadata + "}");
}

std::string Header(const std::string& message) { return "safetensors header: " + message; }
std::string Tensor(const std::string& message) { return "safetensors tensor \"t\": " + message; }

const std::vector<Case>& HeaderCases() {
  static const std::vector<Case> cases = {
      {"empty file", "", kCorrupt,
       Header("byte 0: header length: expected 8 bytes, found 0; the file is truncated or damaged")},
      {"seven bytes", std::string(7, '\0'), kCorrupt,
       Header("byte 0: header length: expected 8 bytes, found 7; the file is truncated or damaged")},
      {"no header", WithLength(0, ""), kCorrupt, Header("byte 8: header: expected \"{\", found nothing")},
      {"length one too high", WithLength(3, "{}"), kCorrupt,
       Header(
           "byte 0: header length: expected at most the 2 bytes left, found 3; the file is truncated or no safetensors "
           "file")},
      {"length of 2^64 - 1", WithLength(UINT64_MAX, "{}"), kCorrupt,
       Header("byte 0: header length: expected at most the 2 bytes left, found 18446744073709551615; the file is "
              "truncated "
              "or no safetensors file")},
      {"length above the limit", WithLength(100'000'001, std::string(100'000'001, ' ')), kUnsupported,
       Header("byte 0: header length: expected at most 100000000, found 100000001")},
      {"GGUF", "GGUF\3\0\0\0"s + std::string(24, '\0'), kUnsupported,
       Header("byte 0: expected a safetensors file, found a GGUF file")},
      {"zip archive", "PK\x03\x04"s + std::string(60, 'z'), kUnsupported,
       Header("byte 0: expected a safetensors file, found a zip archive, such as a PyTorch checkpoint")},
      {"pickle", "\x80\x02}q\0"s + std::string(60, 'z'), kUnsupported,
       Header("byte 0: expected a safetensors file, found a Python pickle")},
      {"old GGML", "tjgg\3\0\0\0"s + std::string(60, 'z'), kUnsupported,
       Header("byte 0: expected a safetensors file, found a GGML file from before GGUF")},
      {"array", SafetensorsBytes("[]"), kCorrupt, Header("byte 8: header: expected \"{\", found \"[\"")},
      {"blank in front", SafetensorsBytes(" {}"), kCorrupt, Header("byte 8: header: expected \"{\", found \" \"")},
      {"byte order mark", SafetensorsBytes("\xEF\xBB\xBF{}"), kCorrupt,
       Header("byte 8: header: expected \"{\", found \"\\xef\"")},
      {"number", SafetensorsBytes("12"), kCorrupt, Header("byte 8: header: expected \"{\", found \"1\"")},
      {"unfinished object", SafetensorsBytes("{"), kCorrupt,
       Header(
           "byte 9: expected JSON, found a syntax error while parsing object key - unexpected end of input; expected "
           "string literal")},
      {"unfinished name", SafetensorsBytes("{\"a"), kCorrupt,
       Header("byte 11: expected JSON, found a syntax error while parsing object key - invalid string: missing closing "
              "quote")},
      {"two objects", SafetensorsBytes("{}{}"), kCorrupt,
       Header(
           "byte 10: expected JSON, found a syntax error while parsing value - unexpected '{'; expected end of input")},
      {"zero bytes as padding", SafetensorsBytes("{}\0\0"s), kCorrupt,
       Header("byte 10: expected JSON, found a zero byte")},
      {"comma at the end", SafetensorsBytes("{\"__metadata__\":{},}"), kCorrupt,
       Header("byte 27: expected JSON, found a syntax error while parsing object key - unexpected '}'; expected string "
              "literal")},
      {"broken UTF-8 in a name", WithName("\xC3("), kCorrupt,
       Header(
           "byte 11: expected JSON, found a syntax error while parsing object key - invalid string: ill-formed UTF-8 "
           "byte")},
      {"data without tensors", SafetensorsBytes("{}", "xyz"), kCorrupt,
       Header("byte 10: data: expected the end of the file, where the last tensor ends, found 3 bytes more")},
      {"bytes behind the last tensor", WithShape("F32", "[2,2]") + "x", kCorrupt,
       Header("byte 81: data: expected the end of the file, where the last tensor ends, found 1 bytes more")},
      {"metadata twice", SafetensorsBytes("{\"__metadata__\":{},\"__metadata__\":{}}"), kCorrupt,
       Header("byte 27: __metadata__: expected it once, found it also at byte 9")},
      {"metadata is a string", WithMetadata("\"pt\""), kCorrupt,
       Header("byte 24: __metadata__: expected an object, found \"pt\"")},
      {"metadata is null", WithMetadata("null"), kCorrupt,
       Header("byte 24: __metadata__: expected an object, found null")},
      {"metadata is an array", WithMetadata("[]"), kCorrupt,
       Header("byte 24: __metadata__: expected an object, found an array")},
      {"number in the metadata", WithMetadata("{\"a\":1}"), kCorrupt,
       Header("byte 29: __metadata__ \"a\": expected a string, found 1")},
      {"object in the metadata", WithMetadata("{\"a\":{}}"), kCorrupt,
       Header("byte 29: __metadata__ \"a\": expected a string, found an object")},
      {"metadata key twice", WithMetadata("{\"a\":\"1\",\"b\":\"2\",\"a\":\"1\"}"), kCorrupt,
       Header("byte 9: __metadata__: expected each key once, found \"a\" twice")},
  };
  return cases;
}

const std::vector<Case>& TensorCases() {
  static const std::vector<Case> cases = {
      {"empty name", WithName(""), kCorrupt, Header("byte 9: name: expected at least one character, found none")},
      {"name of 257 bytes", WithName(std::string(257, 'n')), kUnsupported,
       Header("byte 9: name length: expected at most 256, found 257")},
      {"newline in a name", WithName("a\\nb"), kCorrupt,
       Header("byte 9: name: expected UTF-8 without control characters, found \"a\\x0ab\"")},
      {"NUL in a name", WithName("a\\u0000b"), kCorrupt,
       Header("byte 9: name: expected UTF-8 without control characters, found \"a\\x00b\"")},
      {"escape sequence in a name", WithName("\\u001b[2J"), kCorrupt,
       Header("byte 9: name: expected UTF-8 without control characters, found \"\\x1b[2J\"")},
      {"C1 control in a name", WithName("a\xC2\x9B"), kCorrupt,
       Header("byte 9: name: expected UTF-8 without control characters, found \"a\\xc2\\x9b\"")},
      {"name twice",
       SafetensorsBytes("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"t\":{\"dtype\":"
                        "\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                        "ab"),
       kCorrupt,
       Tensor("byte 61: name: expected a tensor that is not there yet, found the name that also stands at byte 9")},
      {"name twice, once escaped",
       SafetensorsBytes("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"\\u0074\":{\"dtype\":"
                        "\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                        "ab"),
       kCorrupt,
       Tensor("byte 61: name: expected a tensor that is not there yet, found the name that also stands at byte 9")},
      {"entry is an array", WithEntry("[]"), kCorrupt, Tensor("byte 13: entry: expected an object, found an array")},
      {"entry is null", WithEntry("null"), kCorrupt, Tensor("byte 13: entry: expected an object, found null")},
      {"empty entry", WithEntry("{}"), kCorrupt,
       Tensor("byte 14: entry: expected \"dtype\", \"shape\" and \"data_offsets\", found no \"dtype\"")},
      {"no shape", WithEntry(R"({"dtype":"F32","data_offsets":[0,16]})"), kCorrupt,
       Tensor("byte 49: entry: expected \"dtype\", \"shape\" and \"data_offsets\", found no \"shape\"")},
      {"no offsets", WithEntry(R"({"dtype":"F32","shape":[4]})"), kCorrupt,
       Tensor("byte 39: entry: expected \"dtype\", \"shape\" and \"data_offsets\", found no \"data_offsets\"")},
      {"unknown field", WithEntry(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16],"strides":[1]})"), kUnsupported,
       Tensor("byte 62: entry: expected \"dtype\", \"shape\" or \"data_offsets\", found \"strides\"")},
      {"dtype twice", WithEntry(R"({"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]})"), kCorrupt,
       Tensor("byte 28: dtype: expected it once, found it twice")},
      {"shape twice", WithEntry(R"({"dtype":"F32","shape":[4],"shape":[4],"data_offsets":[0,16]})"), kCorrupt,
       Tensor("byte 40: shape: expected it once, found it twice")},
      {"offsets twice", WithEntry(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16],"data_offsets":[0,16]})"),
       kCorrupt, Tensor("byte 62: data_offsets: expected it once, found it twice")},
      {"dtype is a number", WithEntry(R"({"dtype":32,"shape":[4],"data_offsets":[0,16]})"), kCorrupt,
       Tensor("byte 22: dtype: expected a string, found 32")},
      {"unknown dtype", WithShape("F33", "[4]"), kUnsupported,
       Tensor("byte 22: dtype: expected a type of safetensors, such as F32, F16 or BF16, found \"F33\"")},
      {"dtype in lower case", WithShape("f32", "[4]"), kUnsupported,
       Tensor("byte 22: dtype: expected a type of safetensors, such as F32, F16 or BF16, found \"f32\"")},
      {"dtype with a control character", WithShape("F32\\n", "[4]"), kUnsupported,
       Tensor("byte 22: dtype: expected a type of safetensors, such as F32, F16 or BF16, found \"F32\\x0a\"")},
      {"shape is a number", WithShape("F32", "4"), kCorrupt, Tensor("byte 36: shape: expected an array, found 4")},
      {"shape is null", WithShape("F32", "null"), kCorrupt, Tensor("byte 36: shape: expected an array, found null")},
      {"negative dimension", WithShape("F32", "[-4]"), kCorrupt,
       Tensor("byte 37: shape: expected an integer of 0 to 2^64 - 1, found -4")},
      {"fraction as a dimension", WithShape("F32", "[4.0]"), kCorrupt,
       Tensor("byte 37: shape: expected an integer of 0 to 2^64 - 1, found 4.0")},
      {"dimension of 2^64", WithShape("F32", "[18446744073709551616]"), kCorrupt,
       Tensor("byte 37: shape: expected an integer of 0 to 2^64 - 1, found 18446744073709551616")},
      {"string as a dimension", WithShape("F32", "[\"4\"]"), kCorrupt,
       Tensor("byte 37: shape: expected an integer of 0 to 2^64 - 1, found \"4\"")},
      {"array as a dimension", WithShape("F32", "[[4]]"), kCorrupt,
       Tensor("byte 37: shape: expected an integer of 0 to 2^64 - 1, found an array")},
      {"bool as a dimension", WithShape("F32", "[true]"), kCorrupt,
       Tensor("byte 37: shape: expected an integer of 0 to 2^64 - 1, found true")},
      {"65 dimensions",
       [] {
         std::string shape = "[1";
         for (int i = 0; i < 64; ++i) shape += ",1";
         return WithShape("F32", shape + "]");
       }(),
       kUnsupported, Tensor("byte 165: shape: expected at most 64 dimensions, found more")},
      {"product overflows", WithShape("F32", "[4294967296,4294967296]"), kCorrupt,
       Tensor("byte 9: shape: expected an element count below 2^64, found [4294967296, 4294967296]")},
      {"product overflows before a zero", WithShape("F32", "[4294967296,4294967296,0]", "[0,0]"), kCorrupt,
       Tensor("byte 9: shape: expected an element count below 2^64, found [4294967296, 4294967296, 0]")},
      {"product wraps to the right number", WithShape("F32", "[4294967297,4294967296,2]"), kCorrupt,
       Tensor("byte 9: shape: expected an element count below 2^64, found [4294967297, 4294967296, 2]")},
      {"bits overflow", WithShape("F32", "[576460752303423492]"), kCorrupt,
       Tensor("byte 9: shape: expected F32 data of less than 2^64 bits, found [576460752303423492]")},
      {"half a byte", WithShape("F4", "[31]"), kCorrupt,
       Tensor("byte 9: shape: expected F4 data of whole bytes, found [31]")},
      {"three quarters of a byte", WithShape("F6_E2M3", "[3]"), kCorrupt,
       Tensor("byte 9: shape: expected F6_E2M3 data of whole bytes, found [3]")},
      {"offsets are null", WithOffsets("null"), kCorrupt,
       Tensor("byte 57: data_offsets: expected an array, found null")},
      {"one offset", WithOffsets("[0]"), kCorrupt, Tensor("byte 59: data_offsets: expected two integers, found 1")},
      {"no offset", WithOffsets("[]"), kCorrupt, Tensor("byte 58: data_offsets: expected two integers, found 0")},
      {"three offsets", WithOffsets("[0,16,16]"), kCorrupt,
       Tensor("byte 63: data_offsets: expected two integers, found a third value")},
      {"negative offset", WithOffsets("[-16,0]"), kCorrupt,
       Tensor("byte 58: data_offsets: expected an integer of 0 to 2^64 - 1, found -16")},
      {"offset beyond 64 bits", WithOffsets("[0,1e30]"), kCorrupt,
       Tensor("byte 60: data_offsets: expected an integer of 0 to 2^64 - 1, found 1e30")},
      {"begin behind the end", WithOffsets("[16,0]"), kCorrupt,
       Tensor("byte 9: data_offsets: expected a begin that is not behind the end, found [16, 0]")},
      {"size that wraps", WithOffsets("[18446744073709551615,15]"), kCorrupt,
       Tensor("byte 9: data_offsets: expected a begin that is not behind the end, found [18446744073709551615, 15]")},
      {"range too small", WithOffsets("[0,12]"), kCorrupt,
       Tensor("byte 9: data_offsets: expected 16 bytes for F32 [2, 2], found [0, 12]")},
      {"range too large", WithOffsets("[0,17]"), kCorrupt,
       Tensor("byte 9: data_offsets: expected 16 bytes for F32 [2, 2], found [0, 17]")},
      {"range outside the file", WithOffsets("[8,24]"), kCorrupt,
       Tensor("byte 9: data_offsets: expected a range of the 16 bytes of data, found [8, 24]; the file is truncated or "
              "damaged")},
      {"range at the end of the number line", WithOffsets("[18446744073709551599,18446744073709551615]"), kCorrupt,
       Tensor("byte 9: data_offsets: expected a range of the 16 bytes of data, found [18446744073709551599, "
              "18446744073709551615]; the file is truncated or damaged")},
      {"data one byte short", WithOffsets("[0,16]").substr(0, 80), kCorrupt,
       Tensor("byte 9: data_offsets: expected a range of the 15 bytes of data, found [0, 16]; the file is truncated or "
              "damaged")},
      {"two tensors in one place", TwoAt("[0,8]", "[0,8]", 8), kCorrupt,
       "safetensors tensor \"b\": byte 61: data_offsets: expected data from 8 on, where tensor \"a\" ends, found data "
       "from 0 "
       "on"},
      {"tensors that overlap", TwoAt("[0,8]", "[4,12]", 12), kCorrupt,
       "safetensors tensor \"b\": byte 61: data_offsets: expected data from 8 on, where tensor \"a\" ends, found data "
       "from 4 "
       "on"},
      {"hole between tensors", TwoAt("[12,20]", "[0,8]", 20), kCorrupt,
       "safetensors tensor \"a\": byte 9: data_offsets: expected data from 8 on, where tensor \"b\" ends, found data "
       "from 12 "
       "on"},
      {"hole before the first tensor", TwoAt("[1,9]", "[9,17]", 17), kCorrupt,
       "safetensors tensor \"a\": byte 9: data_offsets: expected data from 0 on, where the data begins, found data "
       "from 1 "
       "on"},
  };
  return cases;
}

void ExpectErrors(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    // In memory of exactly its size, so that a sanitizer sees every read behind it.
    const auto copy = std::make_unique<char[]>(c.bytes.size());
    std::copy(c.bytes.begin(), c.bytes.end(), copy.get());
    const auto file = SafetensorsFile::Parse(std::as_bytes(std::span(copy.get(), c.bytes.size())));
    ASSERT_FALSE(file.ok()) << c.name;
    EXPECT_EQ(ErrorCodeName(file.error().code()), ErrorCodeName(c.code)) << c.name;
    EXPECT_EQ(file.error().message(), c.message) << c.name;
    EXPECT_EQ(FindErrorProblem(file.error(), {"safetensors "}), "") << c.name;
  }
}

TEST(SafetensorsMalformed, Headers_AreRefusedWithTheirPlace) { ExpectErrors(HeaderCases()); }
TEST(SafetensorsMalformed, Tensors_AreRefusedWithTheirNameAndPlace) { ExpectErrors(TensorCases()); }

TEST(SafetensorsMalformed, TooManyOfAnything_AreUnsupported) {
  std::string metadata = "{";
  for (uint64_t i = 0; i <= kSafetensorsMaxMetadata; ++i)
    metadata += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"\"";
  const std::string bytes = WithMetadata(metadata + "}");
  const auto file = SafetensorsFile::Parse(std::as_bytes(std::span(bytes)));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), kUnsupported);
  EXPECT_EQ(file.error().message(), Header("byte 98915: __metadata__: expected at most 10000 keys, found more"));
}

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
}  // namespace tidemill::testing
