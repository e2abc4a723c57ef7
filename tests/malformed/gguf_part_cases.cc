// GGUF: sets of parts that do not fit each other.
#include <optional>

#include "tests/malformed/gguf_recipes.h"
#include "tests/malformed/malformed_tables.h"

namespace tidemill::testing {
namespace {

struct Part {
  std::vector<std::string> tensors;
  std::optional<int64_t> number;  // split.no, from 0
  std::optional<int64_t> count = 2;
  std::optional<int64_t> num_tensors = 2;
};

std::string Bytes(const Part& part) {
  GgufWriter w;
  w.SetString("general.architecture", "llama");
  if (part.number) w.Set<int64_t>("split.no", *part.number);
  if (part.count) w.Set<int64_t>("split.count", *part.count);
  if (part.num_tensors) w.Set<int64_t>("split.tensors.count", *part.num_tensors);
  for (const std::string& tensor : part.tensors) w.AddTensor(tensor, DType::kF32, {1}, "data");
  return w.Build();
}

constexpr const char* kFirst = "m-00001-of-00002.gguf";
constexpr const char* kSecond = "m-00002-of-00002.gguf";

MalformedCase Set(const std::string& name, Recipe first, Recipe second, ErrorCode code, const std::string& message) {
  return {name, {{kFirst, std::move(first)}, {kSecond, std::move(second)}}, kFirst, code, message};
}

}  // namespace

std::vector<MalformedCase> GgufPartCases() {
  const std::string first = Bytes({{"a"}, 0}), second = Bytes({{"b"}, 1});
  return {
      {"second part missing",
       {{kFirst, first}},
       kFirst,
       kNotFound,
       "GGUF part 2 of 2: open {folder}/m-00002-of-00002.gguf: No such file or directory"},
      {"first part missing",
       {{kSecond, second}},
       kSecond,
       kNotFound,
       "GGUF part 1 of 2: open {folder}/m-00001-of-00002.gguf: No such file or directory"},
      {"parts under other names",
       {{"first.gguf", first}, {"second.gguf", second}},
       "first.gguf",
       kCorrupt,
       "GGUF part 1 of 2: file name: expected a name that ends in \"-00001-of-00002.gguf\", found \"first.gguf\""},
      {"part under the name of a larger set",
       {{"m-00001-of-00003.gguf", first}},
       "m-00001-of-00003.gguf",
       kCorrupt,
       "GGUF part 1 of 2: file name: expected a name that ends in \"-00001-of-00002.gguf\", found "
       "\"m-00001-of-00003.gguf\""},
      {"parts that have changed places",
       {{kFirst, second}, {kSecond, first}},
       kFirst,
       kCorrupt,
       "GGUF part 2 of 2: file name: expected a name that ends in \"-00002-of-00002.gguf\", found "
       "\"m-00001-of-00002.gguf\""},
      Set("the first part twice", first, first, kCorrupt, "GGUF part 2 of 2: split.no: expected 1, found 0"),
      Set("second part cut short", first, second.substr(0, second.size() - 1), kCorrupt,
          "GGUF part 2 of 2: GGUF tensor \"b\": byte 192: offset: expected 4 bytes of data inside the file of 227 "
          "bytes, found data at 224 + 0; the file is truncated or damaged"),
      Set("second part empty", first, "", kCorrupt,
          "GGUF part 2 of 2: open {folder}/m-00002-of-00002.gguf: the file is empty"),
      Set("second part is safetensors", first, LittleEndian<uint64_t>(50) + "{\"a\":" + std::string(60, ' '),
          kUnsupported,
          "GGUF part 2 of 2: GGUF header: byte 0: magic: expected \"GGUF\", found \"2\\x00\\x00\\x00\", a safetensors "
          "file; convert the model to GGUF"),
      Set("second part of another set", first, Bytes({{"b"}, 1, 3}), kCorrupt,
          "GGUF part 2 of 2: split.count: expected 2, found 3"),
      Set("second part that is a whole model", first, Bytes({{"b"}, {}, {}, {}}), kCorrupt,
          "GGUF part 2 of 2: split.count: expected 2, found 1"),
      Set("second part without a number", first, Bytes({{"b"}, {}}), kNotFound,
          "GGUF part 2 of 2: GGUF metadata key \"split.no\": expected in the file, found none"),
      Set("a tensor in both parts", first, Bytes({{"a"}, 1}), kCorrupt,
          "GGUF tensor \"a\": expected in one part, found in parts 1 and 2"),
      Set("fewer tensors than the set has", first, Bytes({{}, 1}), kCorrupt,
          "GGUF parts: split.tensors.count: expected 1, as many as there are, found 2"),
      Set("more tensors than the set has", Bytes({{"a"}, 0, 2, 1}), second, kCorrupt,
          "GGUF parts: split.tensors.count: expected 2, as many as there are, found 1"),
      Set("no count of tensors", Bytes({{"a"}, 0, 2, {}}), second, kNotFound,
          "GGUF metadata key \"split.tensors.count\": expected in the file, found none"),
      Set("negative number", Bytes({{"a"}, -1}), second, kCorrupt,
          "GGUF metadata key \"split.no\": byte 89: value: expected an integer from 0 to 1, found -1"),
      Set("number beyond the count", Bytes({{"a"}, 2}), second, kCorrupt,
          "GGUF metadata key \"split.no\": byte 89: value: expected an integer from 0 to 1, found 2"),
      Set("count of 2^32", Bytes({{"a"}, 0, int64_t{1} << 32}), second, kCorrupt,
          "GGUF metadata key \"split.count\": byte 120: value: expected an integer from 0 to 10000, found 4294967296"),
      Set("count of 10001", Bytes({{"a"}, 0, 10'001}), second, kCorrupt,
          "GGUF metadata key \"split.count\": byte 120: value: expected an integer from 0 to 10000, found 10001"),
      Set("count of 10000, of which two are there", Bytes({{"a"}, 0, 10'000}), second, kCorrupt,
          "GGUF part 1 of 10000: file name: expected a name that ends in \"-00001-of-10000.gguf\", found "
          "\"m-00001-of-00002.gguf\""),
  };
}

}  // namespace tidemill::testing
