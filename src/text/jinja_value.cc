#include "text/jinja_value.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <functional>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_unicode.h"

namespace tidemill::jinja {
namespace {

constexpr size_t kLinearSearch = 8;  // dicts up to this size have no index

int DepthOf(const Value& value) {
  if (value.kind == Kind::kSequence) return value.sequence->depth;
  if (value.kind == Kind::kMapping) return value.mapping->depth;
  return 0;
}

int DepthAround(int inner) {
  if (inner + 1 > kMaxValueDepth) Fail("values nested deeper than " + std::to_string(kMaxValueDepth));
  return inner + 1;
}

// Equal values have equal hashes, also across int, float and bool.
size_t Hash(Heap& heap, const Value& value) {
  switch (value.kind) {
    case Kind::kString: heap.Scan(value.text().size()); return std::hash<std::string_view>{}(value.text());
    case Kind::kBigInt: return std::hash<std::string_view>{}(value.str->bytes);
    case Kind::kBool:
    case Kind::kInt: return std::hash<double>{}(static_cast<double>(value.AsInt()));
    case Kind::kFloat: return std::hash<double>{}(value.real);
    case Kind::kSequence: {
      size_t hash = 17;
      heap.Work(value.sequence->items.size());
      for (const Value& item : value.sequence->items) hash = hash * 31 + Hash(heap, item);
      return hash;
    }
    default: return static_cast<size_t>(value.kind);
  }
}

// The slot of `index` that holds `key`, or the empty one where it belongs.
size_t ProbeIndex(Heap& heap, std::span<const Mapping::Entry> entries, std::span<const uint32_t> index,
                  const Value& key) {
  const size_t mask = index.size() - 1;
  const size_t hash = Hash(heap, key);
  size_t slot = (hash ^ hash >> 17) & mask;
  while (index[slot] != 0 && !Equals(heap, entries[index[slot] - 1].key, key)) {
    heap.Work(1);
    slot = (slot + 1) & mask;
  }
  return slot;
}

}  // namespace

Value NewSequence(Heap& heap, Sequence::Form form, std::span<const Value> items, bool caller) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, DepthOf(item));
  heap.Work(items.size() / 16);
  return Value::Of(heap.New(Sequence{heap.Copy(items), form, caller, DepthAround(depth), nullptr}));
}

Value NewMapping(Heap& heap, std::span<const Mapping::Entry> entries, bool caller) {
  const std::span<Mapping::Entry> kept = heap.NewArray<Mapping::Entry>(entries.size());
  std::span<uint32_t> index;
  if (entries.size() > kLinearSearch) index = heap.NewArray<uint32_t>(std::bit_ceil(entries.size() * 2));
  size_t size = 0;
  int depth = 0;
  for (const Mapping::Entry& entry : entries) {
    if (!IsHashable(heap, entry.key)) Fail("unhashable type: '" + std::string(TypeName(entry.key)) + "' as a dict key");
    depth = std::max({depth, DepthOf(entry.key), DepthOf(entry.value)});
    heap.Work(1);
    size_t at = size;
    if (index.empty()) {
      at = 0;
      while (at < size && !Equals(heap, kept[at].key, entry.key)) ++at;
    } else {
      const size_t slot = ProbeIndex(heap, kept, index, entry.key);
      if (index[slot] != 0) {
        at = index[slot] - 1;
      } else {
        index[slot] = static_cast<uint32_t>(size + 1);
      }
    }
    if (at == size) kept[size++].key = entry.key;
    kept[at].value = entry.value;
  }
  return Value::Of(heap.New(Mapping{kept.first(size), index, caller, DepthAround(depth)}));
}

Value NewUndefined(Heap& heap, std::string_view name, std::string_view owner_type) {
  return Value::Of(heap.New(UndefinedInfo{name, owner_type, {}}));
}

Value UndefinedBecause(Heap& heap, std::string_view hint) { return Value::Of(heap.New(UndefinedInfo{{}, {}, hint})); }

