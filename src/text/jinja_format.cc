// Formatting: "%s" % x and "{}".format(x).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_unicode.h"

namespace tidemill::jinja {
namespace {

using std::string_view;

// What stands between "%" or ":" and the letter of the type.
struct Spec {
  const Str* fill = nullptr;  // one character; null: a space
  char align = 0;             // '<', '>', '^', '=' or 0
  char sign = 0;              // '+', ' ' or 0
  bool alternate = false;     // #
  bool zero = false;          // 0
  char thousands = 0;         // ',', '_' or 0
  int64_t width = 0;
  int64_t precision = -1;  // -1: not given
  char type = 0;
};

constexpr int64_t kMaxWidth = 100'000;
constexpr int64_t kMaxPrecision = 400;

[[noreturn]] void FailFormat(const std::string& what) { Fail("format: " + what); }

int64_t ReadNumber(string_view text, size_t& at) {
  int64_t number = 0;
  while (at < text.size() && IsAsciiDigit(text[at])) {
    number = number * 10 + (text[at++] - '0');
    if (number > kMaxWidth) FailFormat("a width or precision above " + std::to_string(kMaxWidth));
  }
  return number;
}

std::string PrintFloat(double value, const Spec& spec) {
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  if (precision > kMaxPrecision) FailFormat("a precision above " + std::to_string(kMaxPrecision));
  if (!std::isfinite(value)) {
    const bool upper = spec.type >= 'A' && spec.type <= 'Z';
    if (std::isnan(value)) return upper ? "NAN" : "nan";
    return std::string(value < 0 ? "-" : "") + (upper ? "INF" : "inf");
  }
  std::array<char, 800> buffer;
  const auto print = [&](const char* format) {
    return std::snprintf(buffer.data(), buffer.size(), format, precision, value);
  };
  int size = 0;
  switch (spec.type) {
    case 'e': size = print(spec.alternate ? "%#.*e" : "%.*e"); break;
    case 'E': size = print(spec.alternate ? "%#.*E" : "%.*E"); break;
    case 'g': size = print(spec.alternate ? "%#.*g" : "%.*g"); break;
    case 'G': size = print(spec.alternate ? "%#.*G" : "%.*G"); break;
    default: size = print(spec.alternate ? "%#.*f" : "%.*f"); break;
  }
  return std::string(buffer.data(), static_cast<size_t>(std::clamp(size, 0, static_cast<int>(buffer.size()) - 1)));
}

std::string PrintInteger(int64_t value, const Spec& spec) {
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const uint64_t base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  const string_view digits = spec.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string text;
  do {
    text += digits[magnitude % base];
    magnitude /= base;
  } while (magnitude != 0);
  while (static_cast<int64_t>(text.size()) < std::min(spec.precision, kMaxPrecision)) text += '0';
  if (spec.alternate && base != 10) {
    text += spec.type;
    text += '0';
  }
  if (value < 0) text += '-';
  std::reverse(text.begin(), text.end());
  return text;
}

// `separator` between groups of three digits before the point.
void GroupThousands(std::string& number, char separator) {
  const size_t begin = number.starts_with('-') ? 1 : 0;
  size_t end = std::min(number.find_first_of(".e", begin), number.size());
  while (end > begin + 3) {
    end -= 3;
    number.insert(end, 1, separator);
  }
}

void AppendPadded(TextBuilder& out, Heap& heap, const Str& body, const Spec& spec, char default_align) {
  const int64_t missing = std::max<int64_t>(0, spec.width - static_cast<int64_t>(CountChars(body.bytes)));
  const char align = spec.align != 0 ? spec.align : default_align;
  const int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const Str& fill = spec.fill != nullptr ? *spec.fill : *BorrowStr(heap, spec.zero && align == '=' ? "0" : " ", false);
  const size_t sign =
      align == '=' && (body.bytes.starts_with('-') || body.bytes.starts_with('+') || body.bytes.starts_with(' ')) ? 1
                                                                                                                  : 0;
  const size_t prefix = align == '=' && spec.alternate && body.bytes.substr(sign).starts_with('0') &&
                                body.bytes.size() > sign + 1 && !IsAsciiDigit(body.bytes[sign + 1])
                            ? 2
                            : 0;
  out.Append(body, 0, sign + prefix);
  for (int64_t i = 0; i < before; ++i) out.Append(fill);
  out.Append(body, sign + prefix, body.bytes.size());
  for (int64_t i = 0; i < missing - before; ++i) out.Append(fill);
}

void AppendNumber(TextBuilder& out, Heap& heap, std::string number, bool caller, const Spec& spec) {
  if (spec.thousands != 0) GroupThousands(number, spec.thousands);
  if (spec.sign != 0 && !number.starts_with('-')) number.insert(0, 1, spec.sign);
  AppendPadded(out, heap, *NewStr(heap, number, caller), spec, spec.zero ? '=' : '>');
}

const Str* Shortened(Heap& heap, const Str& text, int64_t precision) {
  return precision < 0 ? &text : SliceStr(heap, text, 0, ByteOffset(text.bytes, static_cast<size_t>(precision)));
}

const Str* Repr(Heap& heap, const Value& value) {
  TextBuilder text(heap);
  AppendRepr(text, heap, value);
  return text.Finish();
}

// One "%d" with its value.
void AppendPercent(TextBuilder& out, Heap& heap, Spec& spec, const Value& value, bool markup) {
  if (value.is_undefined() && spec.type != 's' && spec.type != 'r') Fail(UndefinedMessage(value));
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      spec.zero = false;
      const Str* text = spec.type == 's' ? ToText(heap, value) : Repr(heap, value);
      if (markup) text = EscapeStr(heap, *text);
      AppendPadded(out, heap, *Shortened(heap, *text, spec.precision), spec, '>');
      return;
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
      Value integer = value;
      if (decimal && value.kind == Kind::kFloat) {
        if (!(std::abs(value.real) < 0x1p63)) FailFormat("the number does not fit in 64 bits");
        integer = Value::Int(static_cast<int64_t>(value.real));
      }
      if (!integer.is_integral())
        FailFormat("%" + std::string(1, spec.type) + " needs a number, not '" + std::string(TypeName(value)) + "'");
      AppendNumber(out, heap, PrintInteger(integer.AsInt(), spec), value.caller, spec);
      return;
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (!value.is_number())
        FailFormat("%" + std::string(1, spec.type) + " needs a number, not '" + std::string(TypeName(value)) + "'");
      AppendNumber(out, heap, PrintFloat(value.AsFloat(), spec), value.caller, spec);
      return;
    case 'c':
      if (value.is_string() && CountChars(value.text()) == 1) {
        AppendPadded(out, heap, *value.str, spec, '>');
        return;
      }
      FailFormat("%c needs one character");
    default: FailFormat("unsupported conversion \"%" + ForMessage(string_view(&spec.type, 1)) + "\"");
  }
}

}  // namespace

