// Finding values in a JsonDocument, and typed access to them.
#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <new>
#include <utility>

#include "base/json_document.h"
#include "base/json_storage.h"
#include "base/printable_name.h"

namespace tidemill {
namespace {

template <typename Taken>
void Take(Taken& now, Taken more) {
  const std::atomic_ref<Taken> shared(now);
  if (shared.load(std::memory_order_relaxed) < more) shared.store(more, std::memory_order_relaxed);
}

std::string Range(const std::string& min, const std::string& max) { return "an integer of " + min + " to " + max; }

}  // namespace

JsonKind JsonValue::kind() const { return storage_->nodes[node_].kind; }

size_t JsonValue::size() const { return is_object() || is_array() ? storage_->ChildrenOf(node_).size() : 0; }

std::string_view JsonValue::text() const {
  const bool has_text = is_string() || kind() == JsonKind::kFloat;
  return has_text ? storage_->TextOf(storage_->nodes[node_].text) : std::string_view();
}

std::optional<JsonValue> JsonValue::Child(std::string_view key) const {
  if (!is_object()) return std::nullopt;
  const auto children = storage_->ChildrenOf(node_);
  const auto found =
      std::lower_bound(children.begin(), children.end(), key,
                       [&](uint32_t node, std::string_view wanted) { return storage_->KeyOf(node) < wanted; });
  if (found == children.end() || storage_->KeyOf(*found) != key) return std::nullopt;
  return JsonValue(storage_, *found);
}

std::optional<JsonValue> JsonValue::Member(std::string_view key) const {
  const auto found = Child(key);
  if (found) Take(storage_->nodes[found->node_].taken, Storage::Taken::kValue);
  return found;
}

// visit(node) for each value on the way but this one, which was asked for when it was handed out, if at all.
template <typename Visit>
std::optional<JsonValue> JsonValue::Walk(std::string_view path, Visit visit) const {
  JsonValue value = *this;
  while (!path.empty()) {
    if (const auto whole = value.Child(path)) {
      visit(whole->node_);
      return whole;
    }
    const size_t dot = path.find('.');
    if (dot == std::string_view::npos) return std::nullopt;
    const auto next = value.Child(path.substr(0, dot));
    if (!next) return std::nullopt;
    value = *next;
    visit(value.node_);
    path.remove_prefix(dot + 1);
    if (path.empty()) return std::nullopt;  // a dot at the end
  }
  return value;
}

std::optional<JsonValue> JsonValue::Find(std::string_view path) const {
  return Walk(path, [this](uint32_t node) { Take(storage_->nodes[node].taken, Storage::Taken::kValue); });
}

std::optional<JsonValue> JsonValue::Peek(std::string_view path) const {
  return Walk(path, [](uint32_t) {});
}

bool JsonValue::Has(std::string_view path) const {
  const auto value = Peek(path);
  return value && !value->is_null();
}

bool JsonValue::IsNull(std::string_view path) const {
  const auto value = Peek(path);
  return value && value->is_null();
}

std::vector<JsonValue> JsonValue::Unread() const {
  std::vector<JsonValue> unread;
  AddUnread(&unread);
  return unread;
}

// As deep as the document.
void JsonValue::AddUnread(std::vector<JsonValue>* unread) const {
  if (!is_object() || storage_->nodes[node_].taken == Storage::Taken::kAll) return;
  const uint32_t end = storage_->nodes[node_].end;
  for (uint32_t child = node_ + 1; child < end; child = storage_->nodes[child].end) {
    const JsonValue member(storage_, child);
    if (member.is_null()) continue;
    if (storage_->nodes[child].taken == Storage::Taken::kNo) {
      unread->push_back(member);
    } else {
      member.AddUnread(unread);
    }
  }
}

std::vector<std::string_view> JsonValue::Keys() const {
  std::vector<std::string_view> keys;
  if (!is_object()) return keys;
  keys.reserve(size());
  const uint32_t end = storage_->nodes[node_].end;
  for (uint32_t child = node_ + 1; child < end; child = storage_->nodes[child].end)
    keys.push_back(storage_->KeyOf(child));
  return keys;
}

std::vector<std::pair<std::string_view, JsonValue>> JsonValue::Members() const {
  std::vector<std::pair<std::string_view, JsonValue>> members;
  if (!is_object()) return members;
  members.reserve(size());
  Take(storage_->nodes[node_].taken, Storage::Taken::kAll);
  const uint32_t end = storage_->nodes[node_].end;
  for (uint32_t child = node_ + 1; child < end; child = storage_->nodes[child].end)
    members.emplace_back(storage_->KeyOf(child), JsonValue(storage_, child));
  return members;
}

std::vector<JsonValue> JsonValue::Elements() const {
  std::vector<JsonValue> elements;
  if (!is_array()) return elements;
  elements.reserve(size());
  for (const uint32_t child : storage_->ChildrenOf(node_)) elements.push_back(JsonValue(storage_, child));
  return elements;
}

std::string JsonValue::path() const {
  std::vector<std::string> steps;  // at most as many as the document is deep
  for (uint32_t node = node_; node != 0; node = storage_->nodes[node].parent) {
    const uint32_t parent = storage_->nodes[node].parent;
    if (storage_->nodes[parent].kind == JsonKind::kBeginObject) {
      steps.push_back((parent == 0 ? "" : ".") + std::string(storage_->KeyOf(node)));
    } else {
      const auto siblings = storage_->ChildrenOf(parent);  // in the order of the text
      const auto place = std::lower_bound(siblings.begin(), siblings.end(), node);
      steps.push_back("[" + std::to_string(place - siblings.begin()) + "]");
    }
  }
  std::string path;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) path += *step;
  return path;
}

