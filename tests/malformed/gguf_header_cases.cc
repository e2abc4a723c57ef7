// GGUF: magic, version and counts, and files of another format.
#include "tests/malformed/gguf_recipes.h"
#include "tests/malformed/malformed_tables.h"

namespace tidemill::testing {
namespace {

using std::string_literals::operator""s;

std::string Counts(uint64_t tensors, uint64_t keys) {
  return "GGUF" + LittleEndian<uint32_t>(3) + LittleEndian(tensors) + LittleEndian(keys);
}

const MalformedRow kHeaderCases[] = {
    {"empty file", "", kCorrupt, "open {path}: the file is empty"},
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
    {"one tensor more than a file may have", Recipe(Counts(kGgufMaxTensors + 1, 0)).Stretched(40'000'000), kUnsupported,
     "GGUF header: byte 8: tensor count: expected at most 1000000, found 1000001"},
    {"one key more than a file may have", Recipe(Counts(0, kGgufMaxKeys + 1)).Stretched(2'000'000), kUnsupported,
     "GGUF header: byte 16: key count: expected at most 100000, found 100001"},
    {"both counts of 2^64 - 1", Counts(kMax, kMax), kCorrupt,
     "GGUF header: byte 8: tensor count: expected at most 0 in the 0 bytes left, found 18446744073709551615"},
    {"tensor count of 2^63", Counts(uint64_t{1} << 63, 0), kCorrupt,
     "GGUF header: byte 8: tensor count: expected at most 0 in the 0 bytes left, found 9223372036854775808"},
    {"tensors in a file that ends", Counts(1, 0), kCorrupt,
     "GGUF header: byte 8: tensor count: expected at most 0 in the 0 bytes left, found 1"},
    {"keys in a file that ends", Counts(0, 1), kCorrupt,
     "GGUF header: byte 16: key count: expected at most 0 in the 0 bytes left, found 1"},
    {"zero bytes", std::string(4096, '\0'), kCorrupt,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"\\x00\\x00\\x00\\x00\""},
    {"web page", "\n <!doctype HTML><html><body>404 Not Found</body></html>", kCorrupt,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"\\x0a <!\", a web page, as a failed download leaves it; "
     "download the file again"},
    {"pointer of Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n", kCorrupt,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"vers\", a pointer of Git LFS in place of the file; fetch "
     "it "
     "with git lfs pull"},
    {"JSON", "{\"model_type\": \"llama\"}", kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"{\"mo\", a JSON file; name the folder of the model"},
    {"ONNX file", "\x08\x07\x12\x07pytorch\x1a\x05" + std::string(60, 'z'), kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"\\x08\\x07\\x12\\x07\", an ONNX file; convert the model "
     "to "
     "GGUF"},
    {"gzip archive", "\x1F\x8B\x08"s + std::string(60, 'z'), kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"\\x1f\\x8b\\x08z\", an archive; unpack it"},
    {"tar archive", "model/" + std::string(251, '\0') + "ustar" + std::string(60, 'z'), kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"mode\", an archive; unpack it"},
    {"7z archive", "7z\xBC\xAF\x27\x1C"s + std::string(60, 'z'), kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"7z\\xbc\\xaf\", an archive; unpack it"},
    {"pickle of protocol 5", "\x80\x05\x95"s + std::string(60, 'z'), kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"\\x80\\x05\\x95z\", a Python pickle; convert the model to "
     "GGUF"},
    {"pickle of protocol 4", "\x80\x04\x95"s + std::string(60, 'z'), kUnsupported,
     "GGUF header: byte 0: magic: expected \"GGUF\", found \"\\x80\\x04\\x95z\", a Python pickle; convert the model to "
     "GGUF"},
};

}  // namespace

std::vector<MalformedCase> GgufHeaderCases() { return CasesOf(kHeaderCases, "model.gguf", {}, "model.gguf"); }

}  // namespace tidemill::testing
