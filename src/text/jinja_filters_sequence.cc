// Filters on lists, dicts and iterables.
#include <algorithm>
#include <numeric>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_unicode.h"

namespace tidemill::jinja {
namespace {

using std::string_view;

bool Given(const Value& value) { return !value.is_absent() && !value.is_none(); }

Value NewList(Heap& heap, std::span<const Value> items, bool caller = false) {
  return NewSequence(heap, Sequence::Form::kList, items, caller);
}

// What Jinja returns as a generator.
Value NewGenerator(Heap& heap, const std::vector<Value>& items) {
  return Value::Of(heap.New(Generator{heap.Copy(items), 0}));
}

// "a.b.0" as the path of items that attribute= and selectattr follow.
class AttributePath {
 public:
  AttributePath(Interpreter& in, const Value& attribute) : in_(in) {
    if (!attribute.is_string()) {
      if (Given(attribute)) parts_.push_back(attribute);
      return;
    }
    string_view rest = attribute.text();
    while (true) {
      const size_t dot = rest.find('.');
      const string_view part = rest.substr(0, dot);
      const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == string_view::npos;
      in_.heap().Charge(sizeof(Value));
      parts_.push_back(is_number ? Value::Int(ParseInt(part, 10).value_or(0))
                                 : Value::Of(NewStr(in_.heap(), part, false)));
      if (dot == string_view::npos) break;
      rest = rest.substr(dot + 1);
    }
  }

  Value Of(Value item, const Value& otherwise = Value()) const {
    for (const Value& part : parts_) {
      in_.heap().Work(1);
      item = in_.Item(item, part);
      if (item.is_undefined() && Given(otherwise)) item = otherwise;
    }
    return item;
  }

 private:
  Interpreter& in_;
  std::vector<Value> parts_;
};

Value LowerText(Heap& heap, const Value& value) {
  if (!value.is_string()) return value;
  heap.Scan(4 * value.text().size());
  TextBuilder out(heap);
  AppendChangedCase(out, *value.str, CaseChange::kLower);
  return Value::Of(out.Finish());
}

// Positions of `keys` in ascending order of key, equal ones as they stand; the other way round if `reverse`, equal ones
// still as they stand. Merge sort of our own: keys are compared by code that can fail, and NaN orders nothing.
std::vector<size_t> SortedOrder(Heap& heap, std::span<const Value> keys, bool reverse) {
  heap.Charge(keys.size() * 2 * sizeof(size_t));
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto before = [&](size_t a, size_t b) {
    heap.Work(1);
    bool unordered = false;
    const int compared = Compare(heap, keys[a], keys[b], &unordered);
    return !unordered && (reverse ? compared > 0 : compared < 0);
  };
  std::vector<size_t> merged(keys.size());
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(begin + 2 * width, order.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        const bool take_right = left == middle || (right < end && before(order[right], order[left]));
        merged[out] = order[take_right ? right++ : left++];
      }
    }
    order.swap(merged);
  }
  return order;
}

Value LengthFilter(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("length", arguments, {"value"}, 1);
  return Value::Int(static_cast<int64_t>(Length(in.heap(), value)));
}

Value First(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("first", arguments, {"seq"}, 1);
  if (value.is_string() && !value.text().empty()) {
    const Str plain{value.text(), value.str->caller};  // a character of markup is none
    return Value::Of(SliceStr(in.heap(), plain, 0, CharLength(value.text(), 0)));
  }
  if (value.kind == Kind::kGenerator && value.generator->next < value.generator->items.size())
    return value.generator->items[value.generator->next++];
  const std::span<const Value> items = Iterate(in.heap(), value);
  return items.empty() ? UndefinedBecause(in.heap(), "there is no first item: the sequence is empty") : items.front();
}

