#include "text/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

namespace tidemill::jinja {
namespace {

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameChar(char c) { return IsNameStart(c) || IsAsciiDigit(c); }

// Longest first.
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

class Lexer {
 public:
  Lexer(Heap& heap, std::string_view source) : heap_(heap), source_(source) {}

  std::vector<Token> Run() {
    while (pos_ < source_.size()) LexRoot();
    Push(TokenType::kEnd, source_.size(), {});
    return std::move(tokens_);
  }

 private:
  struct Opening {  // "{{", "{%" or "{#", with its sign
    size_t begin = std::string_view::npos;
    char kind = 0;  // '{', '%' or '#'
    char sign = 0;  // '-', '+' or 0
  };

  [[noreturn]] void FailAt(size_t offset, std::string message) {
    throw TemplateError{ErrorCode::kInvalidArgument, std::move(message), static_cast<uint32_t>(offset)};
  }
  void Push(TokenType type, size_t offset, std::string_view text) {
    heap_.Charge(sizeof(Token));
    tokens_.push_back({type, static_cast<uint32_t>(offset), text, 0, 0});
  }
  bool StartsWith(std::string_view text) const { return source_.substr(pos_).starts_with(text); }
  size_t SkipSpace(size_t pos) const {
    while (pos < source_.size() && IsSpace(DecodeChar(source_, pos))) pos += CharLength(source_, pos);
    return pos;
  }

  Opening FindOpening(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string_view::npos; at = source_.find('{', at + 1)) {
      if (at + 1 >= source_.size()) break;
      const char kind = source_[at + 1];
      if (kind != '{' && kind != '%' && kind != '#') continue;
      const char next = at + 2 < source_.size() ? source_[at + 2] : '\0';
      return {at, kind, next == '-' || next == '+' ? next : '\0'};
    }
    return {};
  }

  // The text before a tag, without what the tag's sign or lstrip_blocks takes away at its end.
  std::string_view TrimBefore(std::string_view text, const Opening& opening) const {
    if (opening.sign == '-') return text.substr(0, StripRange(text, false, true).end);
    if (opening.sign == '+' || opening.kind == '{') return text;
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !line_starting_) return text;
    const ByteRange kept = StripRange(text.substr(line), true, true);
    return kept.begin == kept.end ? text.substr(0, line) : text;
  }

  void LexRoot() {
    const size_t begin = pos_;
    const Opening opening = FindOpening(pos_);
    const size_t end = std::min(opening.begin, source_.size());
    std::string_view text = source_.substr(begin, end - begin);
    if (opening.kind != 0) text = TrimBefore(text, opening);
    if (!text.empty()) Push(TokenType::kData, begin, text);
    if (opening.kind == 0) {
      pos_ = source_.size();
      return;
    }
    pos_ = end + 2 + (opening.sign != 0 ? 1 : 0);
    line_starting_ = false;
    if (opening.kind == '#') {
      LexComment(end);
    } else if (opening.kind == '%' && SkipRawTag("raw")) {
      LexRaw(end);
    } else if (opening.kind == '%') {
      Push(TokenType::kBlockBegin, end, {});
      LexTag(end, '%', TokenType::kBlockEnd);
    } else {
      Push(TokenType::kVariableBegin, end, {});
      LexTag(end, '}', TokenType::kVariableEnd);
    }
  }

  // At a closing delimiter ("%}", "}}", "#}", or with a sign before it): moves past it and what it strips.
  bool SkipClosing(char kind) {
    const std::array<char, 2> delimiter = {kind, '}'};
    const std::string_view close(delimiter.data(), 2);
    size_t at = pos_;
    const char sign = at < source_.size() ? source_[at] : '\0';
    const bool signed_close = sign == '-' || (sign == '+' && kind != '}');
    if (signed_close) ++at;
    if (!source_.substr(at).starts_with(close)) return false;
    at += 2;
    if (signed_close && sign == '-') {
      at = SkipSpace(at);
    } else if (!signed_close && kind != '}' && at < source_.size() && source_[at] == '\n') {
      ++at;
    }
    pos_ = at;
    line_starting_ = source_[at - 1] == '\n';
    return true;
  }

  void LexComment(size_t begin) {
    // "+#}", "-#}" and "#}" all hold "#}", and a sign belongs to the delimiter.
    const size_t close = source_.find("#}", pos_);
    if (pos_ == source_.size()) return;  // Jinja lets a template end right here
    if (close == std::string_view::npos) FailAt(begin, "a comment is not closed: expected \"#}\"");
    const bool has_sign = close > pos_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
    pos_ = has_sign ? close - 1 : close;
    SkipClosing('#');
  }

