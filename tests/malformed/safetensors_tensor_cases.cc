// safetensors: entries of tensors, and where their data stands.
#include "tests/malformed/malformed_tables.h"
#include "tests/malformed/safetensors_recipes.h"

namespace tidemill::testing {
namespace {

using std::string_literals::operator""s;

std::vector<MalformedRow> TensorRows() {
  return {
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
}

}  // namespace

std::vector<MalformedCase> SafetensorsTensorCases() {
  return CasesOf(TensorRows(), "model.safetensors", {}, "model.safetensors");
}

}  // namespace tidemill::testing