Value Last(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("last", arguments, {"seq"}, 1);
  if (value.kind == Kind::kGenerator) Fail("last: a generator cannot be reversed: use |list before");
  if (value.is_string() && !value.text().empty()) {
    const size_t size = value.text().size();
    return Value::Of(SliceStr(in.heap(), *value.str, PreviousChar(value.text(), size), size));
  }
  const std::span<const Value> items = Iterate(in.heap(), value);
  return items.empty() ? UndefinedBecause(in.heap(), "there is no last item: the sequence is empty") : items.back();
}

Value JoinFilter(Interpreter& in, const CallArguments& arguments) {
  const auto [value, d, attribute] = Bind<3>("join", arguments, {"value", "d", "attribute"}, 1);
  Heap& heap = in.heap();
  const Str* separator = d.is_absent() ? BorrowStr(heap, {}, false) : ToText(heap, d);
  const AttributePath path(in, attribute);
  TextBuilder out(heap);
  bool first = true;
  for (const Value& item : Iterate(heap, value)) {
    heap.Work(1);
    if (!first) out.Append(*separator);
    first = false;
    AppendText(out, heap, path.Of(item));
  }
  return Value::Of(out.Finish());
}

Value ListFilter(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("list", arguments, {"value"}, 1);
  return NewList(in.heap(), Iterate(in.heap(), value), value.caller);
}

Value Reverse(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("reverse", arguments, {"value"}, 1);
  Heap& heap = in.heap();
  if (value.is_string()) return Slice(heap, value, Value(), Value(), Value::Int(-1));
  const std::span<const Value> items = Iterate(heap, value);
  heap.Work(items.size() / 8);
  const std::vector<Value> reversed(items.rbegin(), items.rend());
  return value.kind == Kind::kGenerator ? NewList(heap, reversed) : NewGenerator(heap, reversed);
}

// What map and select go through: nothing for anything that is false, so that none and 0 are as good as [].
std::span<const Value> IterateIfTrue(Heap& heap, const Value& value) {
  return IsTrue(value) ? Iterate(heap, value) : std::span<const Value>();
}

Value MapFilter(Interpreter& in, const CallArguments& arguments) {
  Heap& heap = in.heap();
  const Value& source = arguments.positional[0];
  std::vector<Value> mapped;
  const std::span<const Value> rest = arguments.positional.subspan(1);
  if (rest.empty()) {
    const auto [value, attribute, otherwise] = Bind<3>("map", arguments, {"value", "attribute", "default"}, 1);
    if (attribute.is_absent()) Fail("map needs the name of a filter or attribute=");
    const AttributePath path(in, attribute);
    for (const Value& item : IterateIfTrue(heap, source)) {
      heap.Charge(sizeof(Value));
      mapped.push_back(path.Of(item, otherwise));
    }
    return NewGenerator(heap, mapped);
  }
  const string_view name = NeedString("map", "name", rest[0]).bytes;
  const std::span<Value> call = heap.NewArray<Value>(rest.size());
  std::copy(rest.begin() + 1, rest.end(), call.begin() + 1);
  for (const Value& item : IterateIfTrue(heap, source)) {
    const std::span<Value> own = heap.NewArray<Value>(call.size());
    std::copy(call.begin(), call.end(), own.begin());
    own[0] = item;
    mapped.push_back(in.CallFilter(name, {own, arguments.keywords}));
  }
  return NewGenerator(heap, mapped);
}

// select, reject and, with an attribute before the test, selectattr and rejectattr.
template <bool wanted, bool by_attribute>
Value Select(Interpreter& in, const CallArguments& arguments) {
  Heap& heap = in.heap();
  std::span<const Value> rest = arguments.positional.subspan(1);
  if (by_attribute && rest.empty()) Fail("selectattr and rejectattr need the name of an attribute");
  const AttributePath path(in, by_attribute ? rest[0] : Value());
  if (by_attribute) rest = rest.subspan(1);
  std::vector<Value> kept;
  for (const Value& item : IterateIfTrue(heap, arguments.positional[0])) {
    heap.Work(1);
    const Value value = path.Of(item);
    bool passes = false;
    if (rest.empty()) {
      passes = IsTrue(value);
    } else {
      const std::span<Value> call = heap.NewArray<Value>(rest.size());
      call[0] = value;
      std::copy(rest.begin() + 1, rest.end(), call.begin() + 1);
      passes = in.CallTest(NeedString("select", "test", rest[0]).bytes, {call, arguments.keywords});
    }
    if (passes == wanted) {
      heap.Charge(sizeof(Value));
      kept.push_back(item);
    }
  }
  return NewGenerator(heap, kept);
}

