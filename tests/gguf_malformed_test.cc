// GGUF files that are wrong in one place, each with the code and the message its reader owes the user.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/inspect_gguf.h"

namespace tidemill::testing {
namespace {

using std::string_literals::operator""s;

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
constexpr ErrorCode kCorrupt = ErrorCode::kCorruptFile;
constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;

struct Case {
  const char* name;
  std::function<std::string()> bytes;
  ErrorCode code;
  const char* message;
};

// One key, a matrix and a vector: the file that every case damages.
GgufWriter Small() {
  GgufWriter w;
  w.SetString("general.architecture", "llama");
  w.AddTensor("m", DType::kQ8_0, {32, 2}, std::string(68, 'm')).AddTensor("v", DType::kF32, {4}, std::string(16, 'v'));
  return w;
}

// Small with the bytes at `offset` replaced by `value`.
template <typename T>
std::string Patched(size_t (*offset)(const GgufWriter&), T value) {
  GgufWriter w = Small();
  std::string bytes = w.Build();
  Patch<T>(bytes, offset(w), value);
  return bytes;
}

size_t Magic(const GgufWriter&) { return 0; }
size_t Version(const GgufWriter&) { return 4; }
size_t TensorCount(const GgufWriter&) { return 8; }
size_t KeyCount(const GgufWriter&) { return 16; }
size_t KeyLength(const GgufWriter& w) { return w.KeyOffset("general.architecture"); }
size_t ValueType(const GgufWriter& w) { return w.ValueOffset("general.architecture"); }
size_t StringLength(const GgufWriter& w) { return w.ValueOffset("general.architecture") + 4; }
size_t NameLength(const GgufWriter& w) { return w.TensorOffset("m"); }
size_t Rank(const GgufWriter& w) { return w.DimsOffset("m"); }
size_t Dim0(const GgufWriter& w) { return w.DimsOffset("m") + 4; }
size_t Dim1(const GgufWriter& w) { return w.DimsOffset("m") + 12; }
size_t Type(const GgufWriter& w) { return w.DimsOffset("m") + 20; }
size_t Offset(const GgufWriter& w) { return w.DimsOffset("m") + 24; }
size_t SecondOffset(const GgufWriter& w) { return w.DimsOffset("v") + 16; }

std::string WithKey(const std::string& key) { return GgufWriter().Set<bool>(key, true).Build(); }
std::string WithValue(uint32_t type, const std::string& payload) {
  return GgufWriter().SetRaw("k", type, payload).Build();
}
std::string WithArray(uint32_t element_type, uint64_t count, const std::string& elements) {
  return GgufWriter().SetRawArray("k", element_type, count, elements).Build();
}
std::string WithTensor(const std::string& name, uint32_t type, const std::vector<uint64_t>& dims,
                       size_t data_bytes = 64) {
  return GgufWriter().AddRawTensor(name, type, dims, std::string(data_bytes, 'd')).Build();
}
template <typename T>
std::string WithAlignment(T value) {
  return GgufWriter().Set<T>("general.alignment", value).AddTensor("v", DType::kF32, {4}, std::string(16, 'v')).Build();
}

const Case kHeaderCases[] = {
    {"empty file", [] { return ""s; }, kCorrupt,
     "GGUF header: byte 0: magic: expected 4 bytes, found 0; the file is truncated or damaged"},
    {"three bytes", [] { return "GGU"s; }, kCorrupt,
     "GGUF header: byte 0: magic: expected 4 bytes, found 3; the file is truncated or damaged"},
    {"magic only", [] { return "GGUF"s; }, kCorrupt,
     "GGUF header: byte 4: version: expected 4 bytes, found 0; the file is truncated or damaged"},
    {"cut in the version", [] { return "GGUF\3\0"s; }, kCorrupt,
     "GGUF header: byte 4: version: expected 4 bytes, found 2; the file is truncated or damaged"},
    {"cut in the tensor count", [] { return Small().Build().substr(0, 12); }, kCorrupt,
     "GGUF header: byte 8: tensor count: expected 8 bytes, found 4; the file is truncated or damaged"},
    {"cut in the key count", [] { return Small().Build().substr(0, 23); }, kCorrupt,
     "GGUF header: byte 16: key count: expected 8 bytes, found 7; the file is truncated or damaged"},
    {"other magic", [] { return Patched<uint32_t>(Magic, 0x01020304); }, kCorrupt,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"\\x04\\x03\\x02\\x01\""},
    {"lower-case magic", [] { return "gguf" + Small().Build().substr(4); }, kCorrupt,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"gguf\""},
    {"zip archive", [] { return "PK\x03\x04" + std::string(60, 'z'); }, kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"PK\\x03\\x04\", a zip archive, such as a PyTorch "
     "checkpoint; convert the model to GGUF"},
    {"pickle", [] { return "\x80\x02}q\x00"s + std::string(60, 'z'); }, kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"\\x80\\x02}q\", a Python pickle; convert the "
     "model to GGUF"},
    {"safetensors", [] { return LittleEndian<uint64_t>(50) + "{\"a\":" + std::string(60, ' '); }, kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"2\\x00\\x00\\x00\", a safetensors file; convert "
     "the model to GGUF"},
    {"old GGML", [] { return "tjgg\3\0\0\0"s + std::string(60, 'z'); }, kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"tjgg\", a GGML file from before GGUF; convert the "
     "model to GGUF"},
    {"version 0", [] { return Patched<uint32_t>(Version, 0); }, kUnsupported,
     "GGUF header: byte 4: version: expected 2 or 3, found 0"},
    {"version 1", [] { return Patched<uint32_t>(Version, 1); }, kUnsupported,
     "GGUF header: byte 4: version: expected 2 or 3, found 1, which has 32-bit counts; convert the model again"},
    {"version 4", [] { return Patched<uint32_t>(Version, 4); }, kUnsupported,
     "GGUF header: byte 4: version: expected 2 or 3, found 4"},
    {"big-endian version 3", [] { return Patched<uint32_t>(Version, 0x03000000); }, kUnsupported,
     "GGUF header: byte 4: version: expected 2 or 3, found 3 in big-endian byte order; convert the model to a "
     "little-endian file"},
    {"big-endian version 2", [] { return Patched<uint32_t>(Version, 0x02000000); }, kUnsupported,
     "GGUF header: byte 4: version: expected 2 or 3, found 2 in big-endian byte order; convert the model to a "
     "little-endian file"},
    {"tensor count bomb", [] { return Patched<uint64_t>(TensorCount, kMax); }, kCorrupt,
     "GGUF header: byte 8: tensor count: expected at most 7 in the 248 bytes left, found 18446744073709551615"},
    {"tensor count a little too high", [] { return Patched<uint64_t>(TensorCount, 9); }, kCorrupt,
     "GGUF header: byte 8: tensor count: expected at most 7 in the 248 bytes left, found 9"},
    {"tensor count one too high", [] { return Patched<uint64_t>(TensorCount, 3); }, kCorrupt,
     "GGUF tensor entry 2: byte 143: name: expected at least one character, found none"},
    {"key count bomb", [] { return Patched<uint64_t>(KeyCount, uint64_t{1} << 60); }, kCorrupt,
     "GGUF header: byte 16: key count: expected at most 17 in the 248 bytes left, found 1152921504606846976"},
    {"key count one too high", [] { return Patched<uint64_t>(KeyCount, 2); }, kCorrupt,
     "GGUF tensor entry 0: byte 84: name length: expected at most the 180 bytes left, found 562949953421312"},
    {"key count one too low", [] { return Patched<uint64_t>(KeyCount, 0); }, kCorrupt,
     "GGUF tensor \"general.architecture\": byte 52: dimension count: expected 1 to 4, found 8"},
};

const Case kMetadataCases[] = {
    {"key length beyond the file", [] { return Patched<uint64_t>(KeyLength, kMax); }, kCorrupt,
     "GGUF metadata entry 0: byte 24: key length: expected at most the 240 bytes left, found "
     "18446744073709551615"},
    {"key length just beyond the file", [] { return Patched<uint64_t>(KeyLength, 1000); }, kCorrupt,
     "GGUF metadata entry 0: byte 24: key length: expected at most the 240 bytes left, found 1000"},
    {"empty key", [] { return GgufWriter().SetString("", "llama").Build(); }, kCorrupt,
     "GGUF metadata entry 0: byte 24: key: expected at least one character, found none"},
    {"key of 64 KiB + 1", [] { return WithKey(std::string(65537, 'k')); }, kUnsupported,
     "GGUF metadata entry 0: byte 24: key length: expected at most 65536, found 65537"},
    {"NUL in a key", [] { return WithKey("a\0b"s); }, kCorrupt,
     "GGUF metadata entry 0: byte 33: key: expected UTF-8 without control characters, found \"a\\x00b\""},
    {"newline in a key", [] { return WithKey("a\nb"); }, kCorrupt,
     "GGUF metadata entry 0: byte 33: key: expected UTF-8 without control characters, found \"a\\x0ab\""},
    {"escape sequence in a key", [] { return WithKey("\x1B[2J"); }, kCorrupt,
     "GGUF metadata entry 0: byte 32: key: expected UTF-8 without control characters, found \"\\x1b[2J\""},
    {"C1 control in a key", [] { return WithKey("a\xC2\x9B"); }, kCorrupt,
     "GGUF metadata entry 0: byte 33: key: expected UTF-8 without control characters, found \"a\\xc2\\x9b\""},
    {"broken UTF-8 in a key", [] { return WithKey("caf\xC3"); }, kCorrupt,
     "GGUF metadata entry 0: byte 35: key: expected UTF-8 without control characters, found \"caf\\xc3\""},
    {"overlong UTF-8 in a key", [] { return WithKey("\xC0\xAF"); }, kCorrupt,
     "GGUF metadata entry 0: byte 32: key: expected UTF-8 without control characters, found \"\\xc0\\xaf\""},
    {"surrogate in a key", [] { return WithKey("\xED\xA0\x80"); }, kCorrupt,
     "GGUF metadata entry 0: byte 32: key: expected UTF-8 without control characters, found \"\\xed\\xa0\\x80\""},
    {"key twice", [] { return GgufWriter().Set<bool>("a", true).Set<bool>("b", true).Set<bool>("a", false).Build(); },
     kCorrupt,
     "GGUF metadata key \"a\": byte 60: name: expected a metadata key that is not there yet, found the name "
     "that also stands at byte 32"},
    {"value type 13", [] { return Patched<uint32_t>(ValueType, 13); }, kCorrupt,
     "GGUF metadata key \"general.architecture\": byte 52: value type: expected 0 to 12, found 13"},
    {"value type -1", [] { return Patched<uint32_t>(ValueType, 0xFFFFFFFF); }, kCorrupt,
     "GGUF metadata key \"general.architecture\": byte 52: value type: expected 0 to 12, found 4294967295"},
    {"string longer than the file", [] { return Patched<uint64_t>(StringLength, uint64_t{1} << 63); }, kCorrupt,
     "GGUF metadata key \"general.architecture\": byte 56: string length: expected at most the 208 bytes left, "
     "found 9223372036854775808"},
    {"bool of 2", [] { return WithValue(7, "\2"); }, kCorrupt,
     "GGUF metadata key \"k\": byte 37: bool: expected 0 or 1, found 2"},
    {"u64 cut short", [] { return WithValue(10, "1234567"); }, kCorrupt,
     "GGUF metadata key \"k\": byte 37: value: expected 8 bytes, found 7; the file is truncated or damaged"},
    {"value type cut short", [] { return WithKey("general.some_flag").substr(0, 51); }, kCorrupt,
     "GGUF metadata key \"general.some_flag\": byte 49: value type: expected 4 bytes, found 2; the file is "
     "truncated or damaged"},
    {"bool of 255 in an array", [] { return WithArray(7, 3, "\0\1\xFF"s); }, kCorrupt,
     "GGUF metadata key \"k\": byte 51: bool: expected 0 or 1, found 255"},
    {"array of arrays", [] { return WithArray(9, 1, LittleEndian<uint32_t>(4) + LittleEndian<uint64_t>(0)); },
     kUnsupported,
     "GGUF metadata key \"k\": byte 37: element type: expected a scalar or a string, found array (arrays of "
     "arrays)"},
    {"array of type 13", [] { return WithArray(13, 1, "x"); }, kCorrupt,
     "GGUF metadata key \"k\": byte 37: element type: expected 0 to 12, found 13"},
    {"array count bomb", [] { return WithArray(4, kMax, "1234"); }, kCorrupt,
     "GGUF metadata key \"k\": byte 41: element count: expected at most 1 in the 4 bytes left, found "
     "18446744073709551615"},
    {"array count whose bytes wrap", [] { return WithArray(10, uint64_t{1} << 61, "12345678"); }, kCorrupt,
     "GGUF metadata key \"k\": byte 41: element count: expected at most 1 in the 8 bytes left, found "
     "2305843009213693952"},
    {"array one element short", [] { return WithArray(4, 2, "1234123"); }, kCorrupt,
     "GGUF metadata key \"k\": byte 41: element count: expected at most 1 in the 7 bytes left, found 2"},
    {"string array count bomb", [] { return WithArray(8, uint64_t{1} << 40, LittleEndian<uint64_t>(0)); }, kCorrupt,
     "GGUF metadata key \"k\": byte 41: element count: expected at most 1 in the 8 bytes left, found "
     "1099511627776"},
    {"string in an array beyond the file",
     [] { return WithArray(8, 2, LittleEndian<uint64_t>(1) + "a" + LittleEndian<uint64_t>(5) + "bbbb"); }, kCorrupt,
     "GGUF metadata key \"k\": element 1: byte 58: string length: expected at most the 4 bytes left, found 5"},
    {"alignment 0", [] { return WithAlignment<uint32_t>(0); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, "
     "found 0"},
    {"alignment 4", [] { return WithAlignment<uint32_t>(4); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, "
     "found 4"},
    {"alignment 48", [] { return WithAlignment<uint32_t>(48); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, "
     "found 48"},
    {"alignment 2 MiB", [] { return WithAlignment<uint32_t>(2 << 20); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, "
     "found 2097152"},
    {"alignment 2^31", [] { return WithAlignment<uint32_t>(1U << 31); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, "
     "found 2147483648"},
    {"alignment as u64", [] { return WithAlignment<uint64_t>(32); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, "
     "found u64"},
    {"alignment as i32", [] { return WithAlignment<int32_t>(32); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, "
     "found i32"},
    {"alignment as string", [] { return GgufWriter().SetString("general.alignment", "32").Build(); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, "
     "found string"},
};

const Case kTensorCases[] = {
    {"name length beyond the file", [] { return Patched<uint64_t>(NameLength, kMax - 7); }, kCorrupt,
     "GGUF tensor entry 0: byte 69: name length: expected at most the 195 bytes left, found "
     "18446744073709551608"},
    {"empty tensor name", [] { return WithTensor("", 0, {4}); }, kCorrupt,
     "GGUF tensor entry 0: byte 24: name: expected at least one character, found none"},
    {"tensor name of 257 bytes", [] { return WithTensor(std::string(257, 'n'), 0, {4}); }, kUnsupported,
     "GGUF tensor entry 0: byte 24: name length: expected at most 256, found 257"},
    {"control character in a tensor name", [] { return WithTensor("a\tb", 0, {4}); }, kCorrupt,
     "GGUF tensor entry 0: byte 33: name: expected UTF-8 without control characters, found \"a\\x09b\""},
    {"tensor name twice",
     [] {
       return GgufWriter()
           .AddTensor("v", DType::kF32, {4}, std::string(16, 'v'))
           .AddTensor("v", DType::kF32, {4}, std::string(16, 'w'))
           .Build();
     },
     kCorrupt,
     "GGUF tensor \"v\": byte 65: name: expected a tensor that is not there yet, found the name that also "
     "stands at byte 32"},
    {"no dimensions", [] { return Patched<uint32_t>(Rank, 0); }, kCorrupt,
     "GGUF tensor \"m\": byte 78: dimension count: expected 1 to 4, found 0"},
    {"five dimensions", [] { return Patched<uint32_t>(Rank, 5); }, kCorrupt,
     "GGUF tensor \"m\": byte 78: dimension count: expected 1 to 4, found 5"},
    {"dimension count -1", [] { return Patched<uint32_t>(Rank, 0xFFFFFFFF); }, kCorrupt,
     "GGUF tensor \"m\": byte 78: dimension count: expected 1 to 4, found 4294967295"},
    {"four dimensions, the last real",
     [] {
       return WithTensor("t", 0, {2, 2, 1, 2});
     },
     kUnsupported, "GGUF tensor \"t\": byte 33: dimension count: expected 1 to 3 (or more that are 1), found 4"},
    {"no columns", [] { return Patched<uint64_t>(Dim0, 0); }, kCorrupt,
     "GGUF tensor \"m\": byte 82: dimension 0: expected at least 1, found 0"},
    {"no rows", [] { return Patched<uint64_t>(Dim1, 0); }, kCorrupt,
     "GGUF tensor \"m\": byte 90: dimension 1: expected at least 1, found 0"},
    {"columns beyond 2^62", [] { return Patched<uint64_t>(Dim0, kMax); }, kCorrupt,
     "GGUF tensor \"m\": byte 82: dimension 0: expected an element count of at most 2^62, found "
     "18446744073709551615"},
    {"product wraps to a small number",
     [] {
       return WithTensor("t", 0, {uint64_t{1} << 32, (uint64_t{1} << 32) + 1});
     },
     kCorrupt, "GGUF tensor \"t\": byte 45: dimension 1: expected an element count of at most 2^62, found 4294967297"},
    {"product of four wraps to zero",
     [] {
       return WithTensor("t", 0, {1 << 16, 1 << 16, 1 << 16, 1 << 16});
     },
     kCorrupt, "GGUF tensor \"t\": byte 61: dimension 3: expected an element count of at most 2^62, found 65536"},
    {"bytes overflow where elements do not", [] { return WithTensor("t", 0, {uint64_t{1} << 62}); }, kCorrupt,
     "GGUF tensor \"t\": byte 37: dimensions: expected F32 data within the 128 bytes of the file, found shape "
     "[1, 4611686018427387904]"},
    {"more data than the file", [] { return Patched<uint64_t>(Dim1, 1000); }, kCorrupt,
     "GGUF tensor \"m\": byte 82: dimensions: expected Q8_0 data within the 272 bytes of the file, found shape "
     "[1000, 32]"},
    {"more data than the file in three dimensions",
     [] {
       return WithTensor("t", 0, {4, 2, 1000});
     },
     kCorrupt,
     "GGUF tensor \"t\": byte 37: dimensions: expected F32 data within the 160 bytes of the file, found shape "
     "[1000, 2, 4]"},
    {"row that is no whole number of blocks", [] { return Patched<uint64_t>(Dim0, 33); }, kCorrupt,
     "GGUF tensor \"m\": byte 82: dimension 0: expected a multiple of 32 for Q8_0, found 33"},
    {"row of half a block, whole in all",
     [] {
       return WithTensor("t", 2, {16, 2});
     },
     kCorrupt, "GGUF tensor \"t\": byte 37: dimension 0: expected a multiple of 32 for Q4_0, found 16"},
    {"row of half a block of a K-quant",
     [] {
       return WithTensor("t", 12, {128, 2});
     },
     kCorrupt, "GGUF tensor \"t\": byte 37: dimension 0: expected a multiple of 256 for Q4_K, found 128"},
    {"type Q3_K", [] { return Patched<uint32_t>(Type, 11); }, kUnsupported,
     "GGUF tensor \"m\": byte 98: type: expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K, "
     "found tensor type Q3_K "
     "(11); convert the model to one of the types named"},
    {"type Q4_2, long gone", [] { return Patched<uint32_t>(Type, 4); }, kUnsupported,
     "GGUF tensor \"m\": byte 98: type: expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K, "
     "found tensor type Q4_2 "
     "(4); convert the model to one of the types named"},
    {"type F64", [] { return Patched<uint32_t>(Type, 28); }, kUnsupported,
     "GGUF tensor \"m\": byte 98: type: expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K, "
     "found tensor type F64 "
     "(28); convert the model to one of the types named"},
    {"unknown type", [] { return Patched<uint32_t>(Type, 1000); }, kUnsupported,
     "GGUF tensor \"m\": byte 98: type: expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K, "
     "found unknown tensor type "
     "1000; convert the model to one of the types named"},
    {"type -1", [] { return Patched<uint32_t>(Type, 0xFFFFFFFF); }, kUnsupported,
     "GGUF tensor \"m\": byte 98: type: expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K, "
     "found unknown tensor type "
     "4294967295; convert the model to one of the types named"},
    {"offset off the alignment", [] { return Patched<uint64_t>(SecondOffset, 100); }, kCorrupt,
     "GGUF tensor \"v\": byte 135: offset: expected a multiple of the alignment 32, found 100"},
    {"offset outside the file", [] { return Patched<uint64_t>(SecondOffset, 4096); }, kCorrupt,
     "GGUF tensor \"v\": byte 135: offset: expected 16 bytes of data inside the file of 272 bytes, found data "
     "at 160 + 4096; the file is truncated or damaged"},
    {"offset that wraps", [] { return Patched<uint64_t>(SecondOffset, kMax - 31); }, kCorrupt,
     "GGUF tensor \"v\": byte 135: offset: expected 16 bytes of data inside the file of 272 bytes, found data "
     "at 160 + 18446744073709551584; the file is truncated or damaged"},
    {"two tensors in one place", [] { return Patched<uint64_t>(SecondOffset, 0); }, kCorrupt,
     "GGUF tensor \"v\": byte 135: offset: expected data at or after byte 228, where tensor \"m\" ends, found "
     "data at byte 160"},
    {"second tensor inside the first", [] { return Patched<uint64_t>(SecondOffset, 64); }, kCorrupt,
     "GGUF tensor \"v\": byte 135: offset: expected data at or after byte 228, where tensor \"m\" ends, found "
     "data at byte 224"},
    {"first tensor moved over the end", [] { return Patched<uint64_t>(Offset, 64); }, kCorrupt,
     "GGUF tensor \"m\": byte 102: offset: expected 68 bytes of data inside the file of 272 bytes, found data "
     "at 160 + 64; the file is truncated or damaged"},
    {"data one byte short", [] { return Small().Build().substr(0, Small().Build().size() - 1); }, kCorrupt,
     "GGUF tensor \"v\": byte 135: offset: expected 16 bytes of data inside the file of 271 bytes, found data "
     "at 160 + 96; the file is truncated or damaged"},
    {"no data section",
     [] {
       GgufWriter w = Small();
       const std::string b = w.Build();
       return b.substr(0, w.header_bytes());
     },
     kCorrupt,
     "GGUF tensor \"m\": byte 102: offset: expected 68 bytes of data inside the file of 143 bytes, found data "
     "at 160 + 0; the file is truncated or damaged"},
};

void ExpectMessages(std::span<const Case> cases) {
  for (const Case& c : cases) {
    const std::string bytes = c.bytes();
    const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
    if (file.ok()) {
      ADD_FAILURE() << c.name << ": loaded";
      continue;
    }
    EXPECT_EQ(ErrorCodeName(file.error().code()), ErrorCodeName(c.code)) << c.name;
    EXPECT_EQ(file.error().message(), c.message) << c.name;
    EXPECT_EQ(FindProblem(file.error()), "") << c.name;
  }
}

TEST(GgufMalformed, Header_EachMessageAsWritten) { ExpectMessages(kHeaderCases); }
TEST(GgufMalformed, Metadata_EachMessageAsWritten) { ExpectMessages(kMetadataCases); }
TEST(GgufMalformed, Tensors_EachMessageAsWritten) { ExpectMessages(kTensorCases); }

TEST(GgufMalformed, TheUndamagedFile_Loads) {
  const std::string bytes = Small().Build();
  ASSERT_TRUE(GgufFile::Parse(std::as_bytes(std::span(bytes))).ok());
  EXPECT_EQ(FindGgufProblem(std::as_bytes(std::span(bytes))), "");
}

}  // namespace
}  // namespace tidemill::testing
