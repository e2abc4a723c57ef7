#include <algorithm>
#include <limits>

#include "text/jinja_interpreter.h"

namespace tidemill::jinja {
namespace {

// The element of a string or a sequence, or nothing.
std::optional<Value> ElementAt(Heap& heap, const Value& value, int64_t index) {
  const auto position = [index](size_t size) -> std::optional<size_t> {
    const int64_t length = static_cast<int64_t>(size);
    if (index < -length || index >= length) return std::nullopt;
    return static_cast<size_t>(index < 0 ? index + length : index);
  };
  if (value.kind == Kind::kSequence) {
    const Sequence::Form form = value.sequence->form;
    if (form == Sequence::Form::kKeys || form == Sequence::Form::kValues || form == Sequence::Form::kItems)
      return std::nullopt;
    const std::optional<size_t> at = position(value.sequence->items.size());
    if (!at) return std::nullopt;
    return value.sequence->items[*at];
  }
  const std::string_view text = value.text();
  heap.Scan(text.size());
  const std::optional<size_t> at = position(CountChars(text));
  if (!at) return std::nullopt;
  const size_t begin = ByteOffset(text, *at);
  return Value::Of(SliceStr(heap, *value.str, begin, begin + CharLength(text, begin)));
}

int64_t SliceIndex(const Value& value, int64_t otherwise) {
  if (value.is_absent() || value.is_none()) return otherwise;
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  if (!value.is_integral()) Fail("slice indices must be integers, not '" + std::string(TypeName(value)) + "'");
  return value.AsInt();
}

}  // namespace

Value Interpreter::LoopAttribute(LoopObject& loop, std::string_view name) {
  const int64_t index0 = static_cast<int64_t>(loop.index0);
  const int64_t length = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::Int(index0 + 1);
  if (name == "index0") return Value::Int(index0);
  if (name == "first") return Value::Bool(index0 == 0);
  if (name == "last") return Value::Bool(index0 + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "revindex") return Value::Int(length - index0);
  if (name == "revindex0") return Value::Int(length - index0 - 1);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "previtem")
    return index0 == 0 ? UndefinedBecause(heap_, "there is no previous item") : loop.items[loop.index0 - 1];
  if (name == "nextitem")
    return index0 + 1 == length ? UndefinedBecause(heap_, "there is no next item") : loop.items[loop.index0 + 1];
  return Value();
}

Value Interpreter::Attribute(const Value& value, const Str& name) {
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  if (value.kind == Kind::kNamespace) {
    if (const Value* slot = FindSlot(heap_, *value.space, name.bytes)) return *slot;
  } else if (value.kind == Kind::kLoop) {
    const Value attribute = LoopAttribute(*value.loop, name.bytes);
    if (!attribute.is_absent()) return attribute;
  } else if (value.kind == Kind::kSequence && value.sequence->form == Sequence::Form::kGroup) {
    if (name.bytes == "grouper") return value.sequence->items[0];
    if (name.bytes == "list") return value.sequence->items[1];
  }
  if (value.kind == Kind::kCycler && name.bytes == "current" && !value.cycler->is_joiner)
    return value.cycler->items[value.cycler->next];
  // Python's methods come before a dict's keys: message.items is the method.
  if (const MethodInfo* method = FindMethod(value, name.bytes)) return Value::Of(heap_.New(BoundMethod{value, method}));
  if (value.kind == Kind::kMapping) {
    heap_.Work(value.mapping->index.empty() ? 1 : 0);
    if (const Value* found = FindKey(heap_, *value.mapping, name.bytes)) return *found;
  }
  return Undefined(name.bytes, TypeName(value));
}

Value Interpreter::Undefined(std::string_view name, std::string_view owner_type) {
  const UndefinedInfo*& known =
      undefined_[(reinterpret_cast<uintptr_t>(name.data()) / 8 + name.size()) % undefined_.size()];
  if (known == nullptr || known->name.data() != name.data() || known->name.size() != name.size() ||
      known->owner_type != owner_type)
    known = heap_.New(UndefinedInfo{name, owner_type, {}});
  return Value::Of(known);
}

std::span<const Value> Interpreter::Numbers(int64_t start, size_t count, bool descending) {
  if (count == 0) return {};
  const size_t largest = static_cast<size_t>(descending ? start : start + static_cast<int64_t>(count) - 1);
  std::span<Value>& known = descending ? descending_ : ascending_;
  if (largest >= known.size()) {
    known = heap_.NewArray<Value>(std::max<size_t>({64, 2 * known.size(), largest + 1}));
    heap_.Work(known.size() / 8);
    for (size_t i = 0; i < known.size(); ++i)
      known[i] = Value::Int(static_cast<int64_t>(descending ? known.size() - 1 - i : i));
  }
  const size_t first = static_cast<size_t>(start);
  return known.subspan(descending ? known.size() - 1 - first : first, count);
}