Value FormatPercent(Heap& heap, const Str& format, const Value& operand) {
  const bool is_tuple = operand.kind == Kind::kSequence && operand.sequence->form == Sequence::Form::kTuple;
  const std::span<const Value> values = is_tuple ? operand.sequence->items : std::span<const Value>(&operand, 1);
  size_t next = 0;
  const auto take = [&]() -> const Value& {
    if (next >= values.size()) FailFormat("not enough arguments for the format string");
    return values[next++];
  };
  const string_view text = format.bytes;
  TextBuilder out(heap);
  size_t at = 0;
  while (true) {
    const size_t percent = std::min(text.find('%', at), text.size());
    out.Append(format, at, percent);
    if (percent == text.size()) break;
    heap.Work(1);
    at = percent + 1;
    const auto peek = [&] {
      if (at >= text.size()) FailFormat("the format string ends within a conversion");
      return text[at];
    };
    if (peek() == '%') {
      out.Append(format, at, at + 1);
      ++at;
      continue;
    }
    const Value* value = nullptr;
    if (peek() == '(') {
      const size_t close = text.find(')', at);
      if (close == string_view::npos || operand.kind != Kind::kMapping) FailFormat("%(name) needs a dict");
      const string_view key = text.substr(at + 1, close - at - 1);
      value = FindKey(heap, *operand.mapping, key);
      if (value == nullptr) FailFormat("the dict has no key \"" + ForMessage(key, 60) + "\"");
      at = close + 1;
      next = values.size();
    }
    Spec spec;
    for (bool flag = true; flag;) {
      switch (peek()) {
        case '-': spec.align = '<'; break;
        case '+': spec.sign = '+'; break;
        case ' ': spec.sign = spec.sign == 0 ? ' ' : spec.sign; break;
        case '#': spec.alternate = true; break;
        case '0': spec.zero = true; break;
        default: flag = false;
      }
      if (flag) ++at;
    }
    const auto number_or_star = [&] {
      if (peek() != '*') return ReadNumber(text, at);
      ++at;
      const int64_t number = NeedInt("format", "*", take());
      if (number < 0 || number > kMaxWidth) FailFormat("a width or precision out of range");
      return number;
    };
    spec.width = number_or_star();
    if (peek() == '.') {
      ++at;
      spec.precision = number_or_star();
    }
    spec.type = peek();
    ++at;
    if (spec.align == '<') spec.zero = false;
    AppendPercent(out, heap, spec, value != nullptr ? *value : take(), format.markup);
  }
  // As in Python, only a tuple and a plain value have to be used up.
  const bool may_be_left = operand.kind == Kind::kMapping || (operand.kind == Kind::kSequence && !is_tuple);
  if (next < values.size() && !may_be_left && !operand.is_undefined())
    FailFormat("not all arguments were used by the format string");
  return Value::Of(out.Finish(format.markup));
}

