#include "text/jinja_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <new>
#include <vector>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"

namespace tidemill::jinja {
namespace {

using std::string_view;

// --- reading ---

}  // namespace

bool IsPlainRole(string_view role) {
  constexpr std::array<string_view, 8> kRoles = {"system", "developer", "user",    "assistant",
                                                 "tool",   "function",  "ipython", "model"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

const Str* JsonReader::Shared(string_view text, bool caller) {
  auto& known = caller ? keys_ : roles_;
  if (const auto found = known.find(text); found != known.end()) return found->second;
  const Str* shared = NewStr(heap_, text, caller);
  known.emplace(shared->bytes, shared);
  return shared;
}

// At most 309 digits: JsonDocument refuses what is no double.
Value JsonReader::BigInteger(string_view digits) { return Value::BigInt(NewStr(heap_, digits, true)); }

Value JsonReader::ValueOf(const JsonValue& json, bool is_role) {
  const auto caller = [](Value value) { return value.FromCaller(true); };
  switch (json.kind()) {
    case JsonKind::kNull: return caller(Value::None());
    case JsonKind::kBool: return caller(Value::Bool(json.GetBool("").value()));
    case JsonKind::kInteger: {
      const auto integer = json.GetInt("", INT64_MIN, INT64_MAX);
      return integer.ok() ? caller(Value::Int(*integer)) : BigInteger(json.Describe());
    }
    case JsonKind::kFloat:
      if (json.text().find_first_of(".eE") == string_view::npos) return BigInteger(json.text());
      return caller(Value::Float(json.GetFloat("").value()));
    case JsonKind::kBeginArray: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const JsonValue& element : json.Elements()) items.push_back(ValueOf(element));
      return caller(NewSequence(heap_, Sequence::Form::kList, items, true));
    }
    case JsonKind::kBeginObject: {
      std::vector<Mapping::Entry> entries;
      entries.reserve(json.size());
      for (const auto& [key, value] : json.Members()) {
        const Value name = caller(Value::Of(Shared(key, true)));
        entries.push_back({name, ValueOf(value, key == "role")});
      }
      return caller(NewMapping(heap_, entries, true));
    }
    default:
      if (is_role && IsPlainRole(json.text())) return caller(Value::Of(Shared(json.text(), false)));
      return caller(Value::Of(NewStr(heap_, json.text(), true)));
  }
}

Value JsonReader::Read(string_view name, string_view text) {
  const auto depth = static_cast<size_t>(std::clamp(limits_.input_depth, 0, static_cast<int>(kMaxJsonDepth)));
  const auto document = JsonDocument::Parse(
      std::string(name), text,
      {.max_bytes = limits_.input_bytes, .max_values = values_left_, .max_depth = depth, .any_root = true});
  if (!document.ok() && document.error().code() == ErrorCode::kOutOfMemory) throw std::bad_alloc();
  if (!document.ok()) Fail(document.error().message());
  values_left_ -= document->num_values();
  try {
    return ValueOf(*document);
  } catch (TemplateError& error) {
    error.message = document->name() + ": " + error.message;
    throw;
  }
}

// --- writing ---

namespace {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  const Str* indent = nullptr;  // one level of it; null: everything on one line
  const Str* item_separator = nullptr;
  const Str* key_separator = nullptr;
};

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style), out_(heap) {}

  const Str* Finish() { return out_.Finish(); }

  void Write(const Value& value, int depth) {
    heap_.Work(1);
    if (depth > kMaxValueDepth) Fail("tojson: values nested too deeply");
    switch (value.kind) {
      case Kind::kNone: out_.Append("null", value.caller); return;
      case Kind::kBool: out_.Append(value.boolean ? "true" : "false", value.caller); return;
      case Kind::kInt: out_.Append(std::to_string(value.integer), value.caller); return;
      case Kind::kBigInt: out_.Append(*value.str); return;
      case Kind::kFloat: out_.Append(FloatText(value.real), value.caller); return;
      case Kind::kString: WriteString(value); return;
      case Kind::kMapping: WriteMapping(*value.mapping, depth); return;
      case Kind::kSequence: {
        const Sequence::Form form = value.sequence->form;
        if (form == Sequence::Form::kList || form == Sequence::Form::kTuple || form == Sequence::Form::kGroup) {
          WriteList(*value.sequence, depth);
          return;
        }
        break;
      }
      default: break;
    }
    if (value.is_undefined()) Fail("tojson: " + UndefinedMessage(value));
    Fail("tojson: a '" + std::string(TypeName(value)) + "' cannot be written as JSON");
  }

 private:
  static std::string FloatText(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatRepr(value);
  }

  // The start of an element: what separates it from the one before, and its line.
  void Separate(bool first, bool caller, int depth) {
    if (!first) out_.Append(style_.item_separator->bytes, caller);
    if (style_.indent != nullptr) NewLine(caller, depth);
  }
  void NewLine(bool caller, int depth) {
    out_.Append("\n", caller);
    for (int i = 0; i < depth; ++i) out_.Append(style_.indent->bytes, caller);
  }

  void WriteList(const Sequence& list, int depth) {
    out_.Append("[", list.caller);
    for (size_t i = 0; i < list.items.size(); ++i) {
      Separate(i == 0, list.caller, depth + 1);
      Write(list.items[i], depth + 1);
    }
    if (!list.items.empty() && style_.indent != nullptr) NewLine(list.caller, depth);
    out_.Append("]", list.caller);
  }

  void WriteMapping(const Mapping& mapping, int depth) {
    std::vector<const Mapping::Entry*> entries;
    heap_.Charge(mapping.entries.size() * sizeof(entries[0]));
    for (const Mapping::Entry& entry : mapping.entries) entries.push_back(&entry);
    if (style_.sort_keys) SortEntries(entries);
    out_.Append("{", mapping.caller);
    bool first = true;
    for (const Mapping::Entry* entry : entries) {
      Separate(first, mapping.caller, depth + 1);
      first = false;
      WriteKey(entry->key);
      out_.Append(style_.key_separator->bytes, mapping.caller);
      Write(entry->value, depth + 1);
    }
    if (!entries.empty() && style_.indent != nullptr) NewLine(mapping.caller, depth);
    out_.Append("}", mapping.caller);
  }

  void SortEntries(std::vector<const Mapping::Entry*>& entries) {
    for (const Mapping::Entry* entry : entries) {
      if (!entry->key.is_string()) Fail("tojson: sort_keys needs keys that are strings");
    }
    heap_.Work(entries.size());
    std::sort(entries.begin(), entries.end(),
              [](const auto* a, const auto* b) { return a->key.text() < b->key.text(); });
  }

  void WriteKey(const Value& key) {
    std::string text;
    switch (key.kind) {
      case Kind::kString: WriteString(key); return;
      case Kind::kNone: text = "null"; break;
      case Kind::kBool: text = key.boolean ? "true" : "false"; break;
      case Kind::kInt: text = std::to_string(key.integer); break;
      case Kind::kFloat: text = FloatText(key.real); break;
      default: Fail("tojson: a key is a '" + std::string(TypeName(key)) + "', not a string");
    }
    out_.Append("\"" + text + "\"", key.caller);
  }

  void WriteString(const Value& value) {
    heap_.Scan(value.text().size());
    out_.Append("\"", value.caller);
    ForEachRun(*value.str, [this](string_view piece, bool caller, size_t) {
      size_t plain = 0;  // start of what needs no escape
      for (size_t pos = 0; pos < piece.size();) {
        const auto byte = static_cast<unsigned char>(piece[pos]);
        const size_t length = CharLength(piece, pos);
        if (byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x80 || !style_.ensure_ascii)) {
          pos += length;
          continue;
        }
        out_.Append(piece.substr(plain, pos - plain), caller);
        out_.Append(Escaped(DecodeChar(piece, pos)), caller);
        pos += length;
        plain = pos;
      }
      out_.Append(piece.substr(plain), caller);
    });
    out_.Append("\"", value.caller);
  }

  static std::string Escaped(char32_t c) {
    switch (c) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      case '\b': return "\\b";
      case '\f': return "\\f";
      default: break;
    }
    if (c >= 0x10000) {
      const char32_t rest = c - 0x10000;
      return HexEscape(0xD800 + (rest >> 10)) + HexEscape(0xDC00 + (rest & 0x3FF));
    }
    return HexEscape(c);
  }
  static std::string HexEscape(char32_t unit) {
    constexpr string_view kHex = "0123456789abcdef";
    std::string out = "\\u";
    for (const unsigned shift : {12u, 8u, 4u, 0u}) out += kHex[unit >> shift & 0xF];
    return out;
  }

  Heap& heap_;
  const JsonStyle& style_;
  TextBuilder out_;
};

}  // namespace

