// Filters that lay text out or write it for another language: center, filesizeformat, urlencode, xmlattr.
#include <array>
#include <cstdio>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_unicode.h"

namespace tidemill::jinja {
namespace {

using std::string_view;

Value Center(Interpreter& in, const CallArguments& arguments) {
  const auto [value, width] = Bind<2>("center", arguments, {"value", "width"}, 1);
  const int64_t columns = width.is_absent() ? 80 : NeedInt("center", "width", width);
  return Value::Of(
      PadText(in.heap(), *ToText(in.heap(), value), columns, *BorrowStr(in.heap(), " ", false), true, true));
}

Value FileSizeFormat(Interpreter& in, const CallArguments& arguments) {
  const auto [value, binary] = Bind<2>("filesizeformat", arguments, {"value", "binary"}, 1);
  const std::optional<double> size = value.is_string()   ? ParseFloat(value.text())
                                     : value.is_number() ? std::optional(value.AsFloat())
                                                         : std::nullopt;
  if (!size || !(*size > -1e300 && *size < 1e300)) Fail("filesizeformat: expected a number");
  const double base = IsTrue(binary) ? 1024 : 1000;
  std::string text;
  if (*size == 1) {
    text = "1 Byte";
  } else if (*size < base) {
    text = std::to_string(static_cast<int64_t>(std::max(*size, -0x1p62))) + " Bytes";
  } else {
    constexpr string_view kLetters = "kMGTPEZY";
    double unit = base;
    size_t letter = 0;
    while (letter + 1 < kLetters.size() && *size >= unit * base) {
      unit *= base;
      ++letter;
    }
    std::array<char, 400> digits;
    std::snprintf(digits.data(), digits.size(), "%.1f", *size / unit);
    text = digits.data();
    text += std::string(" ") + (base == 1024 && letter == 0 ? 'K' : kLetters[letter]) + (base == 1024 ? "iB" : "B");
  }
  return Value::Of(NewStr(in.heap(), text, value.caller));
}

// Percent signs for all but letters, digits and _.-~; and "/" unless it is a part of a query, where a space is "+".
void AppendQuoted(TextBuilder& out, Heap& heap, const Value& value, bool in_query) {
  const Str& text = *ToText(heap, value);
  heap.Work(1 + text.bytes.size() / 16);
  ForEachRun(text, [&out, in_query](string_view piece, bool caller, size_t) {
    constexpr string_view kHex = "0123456789ABCDEF";
    constexpr string_view kPlain = "_.-~";
    std::string quoted;
    for (const char c : piece) {
      const char lower = static_cast<char>(c | 0x20);
      if (IsAsciiDigit(c) || (lower >= 'a' && lower <= 'z') || kPlain.find(c) != string_view::npos) {
        quoted += c;
      } else if (in_query ? c == ' ' : c == '/') {
        quoted += in_query ? '+' : '/';
      } else {
        const auto byte = static_cast<unsigned char>(c);
        quoted += {'%', kHex[byte >> 4], kHex[byte & 15]};
      }
    }
    out.Append(quoted, caller);
  });
}

Value UrlEncode(Interpreter& in, const CallArguments& arguments) {
  const auto [value] = Bind<1>("urlencode", arguments, {"value"}, 1);
  Heap& heap = in.heap();
  TextBuilder out(heap);
  if (value.is_string() || !IsIterable(value)) {
    AppendQuoted(out, heap, value, false);
    return Value::Of(out.Finish());
  }
  bool first = true;
  const auto append = [&heap, &out, &first, caller = value.caller](const Value& key, const Value& member) {
    heap.Work(1);
    if (!first) out.Append("&", caller);
    first = false;
    AppendQuoted(out, heap, key, true);
    out.Append("=", caller);
    AppendQuoted(out, heap, member, true);
  };
  if (value.kind == Kind::kMapping) {
    for (const Mapping::Entry& entry : value.mapping->entries) append(entry.key, entry.value);
  } else {
    for (const Value& pair : Iterate(heap, value)) {
      const std::span<const Value> members = Iterate(heap, pair);
      if (members.size() != 2) Fail("urlencode: expected pairs, found " + std::to_string(members.size()) + " values");
      append(members[0], members[1]);
    }
  }
  return Value::Of(out.Finish());
}

Value XmlAttr(Interpreter& in, const CallArguments& arguments) {
  const auto [value, autospace] = Bind<2>("xmlattr", arguments, {"d", "autospace"}, 1);
  Heap& heap = in.heap();
  if (value.kind != Kind::kMapping) Fail("xmlattr: not a dict but a '" + std::string(TypeName(value)) + "'");
  TextBuilder out(heap);
  for (const Mapping::Entry& entry : value.mapping->entries) {
    heap.Work(1);
    if (entry.value.is_none() || entry.value.is_undefined()) continue;
    const Str& key = NeedString("xmlattr", "every key", entry.key);
    if (key.bytes.find_first_of(" \t\n\r\f\v/>=") != string_view::npos)
      Fail("xmlattr: an invalid character in the name \"" + ForMessage(key.bytes, 60) + "\"");
    if (out.size() != 0 || autospace.is_absent() || IsTrue(autospace)) out.Append(" ", value.caller);
    out.Append(*EscapeStr(heap, key));
    out.Append("=\"", value.caller);
    out.Append(*EscapeText(heap, entry.value));
    out.Append("\"", value.caller);
  }
  return Value::Of(out.Finish());
}

constexpr auto kLayoutFilters = std::to_array<FilterInfo>({
    {"center", Center},
    {"filesizeformat", FileSizeFormat},
    {"urlencode", UrlEncode},
    {"xmlattr", XmlAttr},
});

}  // namespace

std::span<const FilterInfo> LayoutFilters() { return kLayoutFilters; }

}  // namespace tidemill::jinja
