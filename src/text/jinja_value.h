// Values of the template language: Python's none, bool, int (64 bits here), float, str, list, tuple, dict and what Jinja
// adds. A Value is 16 bytes and points into a Heap; everything but namespaces, generators and loops is immutable.
#ifndef TIDEMILL_TEXT_JINJA_VALUE_H_
#define TIDEMILL_TEXT_JINJA_VALUE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_text.h"

namespace tidemill::jinja {

struct Value;
struct Sequence;
struct Mapping;
struct Namespace;
struct Generator;
struct Cycler;
struct UndefinedInfo;
struct MacroObject;   // jinja_interpreter.h
struct LoopObject;    // jinja_interpreter.h
struct BoundMethod;   // jinja_builtins.h
struct FunctionInfo;  // jinja_builtins.h

enum class Kind : uint8_t {
  kAbsent,  // an argument that was not given; never seen by a template
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // of JSON, beyond 64 bits: its digits, which print and compare for equality
  kFloat,
  kString,
  kSequence,
  kMapping,
  kGenerator,
  kCycler,
  kNamespace,
  kMacro,
  kLoop,
  kMethod,
  kFunction,
};

struct Value {
  Kind kind = Kind::kAbsent;
  // The caller's data: what it prints beyond its own text (digits, brackets, quotes) is the caller's.
  bool caller = false;
  union {
    bool boolean;
    int64_t integer;
    double real;
    const Str* str;
    const Sequence* sequence;
    const Mapping* mapping;
    Generator* generator;
    Cycler* cycler;
    Namespace* space;
    const MacroObject* macro;
    LoopObject* loop;
    const BoundMethod* method;
    const FunctionInfo* function;
    const UndefinedInfo* undefined;
  };

  Value() : integer(0) {}
  static Value None() { return Make(Kind::kNone); }
  static Value Bool(bool b) {
    Value v = Make(Kind::kBool);
    v.boolean = b;
    return v;
  }
  static Value Int(int64_t i) {
    Value v = Make(Kind::kInt);
    v.integer = i;
    return v;
  }
  static Value Float(double d) {
    Value v = Make(Kind::kFloat);
    v.real = d;
    return v;
  }
  static Value Of(const Str* s) {
    Value v = Make(Kind::kString);
    v.str = s;
    v.caller = !s->caller.empty();
    return v;
  }
  static Value BigInt(const Str* digits) {
    Value v = Make(Kind::kBigInt);
    v.str = digits;
    v.caller = true;
    return v;
  }
  static Value Of(const Sequence* s);
  static Value Of(const Mapping* m);
  static Value Of(Generator* g) {
    Value v = Make(Kind::kGenerator);
    v.generator = g;
    return v;
  }
  static Value Of(Cycler* c) {
    Value v = Make(Kind::kCycler);
    v.cycler = c;
    return v;
  }
  static Value Of(Namespace* n) {
    Value v = Make(Kind::kNamespace);
    v.space = n;
    return v;
  }
  static Value Of(const MacroObject* m) {
    Value v = Make(Kind::kMacro);
    v.macro = m;
    return v;
  }
  static Value Of(LoopObject* l) {
    Value v = Make(Kind::kLoop);
    v.loop = l;
    return v;
  }
  static Value Of(const BoundMethod* m) {
    Value v = Make(Kind::kMethod);
    v.method = m;
    return v;
  }
  static Value Of(const FunctionInfo* f) {
    Value v = Make(Kind::kFunction);
    v.function = f;
    return v;
  }
  static Value Of(const UndefinedInfo* u) {
    Value v = Make(Kind::kUndefined);
    v.undefined = u;
    return v;
  }

  Value FromCaller(bool from_caller) const {
    Value v = *this;
    v.caller = v.caller || from_caller;
    return v;
  }