Value ToJsonFilter(Interpreter& in, const CallArguments& arguments) {
  const auto [value, ensure_ascii, indent, separators, sort_keys] =
      Bind<5>("tojson", arguments, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  Heap& heap = in.heap();
  JsonStyle style;
  style.ensure_ascii = IsTrue(ensure_ascii);
  style.sort_keys = IsTrue(sort_keys);
  const bool has_indent = !indent.is_absent() && !indent.is_none();
  if (has_indent && indent.is_string()) {
    style.indent = indent.str;
  } else if (has_indent) {
    const int64_t columns = NeedInt("tojson", "indent", indent);
    style.indent = Arithmetic(heap, Operator::kMul, Value::Of(BorrowStr(heap, " ", false)), Value::Int(columns)).str;
  }
  style.item_separator = BorrowStr(heap, has_indent ? "," : ", ", false);
  style.key_separator = BorrowStr(heap, ": ", false);
  if (!separators.is_absent() && !separators.is_none()) {
    const std::span<const Value> pair = Iterate(heap, separators);
    if (pair.size() != 2) Fail("tojson: separators must be two strings");
    style.item_separator = &NeedString("tojson", "separators", pair[0]);
    style.key_separator = &NeedString("tojson", "separators", pair[1]);
  }
  JsonWriter writer(heap, style);
  writer.Write(value, 0);
  return Value::Of(writer.Finish());
}

}  // namespace tidemill::jinja
