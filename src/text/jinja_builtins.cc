#include "text/jinja_builtins.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_interpreter.h"
#include "text/jinja_unicode.h"

namespace tidemill::jinja {
namespace {

using std::string_view;

template <typename Info>
const Info* FindNamed(std::span<const Info> table, string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [name](const Info& info) { return info.name == name; });
  return found == table.end() ? nullptr : &*found;
}

// --- tests ---

const Value& Subject(const CallArguments& arguments) { return arguments.positional[0]; }

template <bool (*predicate)(const Value&)>
bool Is(Interpreter&, const CallArguments& arguments) {
  Bind<1>("a test", arguments, {"value"}, 1);
  return predicate(Subject(arguments));
}

template <Operator op>
bool IsCompared(Interpreter& in, const CallArguments& arguments) {
  const auto [value, other] = Bind<2>("a comparing test", arguments, {"value", "other"}, 2);
  return CompareValues(in.heap(), op, value, other);
}

template <int64_t remainder>
bool IsParity(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("odd or even", arguments, {"value"}, 1);
  return Equals(in.heap(), Arithmetic(in.heap(), Operator::kMod, value, Value::Int(2)), Value::Int(remainder));
}

bool IsDivisibleBy(Interpreter& in, const CallArguments& arguments) {
  const auto [value, num] = Bind<2>("divisibleby", arguments, {"value", "num"}, 2);
  return Equals(in.heap(), Arithmetic(in.heap(), Operator::kMod, value, num), Value::Int(0));
}

bool IsSame(Interpreter& in, const CallArguments& arguments) {
  const auto [value, other] = Bind<2>("sameas", arguments, {"value", "other"}, 2);
  if (value.kind != other.kind) return false;
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kString: return Equals(in.heap(), value, other);
    default: return value.integer == other.integer;  // the same object
  }
}

template <bool upper>
bool IsTextCase(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("upper or lower", arguments, {"value"}, 1);
  const string_view text = ToText(in.heap(), value)->bytes;
  in.heap().Read(text.size());
  bool any = false;
  for (size_t pos = 0; pos < text.size(); pos += CharLength(text, pos)) {
    const char32_t c = DecodeChar(text, pos);
    if (!IsCased(c)) continue;
    if (upper ? !IsUpper(c) : !IsLower(c)) return false;
    any = true;
  }
  return any;
}

bool IsFilterName(Interpreter&, const CallArguments& arguments) {
  return Subject(arguments).is_string() && FindFilter(Subject(arguments).text()) != nullptr;
}
bool IsTestName(Interpreter&, const CallArguments& arguments) {
  return Subject(arguments).is_string() && FindTest(Subject(arguments).text()) != nullptr;
}

bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsUndefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsBoolean(const Value& v) { return v.kind == Kind::kBool; }
bool IsTrueBool(const Value& v) { return v.kind == Kind::kBool && v.boolean; }
bool IsFalseBool(const Value& v) { return v.kind == Kind::kBool && !v.boolean; }
bool IsInteger(const Value& v) { return v.kind == Kind::kInt || v.kind == Kind::kBigInt; }
bool IsFloat(const Value& v) { return v.kind == Kind::kFloat; }
bool IsNumber(const Value& v) { return v.is_number() || v.kind == Kind::kBigInt; }
bool IsString(const Value& v) { return v.is_string(); }
bool IsEscaped(const Value& v) { return v.is_markup(); }
bool IsMapping(const Value& v) { return v.kind == Kind::kMapping; }
bool IsCallable(const Value& v) {
  return v.kind == Kind::kFunction || v.kind == Kind::kMethod || v.kind == Kind::kMacro || v.kind == Kind::kLoop ||
         (v.kind == Kind::kCycler && v.cycler->is_joiner) || v.is_undefined();
}
bool IsSequence(const Value& v) {
  const bool is_view = v.kind == Kind::kSequence &&
                       (v.sequence->form == Sequence::Form::kKeys || v.sequence->form == Sequence::Form::kValues ||
                        v.sequence->form == Sequence::Form::kItems);
  return !is_view && (v.kind == Kind::kSequence || v.kind == Kind::kMapping || v.is_string() || v.is_undefined());
}

