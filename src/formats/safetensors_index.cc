#include "formats/safetensors_index.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <new>

#include "base/json_reader.h"
#include "base/printable_name.h"

namespace tidemill {
namespace {

constexpr std::string_view kIndex = "safetensors index";
constexpr size_t kMaxFileNameBytes = 255;

bool IsPlainShardName(std::string_view name) {
  return name.size() <= kMaxFileNameBytes && name.find_first_of("/\\") == std::string_view::npos &&
         !name.starts_with('.') && name.ends_with(".safetensors") && FindUnprintableByte(name) == name.size();
}

}  // namespace

class SafetensorsIndexParser {
 public:
  Result<SafetensorsIndex> Parse(std::string_view text) {
    if (text.size() > kSafetensorsMaxIndexBytes) {
      return Error(ErrorCode::kUnsupported, std::string(kIndex) + ": expected at most " +
                                                std::to_string(kSafetensorsMaxIndexBytes) + " bytes, found " +
                                                std::to_string(text.size()));
    }
    const JsonLimits limits{.max_values = kSafetensorsMaxIndexBytes};  // fewer values than bytes: no limit of its own
    const auto take = [this](const JsonEvent& event) { return Take(event); };
    if (auto read = ReadJson(text, limits, take); !read.ok()) return std::move(read).error().WithContext(kIndex);
    if (!has_map_) {
      return Error(ErrorCode::kCorruptFile,
                   std::string(kIndex) + ": weight_map: expected an object, found no such key");
    }
    if (places_.empty()) {
      return Error(ErrorCode::kCorruptFile,
                   std::string(kIndex) + ": weight_map: expected at least one tensor, found none");
    }
    return Finish();
  }

 private:
  struct Place {
    SafetensorsIndex::Entry entry;
    size_t at = 0;  // of the name
  };

  Result<void> Take(const JsonEvent& event) {
    const bool ends = event.kind == JsonKind::kEndObject || event.kind == JsonKind::kEndArray;
    const bool begins = event.kind == JsonKind::kBeginObject || event.kind == JsonKind::kBeginArray;
    if (ends) --depth_;
    const size_t depth = depth_;
    if (begins) ++depth_;
    if (ends) return {};
    if (depth == 0) {
      if (event.kind == JsonKind::kBeginObject) return {};
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "index", "an object", DescribeJson(event));
    }
    if (depth == 1) return event.kind == JsonKind::kKey ? TakeSection(event) : OpenSection(event);
    if (depth == 2 && section_ == "weight_map") return TakeTensor(event);
    if (depth == 2 && section_ == "metadata") return TakeMetadata(event);
    return {};  // what transformers may add
  }

  Result<void> TakeSection(const JsonEvent& event) {
    section_ = event.text;
    bool* met = section_ == "weight_map" ? &has_map_ : section_ == "metadata" ? &has_metadata_ : nullptr;
    if (met == nullptr) return {};
    if (*met) return ErrorAtByte(ErrorCode::kCorruptFile, event.at, section_, "it once", "it twice");
    *met = true;
    return {};
  }

  Result<void> OpenSection(const JsonEvent& event) {
    const bool ours = section_ == "weight_map" || section_ == "metadata";
    if (!ours || event.kind == JsonKind::kBeginObject) return {};
    return ErrorAtByte(ErrorCode::kCorruptFile, event.at, section_, "an object", DescribeJson(event));
  }