std::string UndefinedMessage(const Value& value) {
  const UndefinedInfo& info = *value.undefined;
  if (!info.hint.empty()) return std::string(info.hint);
  const std::string name = "\"" + ForMessage(info.name, 80) + "\"";
  if (info.owner_type.empty()) return name + " is undefined";
  return "\"" + std::string(info.owner_type) + "\" object has no attribute " + name;
}

const Value* FindKey(Heap& heap, const Mapping& mapping, const Value& key) {
  if (!mapping.index.empty()) {
    const uint32_t found = mapping.index[ProbeIndex(heap, mapping.entries, mapping.index, key)];
    return found == 0 ? nullptr : &mapping.entries[found - 1].value;
  }
  for (const Mapping::Entry& entry : mapping.entries) {
    if (Equals(heap, entry.key, key)) return &entry.value;
  }
  return nullptr;
}

const Value* FindKey(Heap& heap, const Mapping& mapping, std::string_view key) {
  if (mapping.index.empty()) {
    heap.Work(key.size() / 64);
    for (const Mapping::Entry& entry : mapping.entries) {
      if (entry.key.is_string() && entry.key.text() == key) return &entry.value;
    }
    return nullptr;
  }
  const Str text{key, {}};
  return FindKey(heap, mapping, Value::Of(&text));
}

Value* FindSlot(Heap& heap, Namespace& space, std::string_view name) {
  heap.Work(1 + space.size / 16);
  for (Mapping::Entry& entry : space.slots.first(space.size)) {
    if (entry.key.text() == name) return &entry.value;
  }
  return nullptr;
}

void SetSlot(Heap& heap, Namespace& space, const Str* name, const Value& value) {
  if (Value* slot = FindSlot(heap, space, name->bytes)) {
    *slot = value;
    return;
  }
  if (space.size == space.slots.size()) {
    const std::span<Mapping::Entry> larger = heap.NewArray<Mapping::Entry>(std::max<size_t>(8, space.size * 2));
    std::copy(space.slots.begin(), space.slots.end(), larger.begin());
    space.slots = larger;
  }
  space.slots[space.size++] = {Value::Of(name), value};
}

std::string_view TypeName(const Value& value) {
  switch (value.kind) {
    case Kind::kAbsent: return "absent";
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt:
    case Kind::kBigInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kSequence:
      switch (value.sequence->form) {
        case Sequence::Form::kList: return "list";
        case Sequence::Form::kTuple:
        case Sequence::Form::kGroup: return "tuple";
        case Sequence::Form::kRange: return "range";
        case Sequence::Form::kKeys: return "dict_keys";
        case Sequence::Form::kValues: return "dict_values";
        case Sequence::Form::kItems: return "dict_items";
      }
      return "sequence";
    case Kind::kMapping: return "dict";
    case Kind::kGenerator: return "generator";
    case Kind::kCycler: return value.cycler->is_joiner ? "Joiner" : "Cycler";
    case Kind::kNamespace: return "Namespace";
    case Kind::kMacro: return "Macro";
    case Kind::kLoop: return "LoopContext";
    case Kind::kMethod: return "method";
    case Kind::kFunction: return "function";
  }
  return "value";
}

bool IsTrue(const Value& value) {
  switch (value.kind) {
    case Kind::kAbsent:
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return value.boolean;
    case Kind::kInt: return value.integer != 0;
    case Kind::kFloat: return value.real != 0;
    case Kind::kString: return !value.text().empty();
    case Kind::kSequence: return !value.sequence->items.empty();
    case Kind::kMapping: return !value.mapping->entries.empty();
    default: return true;
  }
}