std::string JsonValue::Describe() const {
  const Storage::Node& node = storage_->nodes[node_];
  JsonEvent event;
  event.kind = node.kind;
  event.text = text();
  std::string source(text());
  if (is_null()) source = "null";
  if (is_bool()) source = node.flag ? "true" : "false";
  if (is_integer()) source = node.flag ? std::to_string(static_cast<int64_t>(node.bits)) : std::to_string(node.bits);
  event.source = source;
  return DescribeJson(event);
}

Error JsonValue::Unexpected(std::string_view path, std::string_view expected) const {
  const auto value = Find(path);
  const std::string base = this->path();
  std::string full = base.empty() || path.empty() ? base + std::string(path) : base + "." + std::string(path);
  if (!full.empty()) full = QuoteName(full) + ": ";
  return Error(value ? ErrorCode::kCorruptFile : ErrorCode::kNotFound, storage_->name + ": " + full + "expected " +
                                                                           std::string(expected) + ", found " +
                                                                           (value ? value->Describe() : "no such key"));
}

Result<JsonValue> JsonValue::Require(std::string_view path, std::string_view expected) const {
  if (auto value = Find(path)) return *value;
  return Unexpected(path, expected);
}

Result<uint64_t> JsonValue::GetUint(std::string_view path, uint64_t min, uint64_t max) const {
  const auto value = Find(path);
  if (value && value->is_integer()) {
    const Storage::Node& node = storage_->nodes[value->node_];
    if (!node.flag && node.bits >= min && node.bits <= max) return node.bits;
  }
  return Unexpected(path, Range(std::to_string(min), std::to_string(max)));
}

Result<int64_t> JsonValue::GetInt(std::string_view path, int64_t min, int64_t max) const {
  const auto value = Find(path);
  if (value && value->is_integer()) {
    const Storage::Node& node = storage_->nodes[value->node_];
    const bool fits = node.flag || node.bits <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const auto number = static_cast<int64_t>(node.bits);
    if (fits && number >= min && number <= max) return number;
  }
  return Unexpected(path, Range(std::to_string(min), std::to_string(max)));
}

Result<double> JsonValue::GetFloat(std::string_view path) const {
  constexpr std::string_view kExpected = "a number";
  TIDEMILL_TRY(value, Require(path, kExpected));
  const Storage::Node& node = storage_->nodes[value.node_];
  if (node.kind == JsonKind::kFloat) return std::bit_cast<double>(node.bits);
  if (node.kind != JsonKind::kInteger) return Unexpected(path, kExpected);
  return node.flag ? static_cast<double>(static_cast<int64_t>(node.bits)) : static_cast<double>(node.bits);
}