Value Sort(Interpreter& in, const CallArguments& arguments) {
  const auto [value, reverse, case_sensitive, attribute] =
      Bind<4>("sort", arguments, {"value", "reverse", "case_sensitive", "attribute"}, 1);
  Heap& heap = in.heap();
  const std::span<const Value> items = Iterate(heap, value);
  std::vector<AttributePath> paths;  // attribute="a,b" sorts by a, then by b
  if (attribute.is_string()) {
    for (string_view rest = attribute.text();;) {
      const size_t comma = rest.find(',');
      paths.emplace_back(in, Value::Of(NewStr(heap, rest.substr(0, comma), false)));
      if (comma == string_view::npos) break;
      rest = rest.substr(comma + 1);
    }
  } else {
    paths.emplace_back(in, attribute);
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths)
      key.push_back(IsTrue(case_sensitive) ? path.Of(item) : LowerText(heap, path.Of(item)));
    keys.push_back(NewList(heap, key));
  }
  std::vector<Value> sorted;
  for (const size_t at : SortedOrder(heap, keys, IsTrue(reverse))) sorted.push_back(items[at]);
  return NewList(heap, sorted, value.caller);
}

Value Unique(Interpreter& in, const CallArguments& arguments) {
  const auto [value, case_sensitive, attribute] =
      Bind<3>("unique", arguments, {"value", "case_sensitive", "attribute"}, 1);
  Heap& heap = in.heap();
  const AttributePath path(in, attribute);
  const std::span<const Value> items = Iterate(heap, value);
  std::vector<Mapping::Entry>
      entries;  // a dict keeps the first of equal keys in its place, the last value: so in reverse
  for (size_t i = items.size(); i-- > 0;) {
    heap.Charge(sizeof(Mapping::Entry));
    const Value key = path.Of(items[i]);
    entries.push_back({IsTrue(case_sensitive) ? key : LowerText(heap, key), Value::Int(static_cast<int64_t>(i))});
  }
  const Value firsts = NewMapping(heap, entries);
  std::vector<size_t> positions;
  for (const Mapping::Entry& entry : firsts.mapping->entries)
    positions.push_back(static_cast<size_t>(entry.value.integer));
  std::sort(positions.begin(), positions.end());
  std::vector<Value> kept;
  for (const size_t at : positions) kept.push_back(items[at]);
  return NewGenerator(heap, kept);
}

template <bool largest>
Value Extreme(Interpreter& in, const CallArguments& arguments) {
  const auto [value, case_sensitive, attribute] =
      Bind<3>(largest ? "max" : "min", arguments, {"value", "case_sensitive", "attribute"}, 1);
  Heap& heap = in.heap();
  const AttributePath path(in, attribute);
  const std::span<const Value> items = Iterate(heap, value);
  if (items.empty()) return UndefinedBecause(heap, "the sequence is empty: it has neither minimum nor maximum");
  const auto key_of = [&heap, &path, as_it_is = IsTrue(case_sensitive)](const Value& item) {
    return as_it_is ? path.Of(item) : LowerText(heap, path.Of(item));
  };
  Value best = items[0];
  Value best_key = key_of(best);
  for (const Value& item : items.subspan(1)) {
    heap.Work(1);
    const Value key = key_of(item);
    bool unordered = false;
    const int order = Compare(heap, key, best_key, &unordered);
    if (unordered || (largest ? order <= 0 : order >= 0)) continue;
    best = item;
    best_key = key;
  }
  return best;
}