namespace {

Spec ReadBraceSpec(Heap& heap, const Str& format, size_t begin, size_t end) {
  const string_view text = format.bytes.substr(0, end);
  Spec spec;
  size_t at = begin;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (at < end) {
    const size_t after_fill = at + CharLength(text, at);
    if (after_fill < end && is_align(text[after_fill])) {
      spec.fill = SliceStr(heap, format, at, after_fill);
      spec.align = text[after_fill];
      at = after_fill + 1;
    } else if (is_align(text[at])) {
      spec.align = text[at++];
    }
  }
  const auto skip = [&](char c) { return at < end && text[at] == c ? (++at, true) : false; };
  if (at < end && (text[at] == '+' || text[at] == '-' || text[at] == ' '))
    spec.sign = text[at] == '-' ? '\0' : text[at], ++at;
  spec.alternate = skip('#');
  spec.zero = skip('0');
  spec.width = ReadNumber(text, at);
  spec.thousands = skip(',') ? ',' : skip('_') ? '_' : '\0';
  if (skip('.')) {
    if (at >= end || !IsAsciiDigit(text[at])) FailFormat("a precision is missing");
    spec.precision = ReadNumber(text, at);
  }
  if (at < end) spec.type = text[at++];
  if (at != end) FailFormat("unsupported format \"" + ForMessage(text.substr(begin), 60) + "\"");
  return spec;
}

void AppendBrace(TextBuilder& out, Heap& heap, const Value& value, Spec spec) {
  if (value.is_string() || value.is_undefined()) {
    const bool bare = spec.width == 0 && spec.precision < 0 && spec.type == 0;
    if (value.is_undefined() && !bare) FailFormat("a format for an undefined value");
    if ((spec.type != 0 && spec.type != 's') || spec.sign != 0 || spec.thousands != 0 || spec.align == '=')
      FailFormat("a format for numbers with a string");
    if (spec.zero && spec.fill == nullptr) spec.fill = BorrowStr(heap, "0", false);
    AppendPadded(out, heap, *Shortened(heap, *ToText(heap, value), spec.precision), spec, '<');
  } else if (value.is_number() && !(value.kind == Kind::kBool && spec.type == 0)) {
    const bool integral = value.is_integral();
    if (integral && spec.type == 'n') spec.type = 'd';
    if (!integral && spec.type == 'n') spec.type = 'g';
    if (integral && spec.type == 'c') {
      const int64_t c = value.AsInt();
      if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) FailFormat("%c needs a character");
      std::string text;
      AppendUtf8(static_cast<char32_t>(c), text);
      AppendPadded(out, heap, *NewStr(heap, text, value.caller), spec, '<');
      return;
    }
    const bool as_integer = integral && (spec.type == 0 || spec.type == 'd' || spec.type == 'x' || spec.type == 'X' ||
                                         spec.type == 'o' || spec.type == 'b');
    if (as_integer && spec.precision >= 0) FailFormat("a precision for an integer");
    std::string number;
    if (as_integer) {
      number = PrintInteger(value.AsInt(), spec);
    } else if (spec.type == '%') {
      spec.type = 'f';
      number = PrintFloat(value.AsFloat() * 100, spec) + "%";
    } else if (spec.type == 0 && spec.precision < 0) {
      number = FloatRepr(value.AsFloat());
    } else if (string_view("eEfFgG").find(spec.type) != string_view::npos) {
      number = PrintFloat(value.AsFloat(), spec);
    } else {
      FailFormat("unsupported format for a number");
    }
    AppendNumber(out, heap, std::move(number), value.caller, spec);
  } else {
    if (spec.width != 0 || spec.precision >= 0 || spec.type != 0)
      FailFormat("a format for a '" + std::string(TypeName(value)) + "'");
    AppendText(out, heap, value);
  }
}

}  // namespace

