// Building a JsonDocument. Its getters are in json_value.cc.
#include "formats/json_document.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "formats/json_storage.h"
#include "formats/printable_name.h"

namespace tidemill {

class JsonDocumentBuilder {
 public:
  static Result<JsonDocument> Build(std::string name, std::string_view text, const JsonDocumentLimits& limits) {
    auto storage = std::make_unique<JsonValue::Storage>();
    storage->name = std::move(name);
    storage->source = text;
    JsonDocumentBuilder builder(*storage);
    const JsonLimits reading{.max_depth = limits.max_depth, .max_values = limits.max_values};
    const auto take = [&](const JsonEvent& event) { return builder.Take(event); };
    // Each value but the first follows a comma or the beginning of what it is in: room at once, instead of three times as much.
    const auto before_value = [](char c) { return c == ',' || c == '[' || c == '{'; };
    const auto most = static_cast<size_t>(std::count_if(text.begin(), text.end(), before_value)) + 1;
    storage->nodes.reserve(std::min(most, limits.max_values));
    storage->children.reserve(std::min(most, limits.max_values));
    TIDEMILL_TRY_VOID(ReadJson(storage->source, reading, take));
    return JsonDocument(std::move(storage));
  }

 private:
  using Storage = JsonValue::Storage;

  explicit JsonDocumentBuilder(Storage& storage) : storage_(storage) {}

  Result<void> Take(const JsonEvent& event) {
    switch (event.kind) {
      case JsonKind::kKey:
        key_ = Keep(event);
        key_at_ = static_cast<uint32_t>(event.at);
        return {};
      case JsonKind::kEndObject:
      case JsonKind::kEndArray: return Close();
      default: break;
    }
    if (storage_.nodes.empty() && event.kind != JsonKind::kBeginObject) {
      return Error(ErrorCode::kCorruptFile,
                   "byte " + std::to_string(event.at) + ": expected an object, found " + DescribeJson(event));
    }
    const auto index = static_cast<uint32_t>(storage_.nodes.size());
    Storage::Node node;
    node.kind = event.kind;
    node.parent = open_.empty() ? 0 : open_.back();
    node.end = index + 1;
    node.source_begin = static_cast<uint32_t>(event.at);
    node.source_size = static_cast<uint32_t>(event.source.size());
    node.key = std::exchange(key_, {});
    node.key_at = key_at_;
    node.flag = event.boolean || event.negative;
    if (event.kind == JsonKind::kInteger) node.bits = event.integer;
    if (event.kind == JsonKind::kFloat) node.bits = std::bit_cast<uint64_t>(event.number);
    if (event.kind == JsonKind::kString) node.text = Keep(event);
    storage_.nodes.push_back(node);
    if (event.kind == JsonKind::kBeginObject || event.kind == JsonKind::kBeginArray) open_.push_back(index);
    return {};
  }

  Storage::Text Keep(const JsonEvent& event) {
    const auto size = static_cast<uint32_t>(event.text.size());
    if (event.source.size() == event.text.size() + 2) return {static_cast<uint32_t>(event.at + 1), size, false};
    const auto begin = static_cast<uint32_t>(storage_.unescaped.size());
    storage_.unescaped += event.text;
    return {begin, size, true};
  }

  Result<void> Close() {
    const uint32_t container = open_.back();
    open_.pop_back();
    Storage::Node& node = storage_.nodes[container];
    node.end = static_cast<uint32_t>(storage_.nodes.size());
    node.children_begin = static_cast<uint32_t>(storage_.children.size());
    for (uint32_t child = container + 1; child < node.end; child = storage_.nodes[child].end) {
      storage_.children.push_back(child);
      ++node.num_children;
    }
    return node.kind == JsonKind::kBeginObject ? SortKeys(container) : Result<void>();
  }

  Result<void> SortKeys(uint32_t object) {
    const auto begin = storage_.children.begin() + storage_.nodes[object].children_begin;
    const auto end = storage_.children.end();
    const auto key = [&](uint32_t child) { return storage_.KeyOf(child); };
    std::sort(begin, end, [&](uint32_t a, uint32_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
    const auto twin = std::adjacent_find(begin, end, [&](uint32_t a, uint32_t b) { return key(a) == key(b); });
    if (twin == end) return {};
    return Error(ErrorCode::kCorruptFile, "byte " + std::to_string(storage_.nodes[twin[1]].key_at) +
                                              ": expected each key of an object once, found " + QuoteName(key(*twin)) +
                                              ", which also stands at byte " +
                                              std::to_string(storage_.nodes[twin[0]].key_at));
  }

  Storage& storage_;
  std::vector<uint32_t> open_;
  Storage::Text key_;  // of the value to come
  uint32_t key_at_ = 0;
};

Result<JsonDocument> JsonDocument::Parse(std::string name, std::string_view text, const JsonDocumentLimits& limits) {
  const std::string context = name;
  if (text.size() > std::min<size_t>(limits.max_bytes, UINT32_MAX)) {
    return Error(ErrorCode::kUnsupported, context + ": expected at most " + std::to_string(limits.max_bytes) +
                                              " bytes, found " + std::to_string(text.size()));
  }
  try {
    return JsonDocumentBuilder::Build(std::move(name), text, limits).WithContext(context);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, context + ": no memory for its values");
  }
}

JsonDocument::JsonDocument(std::unique_ptr<Storage> storage)
    : JsonValue(storage.get(), 0), owned_(std::move(storage)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

const std::string& JsonDocument::name() const { return owned_->name; }

}  // namespace tidemill
