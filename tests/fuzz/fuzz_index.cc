// What names the files of a model in several: the index of safetensors shards, and the names of GGUF parts. Over arbitrary bytes: a
// clean error, or names that stay in their folder.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_split.h"
#include "formats/safetensors_index.h"
#include "tests/support/inspect_safetensors.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill {
namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

void RequireCleanError(const Error& error) {
  const std::string problem = testing::FindErrorProblem(error, {"safetensors index: ", "GGUF part "});
  Require(problem.empty(), problem.c_str());
}

// Files that an index may name, whatever it calls them.
const std::vector<SafetensorsFile>& Shards() {
  static const std::string bytes[] = {
      testing::SafetensorsWriter().Add("a", "U8", {1}, "x").Add("b", "U8", {1}, "x").Build(),
      testing::SafetensorsWriter().Add("c", "U8", {1}, "x").Build(),
      testing::SafetensorsWriter().Add("a", "U8", {1}, "x").Add("d", "U8", {1}, "x").Build()};
  static const std::vector<SafetensorsFile> shards = [] {
    std::vector<SafetensorsFile> files;
    for (const std::string& file : bytes)
      files.push_back(SafetensorsFile::Parse(std::as_bytes(std::span(file))).value());
    return files;
  }();
  return shards;
}

void FuzzIndex(std::string_view text) {
  const auto index = SafetensorsIndex::Parse(text);
  if (!index.ok()) return RequireCleanError(index.error());
  Require(!index->tensors().empty(), "an index has tensors");
  for (const std::string& shard : index->shards()) {
    Require(shard.find('/') == std::string::npos && shard.find('\0') == std::string::npos && !shard.starts_with('.'),
            "a shard is a plain name");
  }
  for (const SafetensorsIndex::Entry& entry : index->tensors()) {
    Require(index->Find(entry.name) == &entry, "each tensor is found");
    Require(entry.shard < index->shards().size(), "each tensor has a shard");
  }
  if (index->shards().size() > Shards().size()) return;
  const auto checked = index->CheckShards(std::span(Shards()).first(index->shards().size()));
  if (!checked.ok()) RequireCleanError(checked.error());
}

void FuzzPartName(std::string_view name) {
  const auto part = ParsePartName(name, ".gguf");
  if (!part) return;
  Require(part->number >= 1 && part->number <= part->count && part->count <= kGgufMaxParts, "a part's number is one");
  const auto names = GgufPartNames(name, *part);
  Require(names.ok() && names->size() == part->count, "a part names all parts");
  Require((*names)[part->number - 1] == name, "a part's name stands in its place");
  const auto others = GgufPartNames(name, {.number = 1, .count = part->count + 1});
  Require(!others.ok(), "a part's name does not fit another count");
  RequireCleanError(others.error());
}

}  // namespace
}  // namespace tidemill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tidemill::FuzzIndex(text);
  tidemill::FuzzPartName(text.substr(0, 300));
  return 0;
}