  Result<void> TakeMetadata(const JsonEvent& event) {
    if (event.kind == JsonKind::kKey) {
      is_total_ = event.text == "total_size";
      if (!is_total_ || !index_.total_size_) return {};
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "total_size", "it once", "it twice");
    }
    if (!is_total_) return {};
    // Some tools have written it as a float.
    const bool whole = event.kind == JsonKind::kFloat && event.number >= 0 && event.number < 0x1p63 &&
                       event.number == std::floor(event.number);
    if (whole || (event.kind == JsonKind::kInteger && !event.negative)) {
      index_.total_size_ = whole ? static_cast<uint64_t>(event.number) : event.integer;
      return {};
    }
    return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "total_size", "a number of bytes", DescribeJson(event));
  }

  Result<void> TakeTensor(const JsonEvent& event) {
    if (event.kind == JsonKind::kKey) return TakeName(event);
    const auto field = [&] { return "weight_map " + QuoteName(places_.back().entry.name); };
    if (event.kind != JsonKind::kString) {
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, field(), "a string", DescribeJson(event));
    }
    if (!IsPlainShardName(event.text)) {
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, field(),
                         "the plain name of a .safetensors file in the index's own folder", QuoteName(event.text));
    }
    auto found = shard_indices_.find(event.text);
    if (found == shard_indices_.end()) {
      if (index_.shards_.size() == kSafetensorsMaxShards) {
        return ErrorAtByte(ErrorCode::kUnsupported, event.at, field(),
                           "at most " + std::to_string(kSafetensorsMaxShards) + " shards", "more");
      }
      found = shard_indices_.emplace(event.text, static_cast<uint32_t>(index_.shards_.size())).first;
      index_.shards_.emplace_back(event.text);
    }
    places_.back().entry.shard = found->second;
    return {};
  }

  Result<void> TakeName(const JsonEvent& event) {
    if (event.text.empty())
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "weight_map", "a tensor's name", "an empty one");
    if (event.text.size() > kSafetensorsMaxNameBytes) {
      return ErrorAtByte(ErrorCode::kUnsupported, event.at, "weight_map",
                         "names of at most " + std::to_string(kSafetensorsMaxNameBytes) + " bytes",
                         std::to_string(event.text.size()));
    }
    if (FindUnprintableByte(event.text) != event.text.size()) {
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "weight_map", "names in UTF-8 without control characters",
                         QuoteName(event.text));
    }
    if (places_.size() == kSafetensorsMaxTensors) {
      return ErrorAtByte(ErrorCode::kUnsupported, event.at, "weight_map",
                         "at most " + std::to_string(kSafetensorsMaxTensors) + " tensors", "more");
    }
    places_.push_back({.entry = {.name = std::string(event.text), .shard = 0}, .at = event.at});
    return {};
  }

  Result<SafetensorsIndex> Finish() {
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return a.entry.name != b.entry.name ? a.entry.name < b.entry.name : a.at < b.at;
    });
    const auto twin = std::adjacent_find(places_.begin(), places_.end(),
                                         [](const Place& a, const Place& b) { return a.entry.name == b.entry.name; });
    if (twin != places_.end()) {
      return ErrorAtByte(ErrorCode::kCorruptFile, twin[1].at, "weight_map", "each tensor once",
                         QuoteName(twin->entry.name) + ", which also stands at byte " + std::to_string(twin->at))
          .WithContext(kIndex);
    }
    index_.tensors_.reserve(places_.size());
    for (Place& place : places_) index_.tensors_.push_back(std::move(place.entry));
    return std::move(index_);
  }

  SafetensorsIndex index_;
  std::vector<Place> places_;
  std::map<std::string, uint32_t, std::less<>> shard_indices_;
  size_t depth_ = 0;
  std::string section_;  // the key of the outer object whose value is being read
  bool has_map_ = false, has_metadata_ = false, is_total_ = false;
};

Result<SafetensorsIndex> SafetensorsIndex::Parse(std::string_view text) {
  try {
    return SafetensorsIndexParser().Parse(text);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, std::string(kIndex) + ": no memory for its entries");
  }
}

const SafetensorsIndex::Entry* SafetensorsIndex::Find(std::string_view name) const {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

Result<void> SafetensorsIndex::CheckShards(std::span<const SafetensorsFile> shards) const {
  const auto fail = [&](std::string_view name, uint32_t expected, const std::string& only, const std::string& found) {
    return Error(ErrorCode::kCorruptFile, std::string(kIndex) + ": tensor " + QuoteName(name) + ": expected in " +
                                              QuoteName(shards_[expected]) + only + ", found " + found);
  };
  for (const Entry& entry : tensors_) {
    if (shards[entry.shard].FindTensor(entry.name) != nullptr) continue;
    const auto other = std::find_if(shards.begin(), shards.end(), [&](const SafetensorsFile& shard) {
      return shard.FindTensor(entry.name) != nullptr;
    });
    return fail(entry.name, entry.shard, "",
                other == shards.end() ? "in no shard"
                                      : "in " + QuoteName(shards_[static_cast<size_t>(other - shards.begin())]));
  }
  for (uint32_t shard = 0; shard < shards.size(); ++shard) {
    for (const FileTensor& tensor : shards[shard].tensors()) {
      const Entry* entry = Find(tensor.name);
      if (entry != nullptr && entry->shard != shard) {
        return fail(tensor.name, entry->shard, " only", "in " + QuoteName(shards_[shard]) + " too");
      }
    }
  }
  return {};
}

}  // namespace tidemill
