// model.safetensors.index.json: which shard of a checkpoint holds which tensor.
//
//   { "metadata": { "total_size": 123, ... }, "weight_map": { NAME: "model-00001-of-00003.safetensors", ... } }
//
// The file is hostile input: a shard is named by a plain file name of the index's own folder, never by a path.
#ifndef TIDEMILL_FORMATS_SAFETENSORS_INDEX_H_
#define TIDEMILL_FORMATS_SAFETENSORS_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr uint64_t kSafetensorsMaxIndexBytes = 100'000'000;
inline constexpr size_t kSafetensorsMaxShards = 10'000;

class SafetensorsIndex {
 public:
  struct Entry {
    std::string name;
    uint32_t shard = 0;  // an index into shards()
  };

  // kCorruptFile and kUnsupported as for SafetensorsFile: "safetensors index: byte 30: ...". Copies what it keeps; memory below 4 x
  // the text.
  static Result<SafetensorsIndex> Parse(std::string_view text);

  std::span<const Entry> tensors() const { return tensors_; }         // at least one; sorted by name
  std::span<const std::string> shards() const { return shards_; }     // file names, each once
  std::optional<uint64_t> total_size() const { return total_size_; }  // as the file says; nothing relies on it
  const Entry* Find(std::string_view name) const;                     // null when there is none

  // `shards`: the files that shards() names, in that order. kCorruptFile unless every tensor of the index is in its shard and in no
  // other one. What a shard has and the index does not name is nobody's: no error.
  Result<void> CheckShards(std::span<const SafetensorsFile> shards) const;

 private:
  friend class SafetensorsIndexParser;
  SafetensorsIndex() = default;

  std::vector<Entry> tensors_;
  std::vector<std::string> shards_;
  std::optional<uint64_t> total_size_;
};

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_SAFETENSORS_INDEX_H_