bool IsHashable(Heap& heap, const Value& value) {
  heap.Work(1);
  if (value.kind == Kind::kMapping) return false;
  if (value.kind != Kind::kSequence) return true;
  switch (value.sequence->form) {
    case Sequence::Form::kTuple:
    case Sequence::Form::kGroup:
      return std::all_of(value.sequence->items.begin(), value.sequence->items.end(),
                         [&heap](const Value& item) { return IsHashable(heap, item); });
    case Sequence::Form::kRange: return true;
    default: return false;
  }
}

namespace {

// Lists equal lists only, tuples tuples; views of a dict behave as lists here.
Sequence::Form EqualityClass(const Sequence& sequence) {
  return sequence.form == Sequence::Form::kGroup ? Sequence::Form::kTuple : sequence.form;
}

bool NumbersEqual(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.AsInt() == b.AsInt();
  if (a.kind == Kind::kFloat && b.kind == Kind::kFloat) return a.real == b.real;
  const double real = a.kind == Kind::kFloat ? a.real : b.real;
  const int64_t integer = a.kind == Kind::kFloat ? b.AsInt() : a.AsInt();
  return real >= -0x1p63 && real < 0x1p63 && std::trunc(real) == real && static_cast<int64_t>(real) == integer;
}

}  // namespace

bool Equals(Heap& heap, const Value& a, const Value& b, int depth) {
  if (a.is_string() && b.is_string()) {
    if (a.text().size() != b.text().size()) return false;
    heap.Work(a.text().size() / 64);
    return a.text() == b.text();
  }
  if (a.is_number() && b.is_number()) return NumbersEqual(a, b);
  if (a.kind != b.kind) return false;
  if (depth > kMaxValueDepth) Fail("values nested too deeply to compare");
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kSequence: {
      const Sequence& left = *a.sequence;
      const Sequence& right = *b.sequence;
      if (EqualityClass(left) != EqualityClass(right) || left.items.size() != right.items.size()) return false;
      for (size_t i = 0; i < left.items.size(); ++i) {
        heap.Work(1);
        if (!Equals(heap, left.items[i], right.items[i], depth + 1)) return false;
      }
      return true;
    }
    case Kind::kMapping: {
      if (a.mapping->entries.size() != b.mapping->entries.size()) return false;
      for (const Mapping::Entry& entry : a.mapping->entries) {
        heap.Work(1);
        const Value* other = FindKey(heap, *b.mapping, entry.key);
        if (other == nullptr || !Equals(heap, entry.value, *other, depth + 1)) return false;
      }
      return true;
    }
    case Kind::kBigInt: return a.str->bytes == b.str->bytes;
    case Kind::kMethod: return a.method == b.method;
    default: return a.integer == b.integer;  // the same object
  }
}

int Compare(Heap& heap, const Value& a, const Value& b, bool* unordered, int depth) {
  *unordered = false;
  if (a.is_string() && b.is_string()) {
    heap.Work(std::min(a.text().size(), b.text().size()) / 64);
    const int order = a.text().compare(b.text());  // bytes of UTF-8 are in the order of the characters
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is_integral() && b.is_integral()) return a.AsInt() < b.AsInt() ? -1 : a.AsInt() > b.AsInt() ? 1 : 0;
  if (a.is_number() && b.is_number()) {
    const long double left = a.kind == Kind::kFloat ? a.real : static_cast<long double>(a.AsInt());
    const long double right = b.kind == Kind::kFloat ? b.real : static_cast<long double>(b.AsInt());
    *unordered = std::isnan(left) || std::isnan(right);
    return left < right ? -1 : left > right ? 1 : 0;
  }
  if (a.is_undefined()) Fail(UndefinedMessage(a));
  if (b.is_undefined()) Fail(UndefinedMessage(b));
  if (a.kind == Kind::kSequence && b.kind == Kind::kSequence &&
      EqualityClass(*a.sequence) == EqualityClass(*b.sequence) &&
      EqualityClass(*a.sequence) <= Sequence::Form::kTuple) {
    if (depth > kMaxValueDepth) Fail("values nested too deeply to compare");
    const std::span<const Value> left = a.sequence->items;
    const std::span<const Value> right = b.sequence->items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      heap.Work(1);
      if (!Equals(heap, left[i], right[i], depth + 1)) return Compare(heap, left[i], right[i], unordered, depth + 1);
    }
    return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
  }
  Fail("cannot order '" + std::string(TypeName(a)) + "' and '" + std::string(TypeName(b)) + "'");
}

