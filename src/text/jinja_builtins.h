// What the language knows by name: filters (x|trim), tests (x is string), functions (range(3)) and methods ("a".upper()).
// All are natives with one signature. A filter, test or method gets its value as the first positional argument.
#ifndef TIDEMILL_TEXT_JINJA_BUILTINS_H_
#define TIDEMILL_TEXT_JINJA_BUILTINS_H_

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace tidemill::jinja {

class Interpreter;

struct Keyword {
  const Str* name;
  Value value;
};

struct CallArguments {
  std::span<const Value> positional;
  std::span<const Keyword> keywords;
};

using NativeFunction = Value (*)(Interpreter&, const CallArguments&);

struct FilterInfo {
  std::string_view name;
  NativeFunction call;
};
struct TestInfo {
  std::string_view name;
  bool (*call)(Interpreter&, const CallArguments&);
};
struct FunctionInfo {
  std::string_view name;
  NativeFunction call;
};
struct MethodInfo {
  std::string_view name;
  NativeFunction call;
};
struct BoundMethod {
  Value self;
  const MethodInfo* info;
};

// Null when there is none of that name.
const FilterInfo* FindFilter(std::string_view name);
const TestInfo* FindTest(std::string_view name);
const FunctionInfo* FindFunction(std::string_view name);
const MethodInfo* FindMethod(const Value& self, std::string_view name);
bool IsMethodName(std::string_view name);  // of any type

// The tables behind FindFilter, one for each file.
std::span<const FilterInfo> TextFilters();
std::span<const FilterInfo> NumberFilters();
std::span<const FilterInfo> LayoutFilters();
std::span<const FilterInfo> SequenceFilters();
std::span<const MethodInfo> StringMethods();

// --- for natives ---

// Sorts positional and keyword arguments into the parameters `names`; what was not given is absent. Fails, naming
// `function`, when one of the first `required` is missing, when one is given twice and when there is no such parameter.
void BindInto(std::string_view function, const CallArguments& arguments, std::span<const std::string_view> names,
              size_t required, std::span<Value> out);
template <size_t N>
std::array<Value, N> Bind(std::string_view function, const CallArguments& arguments,
                          const std::array<std::string_view, N>& names, size_t required) {
  std::array<Value, N> out;
  BindInto(function, arguments, names, required, out);
  return out;
}

// The value as what the parameter needs, or a failure that names function and parameter.
int64_t NeedInt(std::string_view function, std::string_view parameter, const Value& value);
const Str& NeedString(std::string_view function, std::string_view parameter, const Value& value);

// text.strip(chars) at the sides asked for; white space if `chars` is absent or none.
const Str* StripText(Heap& heap, const Str& text, const Value& chars, bool left, bool right);
// text.center(width), text.ljust(width) (no `left`) or text.rjust(width) (no `right`).
const Str* PadText(Heap& heap, const Str& text, int64_t width, const Str& fill, bool left, bool right);
// text.replace(old, new, limit); a negative limit is none.
const Str* ReplaceText(Heap& heap, const Str& text, const Str& old_text, const Str& new_text, int64_t limit);

// int(text, base) as Python reads it; nothing if it is no integer. Fails when it does not fit in 64 bits.
std::optional<int64_t> ParseInt(std::string_view text, int64_t base);
std::optional<double> ParseFloat(std::string_view text);

// text % value and format(text, ...): printf-like formatting (jinja_format.cc).
Value FormatPercent(Heap& heap, const Str& format, const Value& value);
// text.format(...), jinja_format.cc.
Value FormatBraces(Interpreter& interpreter, const Str& format, const CallArguments& arguments);
// strftime_now(format), jinja_strftime.cc.
Value StrftimeNow(Interpreter& interpreter, const CallArguments& arguments);
// json.dumps(value, ensure_ascii=, indent=, separators=, sort_keys=), jinja_json.cc.
Value ToJsonFilter(Interpreter& interpreter, const CallArguments& arguments);

}  // namespace tidemill::jinja

#endif  // TIDEMILL_TEXT_JINJA_BUILTINS_H_
