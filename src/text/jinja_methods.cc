// Methods of str. Names and meanings are Python's; positions that a template sees count characters, not bytes.
#include <algorithm>
#include <iterator>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_unicode.h"

namespace tidemill::jinja {
namespace {

using std::string_view;
constexpr size_t kNone = string_view::npos;

const Str& Self(const CallArguments& arguments) { return *arguments.positional[0].str; }

Value SliceOf(Interpreter& in, const Str& text, size_t begin, size_t end) {
  return Value::Of(SliceStr(in.heap(), text, begin, end));
}

template <CaseChange change>
Value CaseMethod(Interpreter& in, const CallArguments& arguments) {
  Bind<1>("a case method", arguments, {"self"}, 1);
  in.heap().Read(Self(arguments).bytes.size());
  TextBuilder out(in.heap());
  AppendChangedCase(out, Self(arguments), change);
  return Value::Of(out.Finish(Self(arguments).markup));
}

template <bool left, bool right>
Value Strip(Interpreter& in, const CallArguments& arguments) {
  const auto [self, chars] = Bind<2>("strip", arguments, {"self", "chars"}, 1);
  return Value::Of(StripText(in.heap(), *self.str, chars, left, right));
}

// Pieces between white space; at most `limit` cuts, from the right if `from_right`.
void SplitOnSpace(Interpreter& in, const Str& text, int64_t limit, bool from_right, std::vector<Value>& pieces) {
  const string_view bytes = text.bytes;
  ByteRange rest = StripRange(bytes, true, true);
  while (rest.begin < rest.end) {
    in.heap().Charge(sizeof(Value));
    if (limit == 0) {
      pieces.push_back(SliceOf(in, text, from_right ? 0 : rest.begin, from_right ? rest.end : bytes.size()));
      break;
    }
    --limit;
    if (from_right) {
      size_t begin = rest.end;
      while (begin > rest.begin && !IsSpace(DecodeChar(bytes, PreviousChar(bytes, begin))))
        begin = PreviousChar(bytes, begin);
      pieces.push_back(SliceOf(in, text, begin, rest.end));
      rest.end = begin;
      while (rest.end > rest.begin && IsSpace(DecodeChar(bytes, PreviousChar(bytes, rest.end))))
        rest.end = PreviousChar(bytes, rest.end);
    } else {
      size_t end = rest.begin;
      while (end < rest.end && !IsSpace(DecodeChar(bytes, end))) end += CharLength(bytes, end);
      pieces.push_back(SliceOf(in, text, rest.begin, end));
      rest.begin = end;
      while (rest.begin < rest.end && IsSpace(DecodeChar(bytes, rest.begin)))
        rest.begin += CharLength(bytes, rest.begin);
    }
  }
}

void SplitOnText(Interpreter& in, const Str& text, string_view separator, int64_t limit, bool from_right,
                 std::vector<Value>& pieces) {
  size_t begin = 0;
  size_t end = text.bytes.size();
  for (; limit != 0; --limit) {
    in.heap().Charge(sizeof(Value));
    const size_t found = from_right ? FindTextBackwards(in.heap(), text.bytes, separator, end)
                                    : FindText(in.heap(), text.bytes, separator, begin);
    if (found == kNone) break;
    if (from_right) {
      pieces.push_back(SliceOf(in, text, found + separator.size(), end));
      end = found;
    } else {
      pieces.push_back(SliceOf(in, text, begin, found));
      begin = found + separator.size();
    }
  }
  pieces.push_back(SliceOf(in, text, begin, end));
}

template <bool from_right>
Value Split(Interpreter& in, const CallArguments& arguments) {
  const auto [self, sep, maxsplit] = Bind<3>("split", arguments, {"self", "sep", "maxsplit"}, 1);
  const int64_t limit = maxsplit.is_absent() ? -1 : NeedInt("split", "maxsplit", maxsplit);
  std::vector<Value> pieces;
  in.heap().Scan(self.text().size());
  if (sep.is_absent() || sep.is_none()) {
    in.heap().Work(self.text().size() / 16);
    SplitOnSpace(in, *self.str, limit, from_right, pieces);
  } else {
    const string_view separator = NeedString("split", "sep", sep).bytes;
    if (separator.empty()) Fail("split: the separator is empty");
    SplitOnText(in, *self.str, separator, limit, from_right, pieces);
  }
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return NewSequence(in.heap(), Sequence::Form::kList, pieces, self.caller);
}

Value SplitLines(Interpreter& in, const CallArguments& arguments) {
  const auto [self, keepends] = Bind<2>("splitlines", arguments, {"self", "keepends"}, 1);
  const string_view text = self.text();
  in.heap().Work(text.size() / 16);
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pos;
    const char32_t c = DecodeChar(text, pos);
    pos += CharLength(text, pos);
    if (!IsLineEnd(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    in.heap().Charge(sizeof(Value));
    lines.push_back(SliceOf(in, *self.str, begin, IsTrue(keepends) ? pos : end));
    begin = pos;
  }
  if (begin < text.size()) lines.push_back(SliceOf(in, *self.str, begin, text.size()));
  return NewSequence(in.heap(), Sequence::Form::kList, lines, self.caller);
}

// The part of self that `start` and `end` (characters, as in a slice) leave.
Value Window(Interpreter& in, const Value& self, const Value& start, const Value& end) {
  return start.is_absent() && end.is_absent() ? self : Slice(in.heap(), self, start, end, Value());
}

template <bool at_end>
Value HasAffix(Interpreter& in, const CallArguments& arguments) {
  constexpr string_view kName = at_end ? "endswith" : "startswith";
  const auto [self, affix, start, end] = Bind<4>(kName, arguments, {"self", "prefix", "start", "end"}, 2);
  const string_view text = Window(in, self, start, end).text();
  const auto matches = [text](string_view part) { return at_end ? text.ends_with(part) : text.starts_with(part); };
  if (affix.kind != Kind::kSequence || affix.sequence->form != Sequence::Form::kTuple)
    return Value::Bool(matches(NeedString(kName, "prefix", affix).bytes));
  for (const Value& part : affix.sequence->items) {
    in.heap().Work(1);
    if (matches(NeedString(kName, "prefix", part).bytes)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool backwards, bool must_exist>
Value Find(Interpreter& in, const CallArguments& arguments) {
  const auto [self, sub, start, end] = Bind<4>("find", arguments, {"self", "sub", "start", "end"}, 2);
  const Value window = Window(in, self, start, end);
  const string_view needle = NeedString("find", "sub", sub).bytes;
  const size_t found = backwards ? FindTextBackwards(in.heap(), window.text(), needle, kNone)
                                 : FindText(in.heap(), window.text(), needle, 0);
  if (found == kNone) {
    if (must_exist) Fail("index: the substring \"" + ForMessage(needle, 60) + "\" is not there");
    return Value::Int(-1);
  }
  const int64_t skipped = window.text().data() - self.text().data();
  const size_t offset = window.str == self.str ? found : static_cast<size_t>(skipped) + found;
  return Value::Int(static_cast<int64_t>(CountChars(self.text().substr(0, offset))));
}

Value Count(Interpreter& in, const CallArguments& arguments) {
  const auto [self, sub, start, end] = Bind<4>("count", arguments, {"self", "sub", "start", "end"}, 2);
  const Value window = Window(in, self, start, end);
  const string_view needle = NeedString("count", "sub", sub).bytes;
  if (needle.empty()) return Value::Int(static_cast<int64_t>(Length(in.heap(), window)) + 1);
  int64_t count = 0;
  for (size_t at = FindText(in.heap(), window.text(), needle, 0); at != kNone;
       at = FindText(in.heap(), window.text(), needle, at + needle.size()))
    ++count;
  return Value::Int(count);
}

template <bool from_right>
Value Partition(Interpreter& in, const CallArguments& arguments) {
  const auto [self, sep] = Bind<2>("partition", arguments, {"self", "sep"}, 2);
  const Str& separator = NeedString("partition", "sep", sep);
  if (separator.bytes.empty()) Fail("partition: the separator is empty");
  const size_t size = self.text().size();
  const size_t found = from_right ? FindTextBackwards(in.heap(), self.text(), separator.bytes, kNone)
                                  : FindText(in.heap(), self.text(), separator.bytes, 0);
  const size_t left = found != kNone ? found : from_right ? 0 : size;
  const size_t right = found != kNone ? found + separator.bytes.size() : from_right ? 0 : size;
  const std::array<Value, 3> parts = {SliceOf(in, *self.str, 0, left), SliceOf(in, *self.str, left, right),
                                      SliceOf(in, *self.str, right, size)};
  return NewSequence(in.heap(), Sequence::Form::kTuple, parts, self.caller);
}

template <bool at_end>
Value RemoveAffix(Interpreter& in, const CallArguments& arguments) {
  const auto [self, affix] = Bind<2>(at_end ? "removesuffix" : "removeprefix", arguments, {"self", "affix"}, 2);
  const string_view part = NeedString("removeprefix", "affix", affix).bytes;
  const string_view text = self.text();
  if (at_end && text.ends_with(part)) return SliceOf(in, *self.str, 0, text.size() - part.size());
  if (!at_end && text.starts_with(part)) return SliceOf(in, *self.str, part.size(), text.size());
  return self;
}

Value Join(Interpreter& in, const CallArguments& arguments) {
  const auto [self, iterable] = Bind<2>("join", arguments, {"self", "iterable"}, 2);
  TextBuilder out(in.heap());
  bool first = true;
  for (const Value& item : Iterate(in.heap(), iterable)) {
    in.heap().Work(1);
    if (!first) out.Append(*self.str);
    first = false;
    out.Append(self.is_markup() ? *EscapeText(in.heap(), item) : NeedString("join", "every item", item));
  }
  return Value::Of(out.Finish(self.is_markup()));
}

template <bool (*predicate)(char32_t)>
Value All(Interpreter& in, const CallArguments& arguments) {
  const string_view text = Self(arguments).bytes;
  in.heap().Read(text.size());
  for (size_t pos = 0; pos < text.size(); pos += CharLength(text, pos)) {
    if (!predicate(DecodeChar(text, pos))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

template <bool upper>
Value AllCased(Interpreter& in, const CallArguments& arguments) {
  const string_view text = Self(arguments).bytes;
  in.heap().Read(text.size());
  bool any = false;
  for (size_t pos = 0; pos < text.size(); pos += CharLength(text, pos)) {
    const char32_t c = DecodeChar(text, pos);
    if (!IsCased(c)) continue;
    if (upper ? !IsUpper(c) : !IsLower(c)) return Value::Bool(false);
    any = true;
  }
  return Value::Bool(any);
}

Value IsPrintableText(Interpreter& in, const CallArguments& arguments) {
  return Value::Bool(Self(arguments).bytes.empty() || All<IsPrintable>(in, arguments).boolean);
}

Value IsAscii(Interpreter& in, const CallArguments& arguments) {
  const string_view text = Self(arguments).bytes;
  in.heap().Scan(text.size());
  return Value::Bool(
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Value IsTitle(Interpreter& in, const CallArguments& arguments) {
  const string_view text = Self(arguments).bytes;
  in.heap().Read(text.size());
  bool any = false;
  bool within_word = false;
  for (size_t pos = 0; pos < text.size(); pos += CharLength(text, pos)) {
    const char32_t c = DecodeChar(text, pos);
    if (IsCased(c) && IsLower(c) != within_word) return Value::Bool(false);
    within_word = IsCased(c);
    any = any || within_word;
  }
  return Value::Bool(any);
}

Value ExpandTabs(Interpreter& in, const CallArguments& arguments) {
  const auto [self, tabsize] = Bind<2>("expandtabs", arguments, {"self", "tabsize"}, 1);
  const int64_t size = tabsize.is_absent() ? 8 : NeedInt("expandtabs", "tabsize", tabsize);
  if (size > 1000) Fail("expandtabs: a tab size above 1000");
  const string_view text = self.text();
  in.heap().Read(text.size());
  TextBuilder out(in.heap());
  int64_t column = 0;
  for (size_t pos = 0; pos < text.size(); pos += CharLength(text, pos)) {
    if (text[pos] == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.Append(std::string(static_cast<size_t>(spaces), ' '), IsCallerByte(*self.str, pos));
      column += spaces;
    } else {
      out.Append(*self.str, pos, pos + CharLength(text, pos));
      column = text[pos] == '\n' || text[pos] == '\r' ? 0 : column + 1;
    }
  }
  return Value::Of(out.Finish(self.is_markup()));
}

// left, right: where the filling goes; both: centre.
template <bool left, bool right>
Value Pad(Interpreter& in, const CallArguments& arguments) {
  const auto [self, width, fillchar] = Bind<3>("a padding method", arguments, {"self", "width", "fillchar"}, 2);
  const Str* fill =
      fillchar.is_absent() ? BorrowStr(in.heap(), " ", false) : &NeedString("center", "fillchar", fillchar);
  if (self.is_markup()) fill = EscapeStr(in.heap(), *fill);
  if (CountChars(fill->bytes) != 1) Fail("a padding method: the fill character is not one character");
  return Value::Of(PadText(in.heap(), *self.str, NeedInt("center", "width", width), *fill, left, right));
}

Value ZFill(Interpreter& in, const CallArguments& arguments) {
  const auto [self, width] = Bind<2>("zfill", arguments, {"self", "width"}, 2);
  const int64_t missing = NeedInt("zfill", "width", width) - static_cast<int64_t>(Length(in.heap(), self));
  if (missing <= 0) return self;
  const size_t sign = self.text().starts_with('-') || self.text().starts_with('+') ? 1 : 0;
  TextBuilder out(in.heap());
  out.Append(*self.str, 0, sign);
  out.Append(
      *Arithmetic(in.heap(), Operator::kMul, Value::Of(BorrowStr(in.heap(), "0", false)), Value::Int(missing)).str);
  out.Append(*self.str, sign, self.text().size());
  return Value::Of(out.Finish(self.is_markup()));
}

Value Format(Interpreter& in, const CallArguments& arguments) {
  return FormatBraces(in, Self(arguments), {arguments.positional.subspan(1), arguments.keywords});
}

Value FormatMap(Interpreter& in, const CallArguments& arguments) {
  const auto [self, mapping] = Bind<2>("format_map", arguments, {"self", "mapping"}, 2);
  if (mapping.kind != Kind::kMapping) Fail("format_map: not a dict but a '" + std::string(TypeName(mapping)) + "'");
  const std::span<const Mapping::Entry> entries = mapping.mapping->entries;
  const std::span<Keyword> keywords = in.heap().NewArray<Keyword>(entries.size());
  size_t size = 0;
  for (const Mapping::Entry& entry : entries) {
    if (entry.key.is_string()) keywords[size++] = {entry.key.str, entry.value};
  }
  return FormatBraces(in, *self.str, {{}, keywords.first(size)});
}

Value ReplaceMethod(Interpreter& in, const CallArguments& arguments) {
  const auto [self, old_text, new_text, count] = Bind<4>("replace", arguments, {"self", "old", "new", "count"}, 3);
  const int64_t limit = count.is_absent() ? -1 : NeedInt("replace", "count", count);
  const Str& replacement = self.is_markup() ? *EscapeText(in.heap(), new_text) : NeedString("replace", "new", new_text);
  const Str* replaced = ReplaceText(in.heap(), *self.str, NeedString("replace", "old", old_text), replacement, limit);
  return Value::Of(WithMarkup(in.heap(), *replaced, self.is_markup()));
}

constexpr auto kMethods = std::to_array<MethodInfo>({
    {"strip", Strip<true, true>},
    {"lstrip", Strip<true, false>},
    {"rstrip", Strip<false, true>},
    {"split", Split<false>},
    {"rsplit", Split<true>},
    {"splitlines", SplitLines},
    {"startswith", HasAffix<false>},
    {"endswith", HasAffix<true>},
    {"replace", ReplaceMethod},
    {"upper", CaseMethod<CaseChange::kUpper>},
    {"lower", CaseMethod<CaseChange::kLower>},
    {"title", CaseMethod<CaseChange::kTitle>},
    {"capitalize", CaseMethod<CaseChange::kCapitalize>},
    {"swapcase", CaseMethod<CaseChange::kSwap>},
    {"find", Find<false, false>},
    {"rfind", Find<true, false>},
    {"index", Find<false, true>},
    {"rindex", Find<true, true>},
    {"count", Count},
    {"join", Join},
    {"format", Format},
    {"partition", Partition<false>},
    {"rpartition", Partition<true>},
    {"removeprefix", RemoveAffix<false>},
    {"removesuffix", RemoveAffix<true>},
    {"isalpha", All<IsAlpha>},
    {"isalnum", All<IsAlnum>},
    {"isdecimal", All<IsDecimal>},
    {"isdigit", All<IsDigitChar>},
    {"isnumeric", All<IsNumeric>},
    {"isspace", All<IsSpace>},
    {"isupper", AllCased<true>},
    {"islower", AllCased<false>},
    {"isascii", IsAscii},
    {"isprintable", IsPrintableText},
    {"istitle", IsTitle},
    {"expandtabs", ExpandTabs},
    {"format_map", FormatMap},
    {"center", Pad<true, true>},
    {"ljust", Pad<false, true>},
    {"rjust", Pad<true, false>},
    {"zfill", ZFill},
});

}  // namespace

std::span<const MethodInfo> StringMethods() { return kMethods; }

const Str* StripText(Heap& heap, const Str& text, const Value& chars, bool left, bool right) {
  ByteRange kept;
  if (chars.is_absent() || chars.is_none()) {
    kept = StripRange(text.bytes, left, right);
  } else {
    const string_view set = NeedString("strip", "chars", chars).bytes;
    if (set.size() > 64) heap.Work(text.bytes.size() / 64 * (set.size() / 16));  // every character is looked up in it
    kept = StripRange(text.bytes, set, left, right);
  }
  heap.Read(text.bytes.size() - (kept.end - kept.begin));
  return SliceStr(heap, text, kept.begin, kept.end);
}

const Str* PadText(Heap& heap, const Str& text, int64_t width, const Str& fill, bool left, bool right) {
  const int64_t missing = width - static_cast<int64_t>(Length(heap, Value::Of(&text)));
  if (missing <= 0) return &text;
  const int64_t before = left && right ? missing / 2 + (missing & width & 1) : left ? missing : 0;
  const Value filling = Value::Of(&fill);
  TextBuilder out(heap);
  out.Append(*Arithmetic(heap, Operator::kMul, filling, Value::Int(before)).str);
  out.Append(text);
  out.Append(*Arithmetic(heap, Operator::kMul, filling, Value::Int(missing - before)).str);
  return out.Finish(text.markup);
}

const Str* ReplaceText(Heap& heap, const Str& text, const Str& old_text, const Str& new_text, int64_t limit) {
  TextBuilder out(heap);
  size_t at = 0;
  const string_view bytes = text.bytes;
  if (old_text.bytes.empty()) {  // before every character and at the end
    for (; limit != 0; --limit) {
      heap.Work(1);
      out.Append(new_text);
      if (at == bytes.size()) break;
      const size_t next = at + CharLength(bytes, at);
      out.Append(text, at, next);
      at = next;
    }
  } else {
    for (; limit != 0; --limit) {
      const size_t found = FindText(heap, bytes, old_text.bytes, at);
      if (found == kNone) break;
      out.Append(text, at, found);
      out.Append(new_text);
      at = found + old_text.bytes.size();
    }
  }
  if (at == 0 && out.size() == 0) return &text;
  out.Append(text, at, bytes.size());
  return out.Finish();
}

}  // namespace tidemill::jinja