constexpr auto kTests = std::to_array<TestInfo>({
    {"defined", Is<IsDefined>},
    {"undefined", Is<IsUndefined>},
    {"none", Is<IsNone>},
    {"boolean", Is<IsBoolean>},
    {"true", Is<IsTrueBool>},
    {"false", Is<IsFalseBool>},
    {"integer", Is<IsInteger>},
    {"float", Is<IsFloat>},
    {"number", Is<IsNumber>},
    {"string", Is<IsString>},
    {"escaped", Is<IsEscaped>},
    {"mapping", Is<IsMapping>},
    {"sequence", Is<IsSequence>},
    {"iterable", Is<IsIterable>},
    {"callable", Is<IsCallable>},
    {"odd", IsParity<1>},
    {"even", IsParity<0>},
    {"divisibleby", IsDivisibleBy},
    {"sameas", IsSame},
    {"lower", IsTextCase<false>},
    {"upper", IsTextCase<true>},
    {"filter", IsFilterName},
    {"test", IsTestName},
    {"in", IsCompared<Operator::kIn>},
    {"eq", IsCompared<Operator::kEq>},
    {"==", IsCompared<Operator::kEq>},
    {"equalto", IsCompared<Operator::kEq>},
    {"ne", IsCompared<Operator::kNe>},
    {"!=", IsCompared<Operator::kNe>},
    {"lt", IsCompared<Operator::kLt>},
    {"<", IsCompared<Operator::kLt>},
    {"lessthan", IsCompared<Operator::kLt>},
    {"le", IsCompared<Operator::kLe>},
    {"<=", IsCompared<Operator::kLe>},
    {"gt", IsCompared<Operator::kGt>},
    {">", IsCompared<Operator::kGt>},
    {"greaterthan", IsCompared<Operator::kGt>},
    {"ge", IsCompared<Operator::kGe>},
    {">=", IsCompared<Operator::kGe>},
});

// --- methods of lists, dicts, loops and numbers ---

Value SequenceIndex(Interpreter& in, const CallArguments& arguments) {
  const auto [self, value] = Bind<2>("index", arguments, {"self", "value"}, 2);
  for (size_t i = 0; i < self.sequence->items.size(); ++i) {
    in.heap().Work(1);
    if (Equals(in.heap(), self.sequence->items[i], value)) return Value::Int(static_cast<int64_t>(i));
  }
  Fail("index: the value is not in the list");
}

Value SequenceCount(Interpreter& in, const CallArguments& arguments) {
  const auto [self, value] = Bind<2>("count", arguments, {"self", "value"}, 2);
  int64_t count = 0;
  for (const Value& item : self.sequence->items) {
    in.heap().Work(1);
    if (Equals(in.heap(), item, value)) ++count;
  }
  return Value::Int(count);
}

Value CopySelf(Interpreter&, const CallArguments& arguments) { return Bind<1>("copy", arguments, {"self"}, 1)[0]; }

Value DictGet(Interpreter& in, const CallArguments& arguments) {
  if (!arguments.keywords.empty()) Fail("get takes no keyword arguments");
  const auto [self, key, otherwise] = Bind<3>("get", arguments, {"self", "key", "default"}, 2);
  if (!IsHashable(in.heap(), key)) Fail("unhashable type: '" + std::string(TypeName(key)) + "'");
  if (const Value* found = FindKey(in.heap(), *self.mapping, key)) return *found;
  return otherwise.is_absent() ? Value::None() : otherwise;
}

template <Sequence::Form form>
Value DictView(Interpreter& in, const CallArguments& arguments) {
  const auto [self] = Bind<1>("a dict method", arguments, {"self"}, 1);
  Heap& heap = in.heap();
  const std::span<Value> view = heap.NewArray<Value>(self.mapping->entries.size());
  for (size_t i = 0; i < view.size(); ++i) {
    const Mapping::Entry& entry = self.mapping->entries[i];
    heap.Work(form == Sequence::Form::kItems ? 1 : 0);
    const std::array<Value, 2> pair = {entry.key, entry.value};
    view[i] = form == Sequence::Form::kKeys     ? entry.key
              : form == Sequence::Form::kValues ? entry.value
                                                : NewSequence(heap, Sequence::Form::kTuple, pair, self.caller);
  }
  return NewSequence(heap, form, view, self.caller);
}

