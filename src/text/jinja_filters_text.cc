// Filters on text and numbers. Like Jinja's, most of them take any value for its str().
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_unicode.h"

namespace tidemill::jinja {
namespace {

using std::string_view;

// --- text ---

Value Trim(Interpreter& in, const CallArguments& arguments) {
  const auto [value, chars] = Bind<2>("trim", arguments, {"value", "chars"}, 1);
  return Value::Of(StripText(in.heap(), *ToText(in.heap(), value), chars, true, true));
}

template <CaseChange change>
Value CaseFilter(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("a case filter", arguments, {"s"}, 1);
  const Str& text = *ToText(in.heap(), value);
  in.heap().Read(text.bytes.size());
  TextBuilder out(in.heap());
  AppendChangedCase(out, text, change);
  return Value::Of(out.Finish(text.markup));
}

// Words begin after white space and after - ( { [ <, so "don't" has one capital, unlike with str.title.
Value Title(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("title", arguments, {"s"}, 1);
  const Str& text = *ToText(in.heap(), value);
  in.heap().Read(text.bytes.size());
  TextBuilder out(in.heap());
  const auto is_break = [&text](size_t pos) {
    const char32_t c = DecodeChar(text.bytes, pos);
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  for (size_t pos = 0; pos < text.bytes.size();) {
    size_t end = pos;
    while (end < text.bytes.size() && is_break(end)) end += CharLength(text.bytes, end);
    out.Append(text, pos, end);
    pos = end;
    while (end < text.bytes.size() && !is_break(end)) end += CharLength(text.bytes, end);
    if (pos < end) {
      const size_t second = pos + CharLength(text.bytes, pos);
      AppendChangedCase(out, *SliceStr(in.heap(), text, pos, second), CaseChange::kUpper);
      AppendChangedCase(out, *SliceStr(in.heap(), text, second, end), CaseChange::kLower);
    }
    pos = end;
  }
  return Value::Of(out.Finish());
}

Value Replace(Interpreter& in, const CallArguments& arguments) {
  const auto [value, old_text, new_text, count] = Bind<4>("replace", arguments, {"s", "old", "new", "count"}, 3);
  const int64_t limit = count.is_absent() || count.is_none() ? -1 : NeedInt("replace", "count", count);
  Heap& heap = in.heap();
  const Str* replaced =
      ReplaceText(heap, *ToText(heap, value), *ToText(heap, old_text), *ToText(heap, new_text), limit);
  return Value::Of(WithMarkup(heap, *replaced, false));
}

Value String(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("string", arguments, {"value"}, 1);
  return Value::Of(ToText(in.heap(), value));
}

// Autoescaping is off in chat templates, but text that is marked as safe still escapes what is added to it.
Value Safe(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("safe", arguments, {"value"}, 1);
  return Value::Of(WithMarkup(in.heap(), *ToText(in.heap(), value), true));
}

Value Escape(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("escape", arguments, {"value"}, 1);
  return Value::Of(EscapeText(in.heap(), value));
}

Value ForceEscape(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("forceescape", arguments, {"value"}, 1);
  return Value::Of(EscapeStr(in.heap(), *WithMarkup(in.heap(), *ToText(in.heap(), value), false)));
}

Value Indent(Interpreter& in, const CallArguments& arguments) {
  const auto [value, width, first, blank] = Bind<4>("indent", arguments, {"s", "width", "first", "blank"}, 1);
  Heap& heap = in.heap();
  const Str& text = NeedString("indent", "s", value);
  Value indention = width;
  if (!width.is_string()) {
    const int64_t columns = width.is_absent() ? 4 : NeedInt("indent", "width", width);
    indention = Arithmetic(heap, Operator::kMul, Value::Of(BorrowStr(heap, " ", false)), Value::Int(columns));
  }
  heap.Work(text.bytes.size() / 16);
  TextBuilder out(heap);
  size_t begin = 0;
  bool first_line = true;
  while (true) {  // every line end becomes "\n"; what follows the last one is a line even when it is empty
    size_t end = begin;
    while (end < text.bytes.size() && !IsLineEnd(DecodeChar(text.bytes, end))) end += CharLength(text.bytes, end);
    if (first_line ? IsTrue(first) : begin < end || IsTrue(blank)) out.Append(*indention.str);
    out.Append(text, begin, end);
    if (end >= text.bytes.size()) break;
    const bool two = text.bytes[end] == '\r' && end + 1 < text.bytes.size() && text.bytes[end + 1] == '\n';
    out.Append("\n", IsCallerByte(text, end));
    begin = end + (two ? 2 : CharLength(text.bytes, end));
    first_line = false;
  }
  return Value::Of(out.Finish(text.markup));
}

Value WordCount(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("wordcount", arguments, {"s"}, 1);
  const string_view text = ToText(in.heap(), value)->bytes;
  in.heap().Read(text.size());
  int64_t words = 0;
  bool within = false;
  for (size_t pos = 0; pos < text.size(); pos += CharLength(text, pos)) {
    const char32_t c = DecodeChar(text, pos);
    const bool is_word = c == '_' || IsAlnum(c);
    if (is_word && !within) ++words;
    within = is_word;
  }
  return Value::Int(words);
}

Value Truncate(Interpreter& in, const CallArguments& arguments) {
  const auto [value, length_value, killwords, end, leeway_value] =
      Bind<5>("truncate", arguments, {"s", "length", "killwords", "end", "leeway"}, 1);
  Heap& heap = in.heap();
  const int64_t length = length_value.is_absent() ? 255 : NeedInt("truncate", "length", length_value);
  const int64_t leeway =
      leeway_value.is_absent() || leeway_value.is_none() ? 5 : NeedInt("truncate", "leeway", leeway_value);
  const Str& ending = end.is_absent() ? *BorrowStr(heap, "...", false) : NeedString("truncate", "end", end);
  const int64_t ending_length = static_cast<int64_t>(CountChars(ending.bytes));
  if (length < ending_length || leeway < 0 || leeway > INT32_MAX || length > INT32_MAX)
    Fail("truncate: length and leeway do not fit");
  if (static_cast<int64_t>(Length(heap, value)) <= length + leeway) return value;  // of any kind that has a length
  const Str& text = NeedString("truncate", "s", value);
  size_t cut = ByteOffset(text.bytes, static_cast<size_t>(length - ending_length));
  if (!IsTrue(killwords)) {
    const size_t space = text.bytes.substr(0, cut).rfind(' ');
    if (space != string_view::npos) cut = space;
  }
  return Arithmetic(heap, Operator::kAdd, Value::Of(SliceStr(heap, text, 0, cut)), Value::Of(&ending));
}

Value FormatFilter(Interpreter& in, const CallArguments& arguments) {
  Heap& heap = in.heap();
  const std::span<const Value> rest = arguments.positional.subspan(1);
  if (!rest.empty() && !arguments.keywords.empty()) Fail("format: positional and keyword arguments at once");
  Value operand = NewSequence(heap, Sequence::Form::kTuple, rest);
  if (!arguments.keywords.empty()) {
    std::vector<Mapping::Entry> entries;
    for (const Keyword& keyword : arguments.keywords) entries.push_back({Value::Of(keyword.name), keyword.value});
    operand = NewMapping(heap, entries);
  }
  return FormatPercent(heap, *ToText(heap, arguments.positional[0]), operand);
}

constexpr auto kTextFilters = std::to_array<FilterInfo>({
    {"trim", Trim},
    {"upper", CaseFilter<CaseChange::kUpper>},
    {"lower", CaseFilter<CaseChange::kLower>},
    {"capitalize", CaseFilter<CaseChange::kCapitalize>},
    {"title", Title},
    {"replace", Replace},
    {"string", String},
    {"safe", Safe},
    {"escape", Escape},
    {"e", Escape},
    {"forceescape", ForceEscape},
    {"indent", Indent},
    {"wordcount", WordCount},
    {"truncate", Truncate},
    {"format", FormatFilter},
});

// --- numbers ---

Value IntFilter(Interpreter&, const CallArguments& arguments) {
  const auto [value, otherwise, base] = Bind<3>("int", arguments, {"value", "default", "base"}, 1);
  const Value fallback = otherwise.is_absent() ? Value::Int(0) : otherwise;
  if (value.kind == Kind::kBigInt) return value;
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  std::optional<double> real;
  if (value.is_string()) {
    if (const auto integer = ParseInt(value.text(), base.is_absent() ? 10 : NeedInt("int", "base", base))) {
      return Value::Int(*integer).FromCaller(value.caller);
    }
    real = ParseFloat(value.text());
  } else if (value.is_integral()) {
    return Value::Int(value.AsInt()).FromCaller(value.caller);
  } else if (value.kind == Kind::kFloat) {
    real = value.real;
  }
  if (!real || !std::isfinite(*real)) return fallback;
  if (std::abs(*real) >= 0x1p63) Fail("int: the number does not fit in 64 bits");
  return Value::Int(static_cast<int64_t>(*real)).FromCaller(value.caller);
}

Value FloatFilter(Interpreter&, const CallArguments& arguments) {
  const auto [value, otherwise] = Bind<2>("float", arguments, {"value", "default"}, 1);
  if (value.kind == Kind::kBigInt) return Value::Float(ParseFloat(value.str->bytes).value_or(0)).FromCaller(true);
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  std::optional<double> real;
  if (value.is_string()) real = ParseFloat(value.text());
  if (value.is_number()) real = value.AsFloat();
  if (real) return Value::Float(*real).FromCaller(value.caller);
  return otherwise.is_absent() ? Value::Float(0) : otherwise;
}

Value Abs(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("abs", arguments, {"value"}, 1);
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  if (!value.is_number()) Fail("abs: not a number but a '" + std::string(TypeName(value)) + "'");
  if (value.kind == Kind::kFloat) return Value::Float(std::abs(value.real)).FromCaller(value.caller);
  if (value.AsInt() >= 0) return Value::Int(value.AsInt()).FromCaller(value.caller);
  return Arithmetic(in.heap(), Operator::kSub, Value::Int(0), value);
}

// Python's round: ties to even, on the decimal value of the double.
double RoundDecimal(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 308) return value;
  if (precision < 0) {
    if (precision < -308) return 0 * value;
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / scale) * scale;
  }
  std::array<char, 800> digits;  // up to 309 before and 308 after the point
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed,
                                 static_cast<int>(precision));
  double rounded = 0;
  std::from_chars(digits.data(), end.ptr, rounded);
  return rounded;
}