  bool is_absent() const { return kind == Kind::kAbsent; }
  bool is_undefined() const { return kind == Kind::kUndefined; }
  bool is_none() const { return kind == Kind::kNone; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_markup() const { return kind == Kind::kString && str->markup; }
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_number() const { return is_integral() || kind == Kind::kFloat; }
  std::string_view text() const { return str->bytes; }                                           // of a kString
  int64_t AsInt() const { return kind == Kind::kBool ? boolean : integer; }                      // of an is_integral()
  double AsFloat() const { return kind == Kind::kFloat ? real : static_cast<double>(AsInt()); }  // of an is_number()

 private:
  static Value Make(Kind kind) {
    Value v;
    v.kind = kind;
    return v;
  }
};
static_assert(sizeof(Value) == 16);

struct Sequence {
  enum class Form : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGroup };
  std::span<const Value> items;
  Form form = Form::kList;
  bool caller = false;
  int depth = 1;               // containers within containers, counting this one
  const Str* label = nullptr;  // kRange: how it prints
};

struct Mapping {
  struct Entry {
    Value key;
    Value value;
  };
  std::span<const Entry> entries;   // in order of insertion, keys differ
  std::span<const uint32_t> index;  // power of two slots, 1 + entry or 0; empty when a linear search is as good
  bool caller = false;
  int depth = 1;
};

struct Namespace {
  std::span<Mapping::Entry> slots;
  size_t size = 0;
};

// What map, select and their like return: can be gone through once.
struct Generator {
  std::span<const Value> items;
  size_t next = 0;
};

// cycler('a', 'b'), whose next() takes turns; and joiner(', '), whose call is empty the first time.
struct Cycler {
  std::span<const Value> items;
  size_t next = 0;
  bool is_joiner = false;
};

struct UndefinedInfo {
  std::string_view name;        // of the variable or attribute
  std::string_view owner_type;  // empty for a variable
  std::string_view hint;        // instead of both
};

inline Value Value::Of(const Sequence* s) {
  Value v = Make(Kind::kSequence);
  v.sequence = s;
  v.caller = s->caller;
  return v;
}
inline Value Value::Of(const Mapping* m) {
  Value v = Make(Kind::kMapping);
  v.mapping = m;
  v.caller = m->caller;
  return v;
}

inline constexpr int kMaxValueDepth = 80;  // containers within containers; JSON input brings at most 64

// Copies the items. Fails past kMaxValueDepth.
Value NewSequence(Heap& heap, Sequence::Form form, std::span<const Value> items, bool caller = false);
// A later entry with an equal key replaces the earlier one's value. Fails for keys that cannot be hashed.
Value NewMapping(Heap& heap, std::span<const Mapping::Entry> entries, bool caller = false);
Value NewUndefined(Heap& heap, std::string_view name, std::string_view owner_type = {});
Value UndefinedBecause(Heap& heap, std::string_view hint);
std::string UndefinedMessage(const Value& value);

const Value* FindKey(Heap& heap, const Mapping& mapping, const Value& key);
const Value* FindKey(Heap& heap, const Mapping& mapping, std::string_view key);
Value* FindSlot(Heap& heap, Namespace& space, std::string_view name);
void SetSlot(Heap& heap, Namespace& space, const Str* name, const Value& value);

// Python's name of the type: "str", "dict", "Undefined".
std::string_view TypeName(const Value& value);
bool IsTrue(const Value& value);
bool IsHashable(Heap& heap, const Value& value);
// a == b as Python has it: 1 == 1.0 == true.
bool Equals(Heap& heap, const Value& a, const Value& b, int depth = 0);
// -1, 0, 1; fails for types that have no order. NaN compares as neither: then *unordered is set.
int Compare(Heap& heap, const Value& a, const Value& b, bool* unordered, int depth = 0);

// len(value); fails for what has none. `what` begins the message.
size_t Length(Heap& heap, const Value& value);
// What a for loop sees: elements, keys of a dict, characters of a string. Uses up a generator. Fails for what cannot be
// iterated.
std::span<const Value> Iterate(Heap& heap, const Value& value);
bool IsIterable(const Value& value);

// str(value) and repr(value).
const Str* ToText(Heap& heap, const Value& value);  // markup stays markup
// The text, escaped and marked; markup as it is.
const Str* EscapeText(Heap& heap, const Value& value);
void AppendText(TextBuilder& out, Heap& heap, const Value& value);
void AppendRepr(TextBuilder& out, Heap& heap, const Value& value, int depth = 0);
std::string FloatRepr(double value);

}  // namespace tidemill::jinja

#endif  // TIDEMILL_TEXT_JINJA_VALUE_H_