  // After "{%" and a sign: moves past "raw %}" or "endraw %}", if that stands here.
  bool SkipRawTag(std::string_view name) {
    size_t at = SkipSpace(pos_);
    if (!source_.substr(at).starts_with(name)) return false;
    at = SkipSpace(at + name.size());
    const std::string_view rest = source_.substr(at);
    if (name == "raw") {  // the newline after this tag stays, whatever trim_blocks says
      if (!rest.starts_with("%}") && !rest.starts_with("-%}")) return false;
      pos_ = rest.front() == '-' ? SkipSpace(at + 3) : at + 2;
      line_starting_ = source_[pos_ - 1] == '\n';
      return true;
    }
    const size_t saved = pos_;
    pos_ = at;
    if (SkipClosing('%')) return true;
    pos_ = saved;
    return false;
  }

  void LexRaw(size_t tag) {
    const size_t begin = pos_;
    if (begin == source_.size()) return;  // as with comments
    const bool line_starting = line_starting_;
    for (size_t at = source_.find("{%", begin); at != std::string_view::npos; at = source_.find("{%", at + 1)) {
      const char next = at + 2 < source_.size() ? source_[at + 2] : '\0';
      const Opening opening{at, '%', next == '-' || next == '+' ? next : '\0'};
      pos_ = at + 2 + (opening.sign != 0 ? 1 : 0);
      if (!SkipRawTag("endraw")) continue;
      const bool after = std::exchange(line_starting_, line_starting);
      const std::string_view text = TrimBefore(source_.substr(begin, at - begin), opening);
      line_starting_ = after;
      if (!text.empty()) Push(TokenType::kData, begin, text);
      return;
    }
    FailAt(tag, "a raw block is not closed: expected \"{% endraw %}\"");
  }

  void LexTag(size_t begin, char kind, TokenType end_type) {
    std::vector<char> open;  // closing brackets that are still to come
    while (true) {
      if (pos_ >= source_.size())
        FailAt(begin,
               kind == '%' ? "a tag is not closed: expected \"%}\"" : "an expression is not closed: expected \"}}\"");
      const size_t at = pos_;
      if (open.empty() && SkipClosing(kind)) {
        Push(end_type, at, {});
        return;
      }
      const char c = source_[pos_];
      const size_t after_space = SkipSpace(pos_);
      if (after_space > pos_) {
        pos_ = after_space;
      } else if (IsAsciiDigit(c)) {
        LexNumber();
      } else if (IsNameStart(c)) {
        while (pos_ < source_.size() && IsNameChar(source_[pos_])) ++pos_;
        Push(TokenType::kName, at, source_.substr(at, pos_ - at));
      } else if (c == '"' || c == '\'') {
        LexString(c);
      } else {
        LexOperator(open);
      }
    }
  }

