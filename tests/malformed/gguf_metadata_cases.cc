// GGUF: keys, values and the alignment.
#include "tests/malformed/gguf_recipes.h"
#include "tests/malformed/malformed_tables.h"

namespace tidemill::testing {
namespace {

using std::string_literals::operator""s;

// A string or an array that claims `count` behind one key.
std::string Claims(const std::string& payload_begin, uint32_t type, uint64_t count) {
  return GgufWriter().SetRaw("k", type, payload_begin + LittleEndian(count)).Build();
}

const MalformedRow kMetadataCases[] = {
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
    {"alignment as u8", [] { return WithAlignment<uint8_t>(32); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, found "
     "u8"},
    {"alignment as i8", [] { return WithAlignment<int8_t>(32); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, found "
     "i8"},
    {"alignment as u16", [] { return WithAlignment<uint16_t>(32); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, found "
     "u16"},
    {"alignment as i16", [] { return WithAlignment<int16_t>(32); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, found "
     "i16"},
    {"alignment as i64", [] { return WithAlignment<int64_t>(32); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, found "
     "i64"},
    {"alignment as f32", [] { return WithAlignment<float>(32); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, found "
     "f32"},
    {"alignment as f64", [] { return WithAlignment<double>(32); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, found "
     "f64"},
    {"alignment as bool", [] { return WithAlignment<bool>(true); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, found "
     "bool"},
    {"alignment as array", [] { return GgufWriter().SetArray<uint32_t>("general.alignment", {32}).Build(); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 65: value: expected a u32 power of two from 8 to 1048576, found "
     "array"},
    {"alignment as empty array", [] { return GgufWriter().SetArray<uint32_t>("general.alignment", {}).Build(); },
     kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 65: value: expected a u32 power of two from 8 to 1048576, found "
     "array"},
    {"alignment 2^32 - 1", [] { return WithAlignment<uint32_t>(0xFFFFFFFF); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 53: value: expected a u32 power of two from 8 to 1048576, found "
     "4294967295"},
    {"alignment twice", [] { return GgufWriter().SetAlignment(32).SetAlignment(64).Build(); }, kCorrupt,
     "GGUF metadata key \"general.alignment\": byte 65: name: expected a metadata key that is not there yet, found the "
     "name that also stands at byte 32"},
    {"string of 16 MiB + 1", Recipe(Claims("", 8, kGgufMaxStringBytes + 1)).Stretched(17'000'000), kUnsupported,
     "GGUF metadata key \"k\": byte 37: string length: expected at most 16777216, found 16777217"},
    {"array of 16 Mi + 1",
     Recipe(Claims(LittleEndian<uint32_t>(0), 9, kGgufMaxArrayElements + 1)).Stretched(17'000'000), kUnsupported,
     "GGUF metadata key \"k\": byte 41: element count: expected at most 16777216, found 16777217"},
    {"string length of 2^64 - 1", Claims("", 8, kMax), kCorrupt,
     "GGUF metadata key \"k\": byte 37: string length: expected at most the 0 bytes left, found 18446744073709551615"},
    {"string length cut short", [] { return WithValue(8, "1234567"); }, kCorrupt,
     "GGUF metadata key \"k\": byte 37: string: expected 8 bytes, found 7; the file is truncated or damaged"},
    {"element type cut short", [] { return WithValue(9, "12"); }, kCorrupt,
     "GGUF metadata key \"k\": byte 37: element type: expected 4 bytes, found 2; the file is truncated or damaged"},
    {"element count cut short", [] { return WithValue(9, LittleEndian<uint32_t>(4) + "1234"); }, kCorrupt,
     "GGUF metadata key \"k\": byte 41: element count: expected 8 bytes, found 4; the file is truncated or damaged"},
    {"string length in an array that wraps", [] { return WithArray(8, 1, LittleEndian(kMax) + "a"); }, kCorrupt,
     "GGUF metadata key \"k\": element 0: byte 49: string length: expected at most the 1 bytes left, found "
     "18446744073709551615"},
    {"keys of a thousand entries, the last one again",
     [] {
       GgufWriter w;
       for (int i = 0; i < 1000; ++i) w.Set<bool>("key." + std::to_string(i), true);
       return w.Set<bool>("key.500", false).Build();
     },
     kCorrupt,
     "GGUF metadata key \"key.500\": byte 19922: name: expected a metadata key that is not there yet, found the name "
     "that also stands at byte 9922"},
};

}  // namespace

std::vector<MalformedCase> GgufMetadataCases() { return CasesOf(kMetadataCases, "model.gguf", {}, "model.gguf"); }

}  // namespace tidemill::testing