Value LoopCycle(Interpreter&, const CallArguments& arguments) {
  const std::span<const Value> choices = arguments.positional.subspan(1);
  if (choices.empty()) Fail("loop.cycle needs at least one value");
  return choices[Subject(arguments).loop->index0 % choices.size()];
}

Value LoopChanged(Interpreter& in, const CallArguments& arguments) {
  LoopObject& loop = *Subject(arguments).loop;
  const std::span<const Value> now = arguments.positional.subspan(1);
  const bool same = loop.has_changed && now.size() == loop.last_changed.size() &&
                    std::equal(now.begin(), now.end(), loop.last_changed.begin(),
                               [&in](const Value& a, const Value& b) { return Equals(in.heap(), a, b); });
  loop.last_changed = in.heap().Copy(now);
  loop.has_changed = true;
  return Value::Bool(!same);
}

Value CyclerNext(Interpreter&, const CallArguments& arguments) {
  Cycler& cycler = *Bind<1>("next", arguments, {"self"}, 1)[0].cycler;
  const Value current = cycler.items[cycler.next];
  cycler.next = (cycler.next + 1) % cycler.items.size();
  return current;
}

Value CyclerReset(Interpreter&, const CallArguments& arguments) {
  Bind<1>("reset", arguments, {"self"}, 1)[0].cycler->next = 0;
  return Value::None();
}

Value FloatIsInteger(Interpreter&, const CallArguments& arguments) {
  const double value = Subject(arguments).AsFloat();
  return Value::Bool(std::isfinite(value) && std::trunc(value) == value);
}

// What changes a list or a dict is missing: the sandbox refuses it.
constexpr auto kListMethods =
    std::to_array<MethodInfo>({{"index", SequenceIndex}, {"count", SequenceCount}, {"copy", CopySelf}});
constexpr auto kTupleMethods = std::to_array<MethodInfo>({{"index", SequenceIndex}, {"count", SequenceCount}});
constexpr auto kDictMethods = std::to_array<MethodInfo>({{"get", DictGet},
                                                         {"items", DictView<Sequence::Form::kItems>},
                                                         {"keys", DictView<Sequence::Form::kKeys>},
                                                         {"values", DictView<Sequence::Form::kValues>},
                                                         {"copy", CopySelf}});
constexpr auto kLoopMethods = std::to_array<MethodInfo>({{"cycle", LoopCycle}, {"changed", LoopChanged}});
constexpr auto kCyclerMethods = std::to_array<MethodInfo>({{"next", CyclerNext}, {"reset", CyclerReset}});
constexpr auto kFloatMethods = std::to_array<MethodInfo>({{"is_integer", FloatIsInteger}});

// --- functions ---