Result<bool> JsonValue::GetBool(std::string_view path) const {
  constexpr std::string_view kExpected = "true or false";
  TIDEMILL_TRY(value, Require(path, kExpected));
  if (!value.is_bool()) return Unexpected(path, kExpected);
  return storage_->nodes[value.node_].flag;
}

Result<std::string_view> JsonValue::GetString(std::string_view path) const {
  constexpr std::string_view kExpected = "a string";
  TIDEMILL_TRY(value, Require(path, kExpected));
  if (!value.is_string()) return Unexpected(path, kExpected);
  return storage_->TextOf(storage_->nodes[value.node_].text);
}

Result<JsonValue> JsonValue::GetObject(std::string_view path) const {
  constexpr std::string_view kExpected = "an object";
  TIDEMILL_TRY(value, Require(path, kExpected));
  if (!value.is_object()) return Unexpected(path, kExpected);
  return value;
}

Result<JsonValue> JsonValue::GetArray(std::string_view path) const {
  constexpr std::string_view kExpected = "an array";
  TIDEMILL_TRY(value, Require(path, kExpected));
  if (!value.is_array()) return Unexpected(path, kExpected);
  return value;
}

// convert(element) for each element; the first error, which names the element, ends it.
template <typename T, typename Convert>
Result<std::vector<T>> JsonValue::Collect(std::string_view path, std::string_view expected, Convert convert) const try {
  TIDEMILL_TRY(array, Require(path, expected));
  if (!array.is_array()) return Unexpected(path, expected);
  std::vector<T> values;
  const auto children = storage_->ChildrenOf(array.node_);
  values.reserve(children.size());
  for (const uint32_t child : children) {
    TIDEMILL_TRY(value, convert(JsonValue(storage_, child)));
    values.push_back(value);
  }
  return values;
} catch (const std::bad_alloc&) {
  return Error(ErrorCode::kOutOfMemory, storage_->name + ": " + QuoteName(path) + ": no memory for its elements");
}

Result<std::vector<int64_t>> JsonValue::GetInts(std::string_view path) const {
  return Collect<int64_t>(path, "an array of integers", [](const JsonValue& element) {
    return element.GetInt("", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  });
}

Result<std::vector<int64_t>> JsonValue::GetOneOrMoreInts(std::string_view path) const {
  constexpr std::string_view kExpected = "an integer or an array of integers";
  TIDEMILL_TRY(value, Require(path, kExpected));
  if (value.is_array()) return GetInts(path);
  if (!value.is_integer()) return Unexpected(path, kExpected);
  TIDEMILL_TRY(number, value.GetInt("", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
  return std::vector<int64_t>{number};
}

Result<std::vector<double>> JsonValue::GetFloats(std::string_view path) const {
  return Collect<double>(path, "an array of numbers", [](const JsonValue& element) { return element.GetFloat(""); });
}

Result<std::vector<std::string_view>> JsonValue::GetStrings(std::string_view path) const {
  return Collect<std::string_view>(path, "an array of strings",
                                   [](const JsonValue& element) { return element.GetString(""); });
}

Result<uint64_t> JsonValue::GetUintOr(std::string_view path, uint64_t fallback, uint64_t min, uint64_t max) const {
  if (!Has(path)) return fallback;
  return GetUint(path, min, max);
}

Result<int64_t> JsonValue::GetIntOr(std::string_view path, int64_t fallback, int64_t min, int64_t max) const {
  if (!Has(path)) return fallback;
  return GetInt(path, min, max);
}

Result<double> JsonValue::GetFloatOr(std::string_view path, double fallback) const {
  if (!Has(path)) return fallback;
  return GetFloat(path);
}

Result<bool> JsonValue::GetBoolOr(std::string_view path, bool fallback) const {
  if (!Has(path)) return fallback;
  return GetBool(path);
}

Result<std::string_view> JsonValue::GetStringOr(std::string_view path, std::string_view fallback) const {
  if (!Has(path)) return fallback;
  return GetString(path);
}

}  // namespace tidemill