  void LexOperator(std::vector<char>& open) {
    const auto found =
        std::find_if(kOperators.begin(), kOperators.end(), [this](std::string_view op) { return StartsWith(op); });
    if (found == kOperators.end()) {
      FailAt(pos_, "unexpected character \"" + ForMessage(source_.substr(pos_, CharLength(source_, pos_))) + "\"");
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') {
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) FailAt(pos_, "unexpected \"" + std::string(1, c) + "\"");
      if (open.back() != c)
        FailAt(pos_, "expected \"" + std::string(1, open.back()) + "\", found \"" + std::string(1, c) + "\"");
      open.pop_back();
    }
    Push(TokenType::kOperator, pos_, source_.substr(pos_, found->size()));
    pos_ += found->size();
  }

  // Digits of `base` with single underscores between them, from `pos`. Returns the end, `pos` if there is none.
  size_t DigitsEnd(size_t pos, int base, bool leading_underscore) const {
    const auto is_digit = [base](char c) {
      if (base == 16) return IsAsciiDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      return c >= '0' && c < '0' + base;
    };
    size_t end = pos;
    while (true) {
      const bool underscore = end < source_.size() && source_[end] == '_' && (end > pos || leading_underscore);
      const size_t digit = end + (underscore ? 1 : 0);
      if (digit >= source_.size() || !is_digit(source_[digit])) return end;
      end = digit + 1;
    }
  }

  void LexNumber() {
    const size_t begin = pos_;
    const char second = begin + 1 < source_.size() ? static_cast<char>(source_[begin + 1] | 0x20) : '\0';
    int base = 10;
    if (source_[begin] == '0' && (second == 'b' || second == 'o' || second == 'x')) {
      const int prefix_base = second == 'b' ? 2 : second == 'o' ? 8 : 16;
      const size_t end = DigitsEnd(begin + 2, prefix_base, true);
      if (end > begin + 2) {
        base = prefix_base;
        pos_ = end;
      }
    }
    if (base == 10 && LexFloat(begin)) return;
    if (base == 10) {  // a zero is followed by zeros only; other digits begin a token of their own
      pos_ = begin + 1;
      if (source_[begin] != '0') {
        pos_ = DigitsEnd(begin, 10, false);
      } else {
        while (pos_ < source_.size() && (source_[pos_] == '0' || source_.substr(pos_, 2) == "_0"))
          pos_ += source_[pos_] == '_' ? size_t{2} : size_t{1};
      }
    }
    const std::string digits = WithoutUnderscores(source_.substr(begin, pos_ - begin));
    Push(TokenType::kInteger, begin, {});
    const char* first = digits.data() + (base == 10 ? 0 : 2);
    const auto result = std::from_chars(first, digits.data() + digits.size(), tokens_.back().integer, base);
    if (result.ec != std::errc()) FailAt(begin, "the integer " + ForMessage(digits, 40) + " does not fit in 64 bits");
  }

  // digits [. digits] [e digits] with at least one of the two; not right after a "."
  bool LexFloat(size_t begin) {
    if (begin > 0 && source_[begin - 1] == '.') return false;
    const size_t whole = DigitsEnd(begin, 10, false);
    size_t end = whole;
    if (end < source_.size() && source_[end] == '.') {
      const size_t fraction = DigitsEnd(end + 1, 10, false);
      if (fraction > end + 1) end = fraction;
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      const size_t exponent = DigitsEnd(end + 1 + sign, 10, false);
      if (exponent > end + 1 + sign) end = exponent;
    }
    if (end == whole) return false;
    const std::string digits = WithoutUnderscores(source_.substr(begin, end - begin));
    Push(TokenType::kFloat, begin, {});
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().real);
    if (result.ec != std::errc()) FailAt(begin, "the number " + ForMessage(digits, 40) + " is out of range");
    pos_ = end;
    return true;
  }

  static std::string WithoutUnderscores(std::string_view text) {
    std::string out(text);
    std::erase(out, '_');
    return out;
  }

  void LexString(char quote) {
    const size_t begin = pos_;
    size_t end = begin + 1;
    bool escapes = false;
    while (end < source_.size() && source_[end] != quote) {
      escapes = escapes || source_[end] == '\\';
      end += source_[end] == '\\' ? size_t{2} : size_t{1};
    }
    if (end >= source_.size()) FailAt(begin, "a string is not closed: expected " + std::string(1, quote));
    const std::string_view body = source_.substr(begin + 1, end - begin - 1);
    Push(TokenType::kString, begin, escapes ? heap_.CopyText(Unescape(body, begin + 1)) : body);
    pos_ = end + 1;
  }

  // Python's "unicode-escape": \n, \x41, \u00e9, \101; an unknown escape stays as it is written.
  std::string Unescape(std::string_view body, size_t offset) {
    std::string out;
    for (size_t i = 0; i < body.size(); ++i) {
      if (body[i] != '\\') {
        out += body[i];
        continue;
      }
      const char c = body[++i];
      constexpr std::string_view kNames = "\\'\"abfnrtv";
      constexpr std::string_view kChars = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t known = kNames.find(c); known != std::string_view::npos) {
        out += kChars[known];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        AppendEscaped(out, body.substr(std::min(i + 1, body.size()), digits), digits, 16, offset + i);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        size_t digits = 1;
        while (digits < 3 && i + digits < body.size() && body[i + digits] >= '0' && body[i + digits] <= '7') ++digits;
        AppendEscaped(out, body.substr(i, digits), digits, 8, offset + i);
        i += digits - 1;
      } else if (c == 'N') {
        FailAt(offset + i, "the escape \\N{...} is not supported: write the character itself");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void AppendEscaped(std::string& out, std::string_view digits, size_t expected, int base, size_t offset) {
    uint32_t codepoint = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), codepoint, base);
    if (digits.size() != expected || result.ec != std::errc() || result.ptr != digits.data() + digits.size()) {
      FailAt(offset, "a truncated escape in a string: expected " + std::to_string(expected) + " digits");
    }
    if (codepoint > 0x10FFFF || (codepoint >= 0xD800 && codepoint <= 0xDFFF)) {
      FailAt(offset, "an escape in a string that is no Unicode character");
    }
    AppendUtf8(codepoint, out);
  }

  Heap& heap_;
  std::string_view source_;
  size_t pos_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string NormalizeSource(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Token> Tokenize(Heap& heap, std::string_view source) { return Lexer(heap, source).Run(); }

}  // namespace tidemill::jinja