Value Sum(Interpreter& in, const CallArguments& arguments) {
  const auto [value, attribute, start] = Bind<3>("sum", arguments, {"iterable", "attribute", "start"}, 1);
  Heap& heap = in.heap();
  const AttributePath path(in, attribute);
  Value sum = start.is_absent() ? Value::Int(0) : start;
  if (sum.is_string()) Fail("sum: cannot add strings: use |join");
  for (const Value& item : Iterate(heap, value)) {
    heap.Work(1);
    sum = Arithmetic(heap, Operator::kAdd, sum, path.Of(item));
  }
  return sum;
}

Value PairOf(Heap& heap, const Mapping::Entry& entry, bool caller) {
  const std::array<Value, 2> pair = {entry.key, entry.value};
  return NewSequence(heap, Sequence::Form::kTuple, pair, caller);
}

Value Items(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("items", arguments, {"value"}, 1);
  std::vector<Value> pairs;
  if (value.is_undefined()) return NewGenerator(in.heap(), pairs);
  if (value.kind != Kind::kMapping) Fail("items: not a dict but a '" + std::string(TypeName(value)) + "'");
  for (const Mapping::Entry& entry : value.mapping->entries) pairs.push_back(PairOf(in.heap(), entry, value.caller));
  return NewGenerator(in.heap(), pairs);
}

Value DictSort(Interpreter& in, const CallArguments& arguments) {
  const auto [value, case_sensitive, by, reverse] =
      Bind<4>("dictsort", arguments, {"value", "case_sensitive", "by", "reverse"}, 1);
  Heap& heap = in.heap();
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  if (value.kind != Kind::kMapping) Fail("dictsort: not a dict but a '" + std::string(TypeName(value)) + "'");
  const string_view field = by.is_absent() ? "key" : NeedString("dictsort", "by", by).bytes;
  if (field != "key" && field != "value") Fail("dictsort: sorts by \"key\" or by \"value\"");
  std::vector<Value> keys;
  for (const Mapping::Entry& entry : value.mapping->entries) {
    const Value& key = field == "key" ? entry.key : entry.value;
    keys.push_back(IsTrue(case_sensitive) ? key : LowerText(heap, key));
  }
  std::vector<Value> pairs;
  for (const size_t at : SortedOrder(heap, keys, IsTrue(reverse)))
    pairs.push_back(PairOf(heap, value.mapping->entries[at], value.caller));
  return NewList(heap, pairs, value.caller);
}

Value GroupBy(Interpreter& in, const CallArguments& arguments) {
  const auto [value, attribute, otherwise, case_sensitive] =
      Bind<4>("groupby", arguments, {"value", "attribute", "default", "case_sensitive"}, 2);
  Heap& heap = in.heap();
  const AttributePath path(in, attribute);
  const std::span<const Value> items = Iterate(heap, value);
  std::vector<Value> keys;
  for (const Value& item : items) {
    const Value key = path.Of(item, otherwise);
    keys.push_back(IsTrue(case_sensitive) ? key : LowerText(heap, key));
  }
  const std::vector<size_t> order = SortedOrder(heap, keys, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < order.size() && Equals(heap, keys[order[begin]], keys[order[end]]); ++end)
      members.push_back(items[order[end]]);
    const std::array<Value, 2> group = {path.Of(members.front(), otherwise), NewList(heap, members, value.caller)};
    groups.push_back(NewSequence(heap, Sequence::Form::kGroup, group, value.caller));
    begin = end;
  }
  return NewList(heap, groups, value.caller);
}

