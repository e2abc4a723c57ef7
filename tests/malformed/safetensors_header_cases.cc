// safetensors: the header as a whole, and its metadata.
#include "formats/safetensors.h"
#include "tests/malformed/malformed_tables.h"
#include "tests/malformed/safetensors_recipes.h"

namespace tidemill::testing {
namespace {

using std::string_literals::operator""s;

std::vector<MalformedRow> HeaderRows() {
  return {
      {"empty file", "", kCorrupt, "open {path}: the file is empty"},
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
      {"length above the limit", Recipe(WithLength(100'000'001, "{")).Stretched(100'000'009), kUnsupported,
       Header("byte 0: header length: expected at most 100000000, found 100000001")},
      {"zip archive", "PK\x03\x04"s + std::string(60, 'z'), kUnsupported,
       Header("byte 0: expected a safetensors file, found a zip archive, such as a PyTorch checkpoint; convert "
              "the model to safetensors")},
      {"pickle", "\x80\x02}q\0"s + std::string(60, 'z'), kUnsupported,
       Header("byte 0: expected a safetensors file, found a Python pickle; convert the model to safetensors")},
      {"old GGML", "tjgg\3\0\0\0"s + std::string(60, 'z'), kUnsupported,
       Header("byte 0: expected a safetensors file, found a GGML file from before GGUF; convert the model to "
              "safetensors")},
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
      {"more metadata than a file may have",
       [] {
         std::string metadata = "{";
         for (uint64_t i = 0; i <= kSafetensorsMaxMetadata; ++i)
           metadata += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"\"";
         return WithMetadata(metadata + "}");
       },
       kUnsupported, "safetensors header: byte 98915: __metadata__: expected at most 10000 keys, found more"},
      {"length of 2^63", WithLength(uint64_t{1} << 63, "{}"), kCorrupt,
       "safetensors header: byte 0: header length: expected at most the 2 bytes left, found 9223372036854775808; the "
       "file is truncated or no safetensors file"},
      {"length that ends inside an entry",
       [] {
         std::string bytes = SafetensorsWriter().Add("t", "U8", {1}, "x").Build();
         bytes[0] = 20;
         return bytes;
       },
       kCorrupt,
       "safetensors header: byte 28: expected JSON, found a syntax error while parsing object key - invalid string: "
       "missing closing quote"},
      {"web page", "<!DOCTYPE html><html><body>404 Not Found</body></html>", kCorrupt,
       Header(
           "byte 0: expected a safetensors file, found a web page, as a failed download leaves it; download the file "
           "again")},
      {"pointer of Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n", kCorrupt,
       Header("byte 0: expected a safetensors file, found a pointer of Git LFS in place of the file; fetch it with git "
              "lfs pull")},
      {"ONNX file", "\x08\x07\x12\x07pytorch\x1a\x05" + std::string(60, 'z'), kUnsupported,
       Header("byte 0: expected a safetensors file, found an ONNX file; convert the model to safetensors")},
      {"gzip archive", "\x1F\x8B\x08"s + std::string(60, 'z'), kUnsupported,
       Header("byte 0: expected a safetensors file, found an archive; unpack it")},
      {"Keras checkpoint", "\x89HDF\r\n\x1a\n"s + std::string(60, 'z'), kUnsupported,
       Header(
           "byte 0: expected a safetensors file, found an HDF5 file, such as a Keras checkpoint; convert the model to "
           "safetensors")},
      {"adapter's weights", SafetensorsWriter().Add("base_model.model.a.lora_A.weight", "U8", {1}, "x").Build(),
       kUnsupported,
       "tensor \"base_model.model.a.lora_A.weight\": expected a model, found a LoRA adapter; merge it into its base "
       "model and give the result"},
      {"arrays nested a thousand deep", WithMetadata(std::string(1000, '[') + std::string(1000, ']')), kCorrupt,
       "safetensors header: byte 24: __metadata__: expected an object, found an array"},
      {"comment", SafetensorsBytes("{/* none */}"), kCorrupt,
       "safetensors header: byte 9: expected JSON, found a syntax error while parsing object key - invalid literal"},
      {"names in single quotes", SafetensorsBytes("{'a':1}"), kCorrupt,
       "safetensors header: byte 9: expected JSON, found a syntax error while parsing object key - invalid literal"},
      {"half a surrogate in a name", WithName("\\ud800"), kCorrupt,
       "safetensors header: byte 16: expected JSON, found a syntax error while parsing object key - invalid string: "
       "surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF"},
      {"NaN in the metadata", WithMetadata("{\"a\":NaN}"), kCorrupt,
       "safetensors header: byte 29: expected JSON, found NaN, which only Python writes; replace it by a number"},
      {"number beyond a double in the metadata", WithMetadata("{\"a\":1e999}"), kCorrupt,
       "safetensors header: byte 29: expected a number within the range of a double, found a larger one"},
  };
}

}  // namespace

std::vector<MalformedCase> SafetensorsHeaderCases() {
  return CasesOf(HeaderRows(), "model.safetensors", {}, "model.safetensors");
}

}  // namespace tidemill::testing
