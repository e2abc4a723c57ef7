// A whole JSON text in memory, with getters that check what they hand out: config.json and its relatives, and what callers send.
//
//   auto config = JsonDocument::Parse("config.json", text);
//   config->GetUint("hidden_size", 1, 1 << 20);                        // or: config.json: "hidden_size": expected an integer of 1
//   config->GetFloatOr("rope_parameters.full_attention.rope_theta", 10000);                // to 1048576, found "x"
#ifndef TIDEMILL_BASE_JSON_DOCUMENT_H_
#define TIDEMILL_BASE_JSON_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "tidemill/result.h"

namespace tidemill {

// What a text may ask for; json_reader.h has the table of who allows what.
struct JsonDocumentLimits {
  size_t max_bytes = kMaxJsonBytes;
  size_t max_values = kMaxJsonValues;
  size_t max_depth = kMaxJsonDepth;
  bool any_root = false;  // not only an object
};

// A value of a document, which it borrows. A path leads from this value through objects: keys with dots between them. Where a key of
// its own has dots, the key that is all the rest of the path comes first.
class JsonValue {
 public:
  JsonKind kind() const;  // kBeginObject and kBeginArray stand for the whole object or array
  bool is_object() const { return kind() == JsonKind::kBeginObject; }
  bool is_array() const { return kind() == JsonKind::kBeginArray; }
  bool is_string() const { return kind() == JsonKind::kString; }
  bool is_integer() const { return kind() == JsonKind::kInteger; }
  bool is_number() const { return is_integer() || kind() == JsonKind::kFloat; }
  bool is_bool() const { return kind() == JsonKind::kBool; }
  bool is_null() const { return kind() == JsonKind::kNull; }

  std::optional<JsonValue> Find(std::string_view path) const;
  std::optional<JsonValue> Peek(std::string_view path) const;   // the same, but Unread does not notice
  std::optional<JsonValue> Member(std::string_view key) const;  // of exactly this key, which may be empty and have dots
  bool Has(std::string_view path) const;                        // there, and not null
  bool IsNull(std::string_view path) const;                     // there, and null
  size_t size() const;                         // members of an object, elements of an array; otherwise 0
  std::vector<std::string_view> Keys() const;  // of an object, in the order of the file; otherwise none
  std::vector<std::pair<std::string_view, JsonValue>> Members() const;  // the same with their values
  std::vector<JsonValue> Elements() const;                              // of an array; otherwise none
  // Members below this object that nobody has asked for, in the order of the file; not nulls. To learn that a key is there (Has, IsNull,
  // Peek, Keys) is not to ask for it. Of an object that was asked for: what is unread in it.
  std::vector<JsonValue> Unread() const;
  std::string path() const;       // from the root: "added_tokens[3].content"; empty for the root
  std::string Describe() const;   // "null", "true", "4.5", "\"x\"", "an object", "an array": for messages
  std::string_view text() const;  // of a string, and of a kFloat as it was written; otherwise empty

  // Typed access. A missing key is kNotFound, a value of another kind or outside the range kCorruptFile; both name the file, the path
  // and what was found. An empty path means this value itself. Views live as long as the document.
  Result<uint64_t> GetUint(std::string_view path, uint64_t min, uint64_t max) const;  // 4.0 is no integer
  Result<int64_t> GetInt(std::string_view path, int64_t min, int64_t max) const;
  Result<double> GetFloat(std::string_view path) const;  // any number; finite, since JSON has no others
  Result<bool> GetBool(std::string_view path) const;
  Result<std::string_view> GetString(std::string_view path) const;
  Result<std::vector<int64_t>> GetInts(std::string_view path) const;
  Result<std::vector<int64_t>> GetOneOrMoreInts(std::string_view path) const;  // also an integer alone: eos_token_id
  Result<std::vector<double>> GetFloats(std::string_view path) const;
  Result<std::vector<std::string_view>> GetStrings(std::string_view path) const;
  Result<JsonValue> GetObject(std::string_view path) const;
  Result<JsonValue> GetArray(std::string_view path) const;

  // `fallback` when the key is missing or null; an error only when it is there and wrong.
  Result<uint64_t> GetUintOr(std::string_view path, uint64_t fallback, uint64_t min, uint64_t max) const;
  Result<int64_t> GetIntOr(std::string_view path, int64_t fallback, int64_t min, int64_t max) const;
  Result<double> GetFloatOr(std::string_view path, double fallback) const;
  Result<bool> GetBoolOr(std::string_view path, bool fallback) const;
  Result<std::string_view> GetStringOr(std::string_view path, std::string_view fallback) const;

  // `FILE: "PATH": expected EXPECTED, found ...`, for what a caller checks further. kNotFound when there is no such value.
  Error Unexpected(std::string_view path, std::string_view expected) const;

 protected:
  struct Storage;
  JsonValue(const Storage* storage, uint32_t node) : storage_(storage), node_(node) {}

 private:
  friend class JsonDocumentBuilder;

  std::optional<JsonValue> Child(std::string_view key) const;
  template <typename Visit>
  std::optional<JsonValue> Walk(std::string_view path, Visit visit) const;
  void AddUnread(std::vector<JsonValue>* unread) const;
  Result<JsonValue> Require(std::string_view path, std::string_view expected) const;
  template <typename T, typename Convert>
  Result<std::vector<T>> Collect(std::string_view path, std::string_view expected, Convert convert) const;

  const Storage* storage_;
  uint32_t node_;
};

// The root, an object unless any_root, together with what it stands in. Views and values outlive a move of it.
class JsonDocument : public JsonValue {
 public:
  // `name` stands in front of every message. kCorruptFile with the byte where the text is not JSON, where a key of an object stands
  // twice, or for another root than an object; kUnsupported above a limit; kOutOfMemory. Copies what the text spells; memory below the
  // text + 60 bytes a value. O(n log n).
  static Result<JsonDocument> Parse(std::string name, std::string_view text, const JsonDocumentLimits& limits = {});

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  const std::string& name() const;
  size_t num_values() const;

 private:
  friend class JsonDocumentBuilder;
  explicit JsonDocument(std::unique_ptr<Storage> storage);

  std::unique_ptr<Storage> owned_;
};

// Makes a document of ReadJson's events, for a reader that keeps the large parts of a text to itself. Errors as those of Parse, without
// the name; it throws bad_alloc.
class JsonDocumentBuilder {
 public:
  explicit JsonDocumentBuilder(std::string name, bool any_root = false);
  ~JsonDocumentBuilder();
  void Reserve(size_t values, size_t text_bytes);
  Result<void> Take(const JsonEvent& event);  // a key whose value is not taken is not there
  JsonDocument Finish() &&;                   // behind the last event of the root

 private:
  Result<void> Close();

  std::unique_ptr<JsonValue::Storage> storage_;
  bool any_root_;
  std::vector<uint32_t> open_;             // nodes
  uint32_t key_begin_ = 0, key_size_ = 0;  // of the value to come
  uint32_t key_at_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_BASE_JSON_DOCUMENT_H_