Value Batch(Interpreter& in, const CallArguments& arguments) {
  const auto [value, linecount, fill] = Bind<3>("batch", arguments, {"value", "linecount", "fill_with"}, 2);
  Heap& heap = in.heap();
  const int64_t size = NeedInt("batch", "linecount", linecount);
  if (size < 1) Fail("batch: the line count is not positive");
  const std::span<const Value> items = Iterate(heap, value);
  std::vector<Value> batches;
  for (size_t begin = 0; begin < items.size(); begin += static_cast<size_t>(size)) {
    const size_t count = std::min(items.size() - begin, static_cast<size_t>(size));
    std::span<const Value> batch = items.subspan(begin, count);
    if (Given(fill) && count < static_cast<size_t>(size)) {
      const std::span<Value> filled = heap.NewArray<Value>(static_cast<size_t>(size));
      std::copy(batch.begin(), batch.end(), filled.begin());
      std::fill(filled.begin() + static_cast<std::ptrdiff_t>(count), filled.end(), fill);
      batch = filled;
    }
    heap.Work(1 + batch.size() / 8);
    batches.push_back(NewList(heap, batch, value.caller));
    if (static_cast<uint64_t>(size) >= items.size()) break;
  }
  return NewGenerator(heap, batches);
}

// So many lists as even as can be, the longer ones first; `fill_with` makes the shorter ones as long.
Value SliceFilter(Interpreter& in, const CallArguments& arguments) {
  const auto [value, slices, fill] = Bind<3>("slice", arguments, {"value", "slices", "fill_with"}, 2);
  Heap& heap = in.heap();
  const int64_t count = NeedInt("slice", "slices", slices);
  if (count < 1) Fail("slice: the number of slices is not positive");
  const std::span<const Value> items = Iterate(heap, value);
  const size_t num_slices = static_cast<size_t>(count);
  const size_t longer = items.size() % num_slices;
  std::vector<Value> lists;
  size_t begin = 0;
  for (size_t i = 0; i < num_slices; ++i) {
    heap.Work(1);
    heap.Charge(sizeof(Value));
    const size_t size = items.size() / num_slices + (i < longer ? 1 : 0);
    std::vector<Value> list(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(begin + size));
    if (Given(fill) && i >= longer && longer != 0) list.push_back(fill);
    lists.push_back(NewList(heap, list, value.caller));
    begin += size;
  }
  return NewGenerator(heap, lists);
}

Value Default(Interpreter&, const CallArguments& arguments) {
  const auto [value, otherwise, boolean] = Bind<3>("default", arguments, {"value", "default_value", "boolean"}, 1);
  if (!value.is_undefined() && !(IsTrue(boolean) && !IsTrue(value))) return value;
  static constexpr Str kEmpty{};
  return otherwise.is_absent() ? Value::Of(&kEmpty) : otherwise;
}

Value Attr(Interpreter& in, const CallArguments& arguments) {
  const auto [value, name] = Bind<2>("attr", arguments, {"obj", "name"}, 2);
  const Str& attribute = NeedString("attr", "name", name);
  if (value.kind != Kind::kMapping) return in.Attribute(value, attribute);
  if (const MethodInfo* method = FindMethod(value, attribute.bytes))
    return Value::Of(in.heap().New(BoundMethod{value, method}));
  return NewUndefined(in.heap(), attribute.bytes, "dict");  // a dict's keys are no attributes
}

constexpr auto kFilters = std::to_array<FilterInfo>({
    {"length", LengthFilter},
    {"count", LengthFilter},
    {"first", First},
    {"last", Last},
    {"join", JoinFilter},
    {"list", ListFilter},
    {"reverse", Reverse},
    {"map", MapFilter},
    {"select", Select<true, false>},
    {"reject", Select<false, false>},
    {"selectattr", Select<true, true>},
    {"rejectattr", Select<false, true>},
    {"sort", Sort},
    {"unique", Unique},
    {"min", Extreme<false>},
    {"max", Extreme<true>},
    {"sum", Sum},
    {"items", Items},
    {"dictsort", DictSort},
    {"groupby", GroupBy},
    {"batch", Batch},
    {"slice", SliceFilter},
    {"default", Default},
    {"d", Default},
    {"attr", Attr},
    {"tojson", ToJsonFilter},
});

}  // namespace

std::span<const FilterInfo> SequenceFilters() { return kFilters; }

}  // namespace tidemill::jinja