Value Round(Interpreter&, const CallArguments& arguments) {
  const auto [value, precision_value, method] = Bind<3>("round", arguments, {"value", "precision", "method"}, 1);
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  if (!value.is_number()) Fail("round: not a number but a '" + std::string(TypeName(value)) + "'");
  const int64_t precision = precision_value.is_absent() ? 0 : NeedInt("round", "precision", precision_value);
  const string_view how = method.is_absent() ? "common" : NeedString("round", "method", method).bytes;
  if (how == "common") {
    if (value.kind == Kind::kFloat) return Value::Float(RoundDecimal(value.real, precision)).FromCaller(value.caller);
    if (precision >= 0) return Value::Int(value.AsInt()).FromCaller(value.caller);
    if (std::abs(value.AsFloat()) > 0x1p53)
      Fail("round: a negative precision for an integer this large is not supported");
    return Value::Int(static_cast<int64_t>(RoundDecimal(value.AsFloat(), precision))).FromCaller(value.caller);
  }
  if (how != "ceil" && how != "floor") Fail("round: the method is neither common, ceil nor floor");
  if (precision < -300 || precision > 300) Fail("round: the precision is out of range");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.AsFloat() * scale;
  if (!std::isfinite(scaled)) Fail("round: the number is out of range");
  return Value::Float((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale).FromCaller(value.caller);
}

constexpr auto kNumberFilters = std::to_array<FilterInfo>({
    {"int", IntFilter},
    {"float", FloatFilter},
    {"abs", Abs},
    {"round", Round},
});

// Without surrounding white space and the underscores that Python allows between digits; nothing if one stands elsewhere.
std::optional<std::string> CleanNumber(string_view text) {
  const ByteRange kept = StripRange(text, true, true);
  std::string out;
  const string_view body = text.substr(kept.begin, kept.end - kept.begin);
  const auto is_digit = [body](size_t i) {
    return i < body.size() && ((body[i] >= '0' && body[i] <= '9') || (body[i] | 0x20) >= 'a');
  };
  if (body.size() > 400) return std::nullopt;
  for (size_t i = 0; i < body.size(); ++i) {
    if (static_cast<unsigned char>(body[i]) >= 0x80) return std::nullopt;
    if (body[i] != '_') {
      out += body[i];
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::span<const FilterInfo> TextFilters() { return kTextFilters; }
std::span<const FilterInfo> NumberFilters() { return kNumberFilters; }

std::optional<int64_t> ParseInt(string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  const std::optional<std::string> clean = CleanNumber(text);
  if (!clean) return std::nullopt;
  string_view digits = *clean;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  const string_view prefix = digits.substr(0, 2);
  const int64_t prefix_base = prefix == "0x" || prefix == "0X"   ? 16
                              : prefix == "0o" || prefix == "0O" ? 8
                              : prefix == "0b" || prefix == "0B" ? 2
                                                                 : 0;
  if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
    digits.remove_prefix(2);
    base = prefix_base;
  } else if (base == 0) {
    base = 10;
  }
  uint64_t magnitude = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, static_cast<int>(base));
  if (digits.empty() || result.ec == std::errc::invalid_argument || result.ptr != digits.data() + digits.size())
    return std::nullopt;
  const uint64_t limit = static_cast<uint64_t>(INT64_MAX) + (negative ? 1 : 0);
  if (result.ec == std::errc::result_out_of_range || magnitude > limit)
    Fail("the integer " + ForMessage(text, 40) + " does not fit in 64 bits");
  return static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
}

std::optional<double> ParseFloat(string_view text) {
  const std::optional<std::string> clean = CleanNumber(text);
  if (!clean) return std::nullopt;
  string_view digits = *clean;
  if (digits.starts_with('+')) {
    digits.remove_prefix(1);
    if (digits.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ptr != digits.data() + digits.size() || result.ec == std::errc::invalid_argument || digits.ends_with(')'))
    return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {  // too large is infinite, too small is zero
    const size_t e = digits.find_first_of("eE");
    const bool small = e != string_view::npos && digits.substr(e + 1).starts_with('-');
    value = small ? 0.0 : HUGE_VAL;
    if (digits.starts_with('-')) value = -value;
  }
  return value;
}

}  // namespace tidemill::jinja
