// Building a JsonDocument. Its getters are in json_value.cc.
#include "base/json_document.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/json_storage.h"
#include "base/printable_name.h"

namespace tidemill {

JsonDocumentBuilder::JsonDocumentBuilder(std::string name, bool any_root)
    : storage_(std::make_unique<JsonValue::Storage>()), any_root_(any_root) {
  storage_->name = std::move(name);
}
JsonDocumentBuilder::~JsonDocumentBuilder() = default;

void JsonDocumentBuilder::Reserve(size_t values, size_t text_bytes) {
  storage_->nodes.reserve(values);
  storage_->children.reserve(values);
  storage_->texts.reserve(text_bytes);
}

Result<void> JsonDocumentBuilder::Take(const JsonEvent& event) {
  JsonValue::Storage& storage = *storage_;
  const auto keep = [&](std::string_view text) {
    const JsonValue::Storage::Text kept{static_cast<uint32_t>(storage.texts.size()),
                                        static_cast<uint32_t>(text.size())};
    storage.texts += text;
    return kept;
  };
  switch (event.kind) {
    case JsonKind::kKey: {
      const JsonValue::Storage::Text key = keep(event.text);
      key_begin_ = key.begin;
      key_size_ = key.size;
      key_at_ = static_cast<uint32_t>(event.at);
      return {};
    }
    case JsonKind::kEndObject:
    case JsonKind::kEndArray: return Close();
    default: break;
  }
  if (storage.nodes.empty() && event.kind != JsonKind::kBeginObject && !any_root_) {
    return Error(ErrorCode::kCorruptFile,
                 "byte " + std::to_string(event.at) + ": expected an object, found " + DescribeJson(event));
  }
  const auto index = static_cast<uint32_t>(storage.nodes.size());
  JsonValue::Storage::Node node;
  node.kind = event.kind;
  node.parent = open_.empty() ? 0 : open_.back();
  node.end = index + 1;
  node.key = {std::exchange(key_begin_, 0), std::exchange(key_size_, 0)};
  node.key_at = key_at_;
  node.flag = event.boolean || event.negative;
  if (event.kind == JsonKind::kInteger) node.bits = event.integer;
  if (event.kind == JsonKind::kFloat) node.bits = std::bit_cast<uint64_t>(event.number);
  if (event.kind == JsonKind::kFloat) node.text = keep(event.source);
  if (event.kind == JsonKind::kString) node.text = keep(event.text);
  storage.nodes.push_back(node);
  if (event.kind == JsonKind::kBeginObject || event.kind == JsonKind::kBeginArray) open_.push_back(index);
  return {};
}

Result<void> JsonDocumentBuilder::Close() {
  JsonValue::Storage& storage = *storage_;
  const uint32_t container = open_.back();
  open_.pop_back();
  JsonValue::Storage::Node& node = storage.nodes[container];
  node.end = static_cast<uint32_t>(storage.nodes.size());
  node.text.begin = static_cast<uint32_t>(storage.children.size());
  for (uint32_t child = container + 1; child < node.end; child = storage.nodes[child].end) {
    storage.children.push_back(child);
    ++node.text.size;
  }
  if (node.kind == JsonKind::kBeginArray) return {};
  const auto begin = storage.children.begin() + node.text.begin;
  const auto end = storage.children.end();
  const auto key = [&](uint32_t child) { return storage.KeyOf(child); };
  std::sort(begin, end, [&](uint32_t a, uint32_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
  const auto twin = std::adjacent_find(begin, end, [&](uint32_t a, uint32_t b) { return key(a) == key(b); });
  if (twin == end) return {};
  return Error(ErrorCode::kCorruptFile, "byte " + std::to_string(storage.nodes[twin[1]].key_at) +
                                            ": expected each key of an object once, found " + QuoteName(key(*twin)) +
                                            ", which also stands at byte " +
                                            std::to_string(storage.nodes[twin[0]].key_at));
}

JsonDocument JsonDocumentBuilder::Finish() && {
  TIDEMILL_CHECK(open_.empty() && !storage_->nodes.empty());
  return JsonDocument(std::move(storage_));
}

Result<JsonDocument> JsonDocument::Parse(std::string name, std::string_view text, const JsonDocumentLimits& limits) {
  const std::string context = name;
  if (text.size() > std::min<size_t>(limits.max_bytes, UINT32_MAX)) {
    return Error(ErrorCode::kUnsupported, context + ": expected at most " + std::to_string(limits.max_bytes) +
                                              " bytes, found " + std::to_string(text.size()));
  }
  try {
    JsonDocumentBuilder builder(std::move(name), limits.any_root);
    // Each value but the first follows a comma or the beginning of what it is in: room at once, instead of three times as much.
    const auto before_value = [](char c) { return c == ',' || c == '[' || c == '{'; };
    const auto most = static_cast<size_t>(std::count_if(text.begin(), text.end(), before_value)) + 1;
    builder.Reserve(std::min(most, limits.max_values), text.size());
    const auto take = [&](const JsonEvent& event) { return builder.Take(event); };
    const auto read = ReadJson(text, {.max_depth = limits.max_depth, .max_values = limits.max_values}, take);
    if (!read.ok()) return Error(read.error()).WithContext(context);
    return std::move(builder).Finish();
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
size_t JsonDocument::num_values() const { return owned_->nodes.size(); }

}  // namespace tidemill