size_t Length(Heap& heap, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined: return 0;
    case Kind::kString: heap.Scan(value.text().size()); return CountChars(value.text());
    case Kind::kSequence: return value.sequence->items.size();
    case Kind::kMapping: return value.mapping->entries.size();
    case Kind::kLoop: return value.loop->items.size();
    default: Fail("'" + std::string(TypeName(value)) + "' has no length");
  }
}

bool IsIterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.kind == Kind::kSequence || value.kind == Kind::kMapping ||
         value.kind == Kind::kGenerator || value.kind == Kind::kLoop;
}

std::span<const Value> Iterate(Heap& heap, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined: return {};
    case Kind::kSequence: return value.sequence->items;
    case Kind::kGenerator: {
      const std::span<const Value> rest = value.generator->items.subspan(value.generator->next);
      value.generator->next = value.generator->items.size();
      return rest;
    }
    case Kind::kMapping: {
      const std::span<Value> keys = heap.NewArray<Value>(value.mapping->entries.size());
      heap.Work(keys.size() / 16);
      std::transform(value.mapping->entries.begin(), value.mapping->entries.end(), keys.begin(),
                     [](const Mapping::Entry& entry) { return entry.key; });
      return keys;
    }
    case Kind::kString: {
      const std::string_view text = value.text();
      heap.Work(text.size() / 4);
      const std::span<Value> chars = heap.NewArray<Value>(CountChars(text));
      const Str plain{text, value.str->caller};  // characters of markup are none
      size_t pos = 0;
      for (Value& c : chars) {
        const size_t end = pos + CharLength(text, pos);
        c = Value::Of(SliceStr(heap, plain, pos, end));
        pos = end;
      }
      return chars;
    }
    default: Fail("'" + std::string(TypeName(value)) + "' cannot be iterated");
  }
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view shortest(buffer.data(), static_cast<size_t>(result.ptr - buffer.data()));
  const size_t e = shortest.find('e');
  int exponent = 0;
  const size_t sign = shortest[e + 1] == '+' ? 1 : 0;
  std::from_chars(shortest.data() + e + 1 + sign, shortest.data() + shortest.size(), exponent);
  if (exponent < -4 || exponent >= 16)
    return std::string(shortest);  // to_chars writes at least two digits, as Python does
  const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string text(buffer.data(), fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

namespace {

void AppendStringRepr(TextBuilder& out, const Value& value) {
  const std::string_view text = value.text();
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  if (value.is_markup()) out.Append("Markup(", value.caller);
  out.Append(std::string_view(&quote, 1), value.caller);
  ForEachRun(*value.str, [&out, quote](std::string_view piece, bool caller, size_t) {
    std::string escaped;
    for (size_t pos = 0; pos < piece.size();) {
      const char32_t c = DecodeChar(piece, pos);
      const size_t length = CharLength(piece, pos);
      constexpr std::string_view kHex = "0123456789abcdef";
      if (c == '\\' || c == static_cast<char32_t>(quote)) {
        escaped += '\\';
        escaped += piece[pos];
      } else if (c == '\n') {
        escaped += "\\n";
      } else if (c == '\r') {
        escaped += "\\r";
      } else if (c == '\t') {
        escaped += "\\t";
      } else if (IsPrintable(c)) {
        escaped += piece.substr(pos, length);
      } else {
        const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
        escaped += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
        for (int digit = digits - 1; digit >= 0; --digit) escaped += kHex[c >> (4 * digit) & 0xF];
      }
      pos += length;
    }
    out.Append(escaped, caller);
  });
  out.Append(std::string_view(&quote, 1), value.caller);
  if (value.is_markup()) out.Append(")", value.caller);
}

void AppendSequenceRepr(TextBuilder& out, Heap& heap, const Sequence& sequence, int depth) {
  std::string_view open = "[";
  std::string_view close = "]";
  switch (sequence.form) {
    case Sequence::Form::kRange: out.Append(*sequence.label); return;
    case Sequence::Form::kList: break;
    case Sequence::Form::kTuple:
    case Sequence::Form::kGroup:
      open = "(";
      close = sequence.items.size() == 1 ? ",)" : ")";
      break;
    case Sequence::Form::kKeys:
      open = "dict_keys([";
      close = "])";
      break;
    case Sequence::Form::kValues:
      open = "dict_values([";
      close = "])";
      break;
    case Sequence::Form::kItems:
      open = "dict_items([";
      close = "])";
      break;
  }
  out.Append(open, sequence.caller);
  bool first = true;
  for (const Value& item : sequence.items) {
    if (!first) out.Append(", ", sequence.caller);
    first = false;
    AppendRepr(out, heap, item, depth + 1);
  }
  out.Append(close, sequence.caller);
}

void AppendEntriesRepr(TextBuilder& out, Heap& heap, std::span<const Mapping::Entry> entries, bool caller, int depth) {
  out.Append("{", caller);
  bool first = true;
  for (const Mapping::Entry& entry : entries) {
    if (!first) out.Append(", ", caller);
    first = false;
    AppendRepr(out, heap, entry.key, depth + 1);
    out.Append(": ", caller);
    AppendRepr(out, heap, entry.value, depth + 1);
  }
  out.Append("}", caller);
}

}  // namespace

void AppendRepr(TextBuilder& out, Heap& heap, const Value& value, int depth) {
  heap.Work(1);
  if (depth > kMaxValueDepth) Fail("values nested too deeply to print");
  switch (value.kind) {
    case Kind::kAbsent:
    case Kind::kUndefined: out.Append("Undefined", false); return;
    case Kind::kNone: out.Append("None", value.caller); return;
    case Kind::kBool: out.Append(value.boolean ? "True" : "False", value.caller); return;
    case Kind::kInt: out.Append(std::to_string(value.integer), value.caller); return;
    case Kind::kBigInt: out.Append(*value.str); return;
    case Kind::kFloat: out.Append(FloatRepr(value.real), value.caller); return;
    case Kind::kString: AppendStringRepr(out, value); return;
    case Kind::kSequence: AppendSequenceRepr(out, heap, *value.sequence, depth); return;
    case Kind::kMapping: AppendEntriesRepr(out, heap, value.mapping->entries, value.mapping->caller, depth); return;
    case Kind::kNamespace:
      out.Append("<Namespace ", false);
      AppendEntriesRepr(out, heap, value.space->slots.first(value.space->size), false, depth);
      out.Append(">", false);
      return;
    case Kind::kLoop:
      out.Append("<LoopContext " + std::to_string(value.loop->index0 + 1) + "/" +
                     std::to_string(value.loop->items.size()) + ">",
                 false);
      return;
    default: Fail("cannot print a " + std::string(TypeName(value)) + "; call it, or turn it into a list");
  }
}

void AppendText(TextBuilder& out, Heap& heap, const Value& value) {
  if (value.is_string()) {
    out.Append(*value.str);
  } else if (!value.is_undefined()) {
    AppendRepr(out, heap, value);
  }
}

const Str* ToText(Heap& heap, const Value& value) {
  if (value.is_string()) return value.str;
  TextBuilder out(heap);
  AppendText(out, heap, value);
  return out.Finish();
}

const Str* EscapeText(Heap& heap, const Value& value) { return EscapeStr(heap, *ToText(heap, value)); }

}  // namespace tidemill::jinja