Value Interpreter::Item(const Value& value, const Value& key) {
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  if (value.kind == Kind::kMapping && key.is_string()) {
    if (const Value* found = FindKey(heap_, *value.mapping, key.text())) return *found;
  } else if (value.kind == Kind::kMapping && IsHashable(heap_, key)) {
    if (const Value* found = FindKey(heap_, *value.mapping, key)) return *found;
  } else if ((value.kind == Kind::kSequence || value.is_string()) && key.is_integral()) {
    if (const std::optional<Value> element = ElementAt(heap_, value, key.AsInt())) return *element;
  }
  if (!key.is_string())
    return NewUndefined(heap_,
                        ToText(heap_, key.is_number() ? key : Value::Of(BorrowStr(heap_, TypeName(key), false)))->bytes,
                        TypeName(value));
  if (value.kind == Kind::kMapping) {  // keys first here, then methods
    if (const MethodInfo* method = FindMethod(value, key.text()))
      return Value::Of(heap_.New(BoundMethod{value, method}));
    return Undefined(key.text(), "dict");
  }
  return Attribute(value, *key.str);
}

Value Slice(Heap& heap, const Value& value, const Value& start_value, const Value& stop_value,
            const Value& step_value) {
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  const bool is_sequence = value.kind == Kind::kSequence && value.sequence->form != Sequence::Form::kKeys &&
                           value.sequence->form != Sequence::Form::kValues &&
                           value.sequence->form != Sequence::Form::kItems;
  if (!is_sequence && !value.is_string()) Fail("a '" + std::string(TypeName(value)) + "' cannot be sliced");
  const int64_t length = static_cast<int64_t>(Length(heap, value));
  // Beyond the length one step is like another; the bound keeps the sums below from overflowing.
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() / 4;
  const int64_t step = std::clamp(SliceIndex(step_value, 1), -kLargest, kLargest);
  if (step == 0) Fail("a slice's step cannot be zero");
  const int64_t lowest = step > 0 ? 0 : -1;
  const int64_t highest = step > 0 ? length : length - 1;
  const auto bound = [&](const Value& given, int64_t otherwise) {
    const int64_t index = SliceIndex(given, otherwise);
    if (given.is_absent() || given.is_none()) return otherwise;
    return std::clamp(index < 0 ? std::max(index, -length - 1) + length : index, lowest, highest);
  };
  const int64_t start = bound(start_value, step > 0 ? lowest : highest);
  const int64_t stop = bound(stop_value, step > 0 ? highest : lowest);
  const int64_t distance = step > 0 ? stop - start : start - stop;
  const int64_t stride = step > 0 ? step : -step;
  const size_t count = distance > 0 ? static_cast<size_t>((distance - 1) / stride + 1) : 0;

  if (value.is_string()) {
    const std::string_view text = value.text();
    heap.Scan(text.size());
    if (count == 0) return Value::Of(BorrowStr(heap, {}, false));
    if (step == 1) {
      const size_t begin = ByteOffset(text, static_cast<size_t>(start));
      const size_t size = ByteOffset(text.substr(begin), count);
      return Value::Of(SliceStr(heap, *value.str, begin, begin + size));
    }
    std::vector<uint32_t> offsets;  // of every character, and the end
    heap.Work(text.size() / 8);
    offsets.reserve(static_cast<size_t>(length) + 1);
    for (size_t pos = 0; pos < text.size(); pos += CharLength(text, pos)) offsets.push_back(static_cast<uint32_t>(pos));
    offsets.push_back(static_cast<uint32_t>(text.size()));
    TextBuilder slice(heap);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(start + static_cast<int64_t>(i) * step);
      slice.Append(*value.str, offsets[at], offsets[at + 1]);
    }
    return Value::Of(slice.Finish(value.is_markup()));
  }
  if (step == 1 && count != 0) {  // shares the items
    Sequence slice = *value.sequence;
    slice.items = slice.items.subspan(static_cast<size_t>(start), count);
    if (slice.form == Sequence::Form::kRange) slice.form = Sequence::Form::kList;
    if (slice.form == Sequence::Form::kGroup) slice.form = Sequence::Form::kTuple;
    return Value::Of(heap.New(slice));
  }
  const std::span<Value> items = heap.NewArray<Value>(count);
  heap.Work(count / 8);
  for (size_t i = 0; i < count; ++i)
    items[i] = value.sequence->items[static_cast<size_t>(start + static_cast<int64_t>(i) * step)];
  const Sequence::Form form =
      value.sequence->form == Sequence::Form::kRange ? Sequence::Form::kList : value.sequence->form;
  return NewSequence(heap, form == Sequence::Form::kGroup ? Sequence::Form::kTuple : form, items, value.caller);
}

}  // namespace tidemill::jinja
