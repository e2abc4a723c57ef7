// GGUF: entries of tensors, and where their data stands.
#include "tests/malformed/gguf_recipes.h"
#include "tests/malformed/malformed_tables.h"

namespace tidemill::testing {
namespace {

using std::string_literals::operator""s;

// Small without what is behind the first `kept` bytes of a field.
std::string CutAt(size_t (*offset)(const GgufWriter&), size_t kept) {
  GgufWriter w = Small();
  const std::string bytes = w.Build();
  return bytes.substr(0, offset(w) + kept);
}

const MalformedRow kTensorCases[] = {
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
    {"DEL in a tensor name", [] { return WithTensor("a\x7F", 0, {4}); }, kCorrupt,
     "GGUF tensor entry 0: byte 33: name: expected UTF-8 without control characters, found \"a\\x7f\""},
    {"NUL in a tensor name", [] { return WithTensor("a\0b"s, 0, {4}); }, kCorrupt,
     "GGUF tensor entry 0: byte 33: name: expected UTF-8 without control characters, found \"a\\x00b\""},
    {"bidirectional text cut in a tensor name", [] { return WithTensor("a\xE2\x80", 0, {4}); }, kCorrupt,
     "GGUF tensor entry 0: byte 33: name: expected UTF-8 without control characters, found \"a\\xe2\\x80\""},
    {"entry cut in the dimension count", CutAt(Rank, 2), kCorrupt,
     "GGUF header: byte 8: tensor count: expected at most 1 in the 56 bytes left, found 2"},
    {"entry cut in a dimension", CutAt(Dim1, 4), kCorrupt,
     "GGUF tensor \"m\": byte 90: dimension: expected 8 bytes, found 4; the file is truncated or damaged"},
    {"entry cut in the type", CutAt(Type, 1), kCorrupt,
     "GGUF tensor \"m\": byte 98: tensor type: expected 4 bytes, found 1; the file is truncated or damaged"},
    {"entry cut in the offset", CutAt(Offset, 7), kCorrupt,
     "GGUF tensor \"m\": byte 102: offset: expected 8 bytes, found 7; the file is truncated or damaged"},
    {"entry cut in the name", CutAt(NameLength, 8), kCorrupt,
     "GGUF header: byte 8: tensor count: expected at most 1 in the 53 bytes left, found 2"},
    {"columns of 2^31", [] { return Patched<uint64_t>(Dim0, uint64_t{1} << 31); }, kCorrupt,
     "GGUF tensor \"m\": byte 82: dimensions: expected Q8_0 data within the 272 bytes of the file, found shape [2, "
     "2147483648]"},
    {"columns of 2^63 - 1", [] { return Patched<uint64_t>(Dim0, kMax >> 1); }, kCorrupt,
     "GGUF tensor \"m\": byte 82: dimension 0: expected an element count of at most 2^62, found 9223372036854775807"},
    {"rows of 2^63", [] { return Patched<uint64_t>(Dim1, uint64_t{1} << 63); }, kCorrupt,
     "GGUF tensor \"m\": byte 90: dimension 1: expected an element count of at most 2^62, found 9223372036854775808"},
    {"rows of 2^32", [] { return Patched<uint64_t>(Dim1, uint64_t{1} << 32); }, kCorrupt,
     "GGUF tensor \"m\": byte 82: dimensions: expected Q8_0 data within the 272 bytes of the file, found shape "
     "[4294967296, 32]"},
    {"bytes overflow in Q6_K", [] { return WithTensor("t", 14, {uint64_t{1} << 62}); }, kCorrupt,
     "GGUF tensor \"t\": byte 37: dimensions: expected Q6_K data within the 128 bytes of the file, found shape [1, "
     "4611686018427387904]"},
    {"product of 2^62, bytes that wrap to zero",
     [] {
       return WithTensor("t", 0, {uint64_t{1} << 31, uint64_t{1} << 31});
     },
     kCorrupt,
     "GGUF tensor \"t\": byte 37: dimensions: expected F32 data within the 160 bytes of the file, found shape "
     "[2147483648, 2147483648]"},
    {"offset of 2^63", [] { return Patched<uint64_t>(SecondOffset, uint64_t{1} << 63); }, kCorrupt,
     "GGUF tensor \"v\": byte 135: offset: expected 16 bytes of data inside the file of 272 bytes, found data at 160 + "
     "9223372036854775808; the file is truncated or damaged"},
    {"offset aligned to less than the file says",
     [] { return GgufWriter().SetAlignment(256).AddRawTensor("t", 0, {4}, std::string(16, 'd'), 32).Build(); },
     kCorrupt, "GGUF tensor \"t\": byte 82: offset: expected a multiple of the alignment 256, found 32"},
    {"data in the padding of a large alignment",
     [] {
       const std::string bytes =
           GgufWriter().SetAlignment(1 << 20).AddTensor("t", DType::kF32, {4}, std::string(16, 'd')).Build();
       return bytes.substr(0, 4096);
     },
     kCorrupt,
     "GGUF tensor \"t\": byte 82: offset: expected 16 bytes of data inside the file of 4096 bytes, found data at "
     "1048576 + 0; the file is truncated or damaged"},
    {"a large tensor over many small ones",
     [] {
       GgufWriter w;
       for (int i = 0; i < 100; ++i) w.AddTensor("t" + std::to_string(i), DType::kF32, {8}, std::string(32, 'd'));
       return w.AddRawTensor("whole", 0, {8, 50}, std::string(32, 'd'), 0).Build();
     },
     kCorrupt,
     "GGUF tensor \"whole\": byte 3551: offset: expected data at or after byte 3616, where tensor \"t0\" ends, found "
     "data at byte 3584"},
    {"a hundred names, one of them again",
     [] {
       GgufWriter w;
       for (int i = 0; i < 100; ++i) w.AddTensor("t" + std::to_string(i), DType::kF32, {8}, std::string(32, 'd'));
       return w.AddTensor("t50", DType::kF32, {8}, std::string(32, 'd')).Build();
     },
     kCorrupt,
     "GGUF tensor \"t50\": byte 3522: name: expected a tensor that is not there yet, found the name that also stands "
     "at byte 1772"},
};

}  // namespace

std::vector<MalformedCase> GgufTensorCases() { return CasesOf(kTensorCases, "model.gguf", {}, "model.gguf"); }

}  // namespace tidemill::testing