Value Range(Interpreter& in, const CallArguments& arguments) {
  if (!arguments.keywords.empty()) Fail("range takes no keyword arguments");
  const auto [first, second, third] = Bind<3>("range", arguments, {"start", "stop", "step"}, 1);
  const int64_t start = second.is_absent() ? 0 : NeedInt("range", "start", first);
  const int64_t stop = NeedInt("range", "stop", second.is_absent() ? first : second);
  const int64_t step = third.is_absent() ? 1 : NeedInt("range", "step", third);
  if (step == 0) Fail("range: the step cannot be zero");
  const auto unsigned_of = [](int64_t x) { return static_cast<uint64_t>(x); };
  uint64_t count = 0;
  if (step > 0 && stop > start) count = (unsigned_of(stop) - unsigned_of(start) - 1) / unsigned_of(step) + 1;
  if (step < 0 && stop < start) count = (unsigned_of(start) - unsigned_of(stop) - 1) / (0 - unsigned_of(step)) + 1;
  if (count > static_cast<uint64_t>(kMaxRange)) Fail("range: more than " + std::to_string(kMaxRange) + " numbers");
  Heap& heap = in.heap();
  std::span<const Value> numbers;
  if ((step == 1 && start >= 0 && stop <= kMaxRange) || (step == -1 && stop >= -1 && start < kMaxRange)) {
    numbers = in.Numbers(start, count, step < 0);
  } else {
    const std::span<Value> own = heap.NewArray<Value>(count);
    heap.Work(count / 8);
    for (size_t i = 0; i < count; ++i)
      own[i] = Value::Int(static_cast<int64_t>(unsigned_of(start) + i * unsigned_of(step)));
    numbers = own;
  }
  std::string label = "range(" + std::to_string(start) + ", " + std::to_string(stop);
  if (step != 1) label += ", " + std::to_string(step);
  return Value::Of(heap.New(Sequence{numbers, Sequence::Form::kRange, false, 1, NewStr(heap, label + ")", false)}));
}

// Entries of dict(mapping or pairs, **keywords).
std::vector<Mapping::Entry> DictEntries(Interpreter& in, const CallArguments& arguments, string_view function) {
  Heap& heap = in.heap();
  if (arguments.positional.size() > 1) Fail(std::string(function) + " takes at most one positional argument");
  std::vector<Mapping::Entry> entries;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.kind == Kind::kMapping) {
      heap.Charge(source.mapping->entries.size_bytes());
      entries.assign(source.mapping->entries.begin(), source.mapping->entries.end());
    } else {
      for (const Value& pair : Iterate(heap, source)) {
        heap.Charge(sizeof(Mapping::Entry));
        const std::span<const Value> members = Iterate(heap, pair);
        if (members.size() != 2)
          Fail(std::string(function) + ": expected pairs, found " + std::to_string(members.size()) + " values");
        entries.push_back({members[0], members[1]});
      }
    }
  }
  for (const Keyword& keyword : arguments.keywords) entries.push_back({Value::Of(keyword.name), keyword.value});
  return entries;
}

Value Dict(Interpreter& in, const CallArguments& arguments) {
  const bool caller = !arguments.positional.empty() && arguments.positional[0].caller;
  return NewMapping(in.heap(), DictEntries(in, arguments, "dict"), caller);
}

Value NewNamespace(Interpreter& in, const CallArguments& arguments) {
  Namespace* space = in.heap().New(Namespace{});
  for (const Mapping::Entry& entry : DictEntries(in, arguments, "namespace")) {
    if (!entry.key.is_string())
      Fail("namespace: the name of an attribute is a string, not a '" + std::string(TypeName(entry.key)) + "'");
    if (entry.key.text().starts_with('_'))
      Fail("an attribute of a namespace cannot begin with an underscore: \"" + ForMessage(entry.key.text(), 60) + "\"");
    SetSlot(in.heap(), *space, entry.key.str, entry.value);
  }
  return Value::Of(space);
}

Value NewCycler(Interpreter& in, const CallArguments& arguments) {
  if (!arguments.keywords.empty()) Fail("cycler takes no keyword arguments");
  if (arguments.positional.empty()) Fail("cycler needs at least one value");
  return Value::Of(in.heap().New(Cycler{in.heap().Copy(arguments.positional), 0, false}));
}

Value NewJoiner(Interpreter& in, const CallArguments& arguments) {
  const auto [sep] = Bind<1>("joiner", arguments, {"sep"}, 0);
  const std::array<Value, 1> items = {sep.is_absent() ? Value::Of(BorrowStr(in.heap(), ", ", false)) : sep};
  return Value::Of(in.heap().New(Cycler{in.heap().Copy(std::span<const Value>(items)), 0, true}));
}

Value RaiseException(Interpreter& in, const CallArguments& arguments) {
  const auto [message] = Bind<1>("raise_exception", arguments, {"message"}, 1);
  throw TemplateError{
      .message = "the template refuses this conversation: " + ForMessage(ToText(in.heap(), message)->bytes, 300),
      .is_refusal = true};
}