namespace {

// Runs the fields of one format string.
class BraceFormatter {
 public:
  BraceFormatter(Interpreter& in, const CallArguments& arguments) : in_(in), heap_(in.heap()), arguments_(arguments) {}

  // `nested`: within the braces of another field, where no third level follows.
  const Str* Run(const Str& format, bool nested) {
    const string_view text = format.bytes;
    TextBuilder out(heap_);
    size_t at = 0;
    while (at < text.size()) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.Append(format, at, brace);
      if (brace == text.size()) break;
      heap_.Work(1);
      if (brace + 1 < text.size() && text[brace + 1] == text[brace] && !nested) {  // {{ and }}
        out.Append(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      at = AppendField(out, format, brace, nested);
    }
    return out.Finish(format.markup);
  }

 private:
  // Appends the field whose brace is at `brace`; where it ends.
  size_t AppendField(TextBuilder& out, const Str& format, size_t brace, bool nested) {
    const string_view text = format.bytes;
    size_t close = brace + 1;
    for (int depth = 1; close < text.size(); ++close) {
      if (text[close] == '{') ++depth;
      if (text[close] == '}' && --depth == 0) break;
    }
    heap_.Work((close - brace) / 16);
    if (text[brace] == '}' || close >= text.size()) FailFormat("a single brace in the format string");
    const string_view field = text.substr(brace + 1, close - brace - 1);
    if (nested && field.find('{') != string_view::npos) FailFormat("braces nested too deeply");
    const size_t bracket = field.find('[');
    size_t colon = field.find(':');
    if (bracket < colon) colon = field.find(':', std::min(field.find(']', bracket), field.size()));
    colon = std::min(colon, field.size());
    string_view path = field.substr(0, colon);
    char conversion = 0;
    if (const size_t bang = path.rfind('!'); bang != string_view::npos && path.find(']', bang) == string_view::npos) {
      conversion = bang + 2 == path.size() ? path[bang + 1] : '?';
      if (conversion != 'r' && conversion != 's' && conversion != 'a')
        FailFormat("unsupported conversion: only !r, !s and !a are");
      path = path.substr(0, bang);
    }
    if (path.find('{') != string_view::npos) FailFormat("braces in the name of a field");
    Value value = Find(path);
    if (conversion == 's') value = Value::Of(WithMarkup(heap_, *ToText(heap_, value), false));
    if (conversion == 'r' || conversion == 'a') value = Value::Of(Repr(heap_, value));
    if (conversion == 'a') value = Value::Of(AsciiOnly(*value.str));
    const Str* part = SliceStr(heap_, format, std::min(brace + 2 + colon, close), close);
    if (part->bytes.find('{') != string_view::npos) part = Run(*part, true);
    const Spec spec = ReadBraceSpec(heap_, *part, 0, part->bytes.size());
    if (!format.markup || nested) {
      AppendBrace(out, heap_, value, spec);
    } else {
      TextBuilder escaped(heap_);
      AppendBrace(escaped, heap_, value, spec);
      out.Append(*EscapeStr(heap_, *escaped.Finish(value.is_markup())));
    }
    return close + 1;
  }

  // "0", "name", "", each followed by ".attribute" and "[item]".
  Value Find(string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    const string_view name = path.substr(0, end);
    Value value;
    const bool is_number = !name.empty() && std::all_of(name.begin(), name.end(), IsAsciiDigit);
    if ((name.empty() && has_numbers_) || (is_number && next_ != 0)) FailFormat("fields with and without numbers");
    has_numbers_ = has_numbers_ || is_number;
    if (name.empty()) {
      value = Positional(next_++);
    } else if (is_number) {
      size_t digits = 0;
      value = Positional(static_cast<size_t>(ReadNumber(name, digits)));
    } else {
      value = Named(name);
    }
    string_view rest = path.substr(end);
    while (!rest.empty()) {
      heap_.Work(1);
      const bool is_item = rest.front() == '[';
      const size_t stop = is_item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
      if (stop == string_view::npos || stop < 2 || (!is_item && rest.front() != '.')) FailFormat("a malformed field");
      const string_view part = rest.substr(1, stop - 1);
      const Str* key = NewStr(heap_, part, false);
      size_t digits = 0;
      if (!is_item) {
        value = in_.Attribute(value, *key);
      } else if (std::all_of(part.begin(), part.end(), IsAsciiDigit)) {
        value = in_.Item(value, Value::Int(ReadNumber(part, digits)));
      } else {
        value = in_.Item(value, Value::Of(key));
      }
      rest = rest.substr(stop + (is_item ? 1 : 0));
    }
    return value;
  }

  Value Positional(size_t index) const {
    if (index >= arguments_.positional.size()) FailFormat("there is no argument " + std::to_string(index));
    return arguments_.positional[index];
  }
  Value Named(string_view name) const {
    heap_.Work(arguments_.keywords.size() / 8);
    for (const Keyword& entry : arguments_.keywords) {
      if (entry.name->bytes == name) return entry.value;
    }
    FailFormat("there is no argument \"" + ForMessage(name, 60) + "\"");
  }

  // ascii(value): what is beyond ASCII as escapes.
  const Str* AsciiOnly(const Str& text) {
    TextBuilder out(heap_);
    for (size_t pos = 0; pos < text.bytes.size(); pos += CharLength(text.bytes, pos)) {
      const char32_t c = DecodeChar(text.bytes, pos);
      if (c < 0x80) {
        out.Append(text, pos, pos + 1);
        continue;
      }
      std::array<char, 16> escape;
      std::snprintf(escape.data(), escape.size(),
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    static_cast<unsigned>(c));
      out.Append(escape.data(), IsCallerByte(text, pos));
    }
    return out.Finish();
  }

  Interpreter& in_;
  Heap& heap_;
  const CallArguments& arguments_;
  size_t next_ = 0;  // of the fields without a number
  bool has_numbers_ = false;
};

}  // namespace

Value FormatBraces(Interpreter& in, const Str& format, const CallArguments& arguments) {
  return Value::Of(BraceFormatter(in, arguments).Run(format, false));
}

}  // namespace tidemill::jinja