constexpr auto kFunctions = std::to_array<FunctionInfo>({
    {"range", Range},
    {"dict", Dict},
    {"namespace", NewNamespace},
    {"cycler", NewCycler},
    {"joiner", NewJoiner},
    {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
});

}  // namespace

const FilterInfo* FindFilter(string_view name) {
  for (const std::span<const FilterInfo> table : {SequenceFilters(), TextFilters(), NumberFilters(), LayoutFilters()}) {
    if (const FilterInfo* found = FindNamed(table, name)) return found;
  }
  return nullptr;
}

const TestInfo* FindTest(string_view name) { return FindNamed(std::span<const TestInfo>(kTests), name); }
const FunctionInfo* FindFunction(string_view name) {
  return FindNamed(std::span<const FunctionInfo>(kFunctions), name);
}

const MethodInfo* FindMethod(const Value& self, string_view name) {
  switch (self.kind) {
    case Kind::kString: return FindNamed(StringMethods(), name);
    case Kind::kMapping: return FindNamed(std::span<const MethodInfo>(kDictMethods), name);
    case Kind::kLoop: return FindNamed(std::span<const MethodInfo>(kLoopMethods), name);
    case Kind::kFloat: return FindNamed(std::span<const MethodInfo>(kFloatMethods), name);
    case Kind::kCycler:
      return self.cycler->is_joiner ? nullptr : FindNamed(std::span<const MethodInfo>(kCyclerMethods), name);
    case Kind::kSequence:
      switch (self.sequence->form) {
        case Sequence::Form::kList: return FindNamed(std::span<const MethodInfo>(kListMethods), name);
        case Sequence::Form::kTuple:
        case Sequence::Form::kGroup:
        case Sequence::Form::kRange: return FindNamed(std::span<const MethodInfo>(kTupleMethods), name);
        default: return nullptr;
      }
    default: return nullptr;
  }
}

bool IsMethodName(string_view name) {
  for (const std::span<const MethodInfo> table :
       {StringMethods(), std::span<const MethodInfo>(kDictMethods), std::span<const MethodInfo>(kLoopMethods),
        std::span<const MethodInfo>(kFloatMethods), std::span<const MethodInfo>(kCyclerMethods),
        std::span<const MethodInfo>(kListMethods), std::span<const MethodInfo>(kTupleMethods)}) {
    if (FindNamed(table, name) != nullptr) return true;
  }
  return false;
}

void BindInto(string_view function, const CallArguments& arguments, std::span<const string_view> names, size_t required,
              std::span<Value> out) {
  const std::string name(function);
  if (arguments.positional.size() > names.size()) {
    Fail(name + " takes at most " + std::to_string(names.size() - 1) + " arguments, got " +
         std::to_string(arguments.positional.size() - 1));
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), out.begin());
  for (const Keyword& keyword : arguments.keywords) {
    const auto found = std::find(names.begin(), names.end(), keyword.name->bytes);
    if (found == names.end()) Fail(name + " has no parameter \"" + ForMessage(keyword.name->bytes, 60) + "\"");
    Value& value = out[static_cast<size_t>(found - names.begin())];
    if (!value.is_absent()) Fail(name + ": the parameter \"" + std::string(*found) + "\" is given twice");
    value = keyword.value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (out[i].is_absent()) Fail(name + ": the parameter \"" + std::string(names[i]) + "\" is missing");
  }
}

int64_t NeedInt(string_view function, string_view parameter, const Value& value) {
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  if (!value.is_integral())
    Fail(std::string(function) + ": " + std::string(parameter) + " must be an integer, not '" +
         std::string(TypeName(value)) + "'");
  return value.AsInt();
}

const Str& NeedString(string_view function, string_view parameter, const Value& value) {
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  if (!value.is_string())
    Fail(std::string(function) + ": " + std::string(parameter) + " must be a string, not '" +
         std::string(TypeName(value)) + "'");
  return *value.str;
}

}  // namespace tidemill::jinja
