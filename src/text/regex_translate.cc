// Oniguruma's dialect of regular expressions, rewritten for PCRE2: see regex.h for what differs.
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable_name.h"
#include "text/regex.h"

namespace tidemill {
namespace {

// Inside a class. \s is the property White_Space.
constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{D7FF}\x{E000}-\x{10FFFF})";
constexpr std::string_view kWordChars = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";  // of \w in a class
constexpr std::string_view kMoreWordChars = R"(\xB2\xB3\xB9\xBC-\xBE)";        // and of \w alone

constexpr size_t kMaxDepth = 100;  // of groups

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Whether it is the name of a script. PCRE2 takes a bare name for all characters that the script uses, Oniguruma for those of the script.
bool IsScript(std::string_view name) {
  const std::string expression = "\\p{sc:" + std::string(name) + "}";
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_UTF,
                                         &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// What stands for [:name:] in a class.
std::string_view PosixClass(std::string_view name) {
  if (name == "space") return kSpaces;
  if (name == "digit") return R"(\p{Nd})";
  if (name == "punct") return R"(\p{P}\p{S})";
  if (name == "alpha") return R"(\p{Alphabetic})";
  if (name == "alnum") return R"(\p{Alphabetic}\p{Nd})";
  return {};
}

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> Run() {
    if (Next("(?i)")) {  // at the start it holds for all of the expression in both dialects
      out_ += in_.substr(0, 4);
      at_ = 4;
    }
    std::vector<size_t> open;  // where in out_ each open group begins
    size_t atom = kNone;       // where in out_ the atom begins that a quantifier would repeat
    while (at_ < in_.size()) {
      const char c = in_[at_];
      const size_t begin = out_.size();
      switch (c) {
        case '\\': TIDEMILL_TRY_VOID(Escape()); break;
        case '[': TIDEMILL_TRY_VOID(Class()); break;
        case '(':
          if (Next("(?#")) {  // a comment: what stands before it may still be repeated
            const size_t end = in_.find(')', at_);
            if (end == std::string_view::npos) return Corrupt("'(' without ')'");
            at_ = end + 1;
            continue;
          }
          if (open.size() == kMaxDepth) return Refuse("groups nested deeper than " + std::to_string(kMaxDepth));
          open.push_back(begin);
          TIDEMILL_TRY_VOID(Group());
          atom = kNone;
          continue;
        case ')':
          if (open.empty()) return Corrupt("')' without '('");
          out_ += in_[at_++];
          atom = open.back();
          open.pop_back();
          continue;
        case '*':
        case '+':
        case '?': TIDEMILL_TRY_VOID(Repeat(atom)); continue;
        case '{':
          if (TakesBounds()) {
            TIDEMILL_TRY_VOID(Bounds(atom));
            continue;
          }
          out_ += "\\{";
          ++at_;
          break;
        case '|':
          out_ += in_[at_++];
          atom = kNone;
          continue;
        default:
          do out_ += in_[at_++];
          while (at_ < in_.size() && (in_[at_] & 0xC0) == 0x80);  // a whole character
      }
      atom = begin;
    }
    if (!open.empty()) return Corrupt("'(' without ')'");
    return std::move(out_);
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  Error Refuse(std::string_view what) const { return Fail(ErrorCode::kUnsupported, what); }
  Error Corrupt(std::string_view what) const { return Fail(ErrorCode::kCorruptFile, what); }
  Error Fail(ErrorCode code, std::string_view what) const {
    return Error(code, "regular expression " + QuoteName(in_) + ": byte " + std::to_string(at_) + ": " +
                           (code == ErrorCode::kUnsupported ? "not read here: " : "") + std::string(what));
  }

  bool Next(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  // *, + or ? and what may follow it: ? (lazy) or + (possessive).
  Result<void> Repeat(size_t atom) {
    if (atom == kNone) return Corrupt("a quantifier without anything to repeat");
    out_ += in_[at_++];
    if (Next("?") || Next("+")) out_ += in_[at_++];
    return {};
  }

  // Whether {n}, {n,}, {,m} or {n,m} stands here; other braces are characters.
  bool TakesBounds() const {
    size_t i = at_ + 1;
    const size_t first = i;
    while (i < in_.size() && IsDigit(in_[i])) ++i;
    bool has_digits = i > first;
    if (i < in_.size() && in_[i] == ',') {
      const size_t second = ++i;
      while (i < in_.size() && IsDigit(in_[i])) ++i;
      has_digits = has_digits || i > second;
    }
    return has_digits && i < in_.size() && in_[i] == '}';
  }

  Result<void> Bounds(size_t atom) {
    if (atom == kNone) return Corrupt("a quantifier without anything to repeat");
    const size_t end = in_.find('}', at_) + 1;
    const std::string_view bounds = in_.substr(at_, end - at_);
    const bool is_range = bounds.find(',') != std::string_view::npos;
    at_ = end;
    out_ += bounds.starts_with("{,") ? "{0" + std::string(bounds.substr(1)) : std::string(bounds);
    if (Next("?")) {
      if (!is_range) return Refuse("{n}?");
      out_ += in_[at_++];
    } else if (Next("+")) {  // not possessive, as after * and +: the repetition itself repeats
      out_.insert(atom, "(?:");
      out_ += ")+";
      ++at_;
      if (Next("?") || Next("+")) out_ += in_[at_++];
    }
    return {};
  }

  Result<void> Group() {
    if (Next("(*")) return Refuse("(*");
    if (!Next("(?")) {
      out_ += in_[at_++];
      return {};
    }
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (!Next(known)) continue;
      out_ += known;
      at_ += known.size();
      return {};
    }
    if (Next("(?<")) {  // a name
      const size_t end = in_.find('>', at_);
      if (end == std::string_view::npos) return Corrupt("a name without '>'");
      out_ += '(';
      at_ = end + 1;
      return {};
    }
    out_ += "(?";
    for (at_ += 2; at_ < in_.size(); ++at_) {
      const char c = in_[at_];
      if (c == 'm') {
        out_ += 's';
      } else if (c == 'i' || c == '-') {
        out_ += c;
      } else if (c == ':' || c == ')') {
        if (c == ')') return Refuse("an option for the rest of a group");
        out_ += c;
        ++at_;
        return {};
      } else {
        break;
      }
    }
    return Refuse("this kind of group");
  }

  // \uHHHH and \x{H..} as PCRE2 spells them. Past the escape.
  Result<void> CodePoint() {
    if (Next("\\u")) {
      const std::string_view digits = in_.substr(at_ + 2, 4);
      for (const char c : digits)
        if (!std::isxdigit(static_cast<unsigned char>(c))) return Corrupt("\\u without four digits");
      if (digits.size() < 4) return Corrupt("\\u without four digits");
      out_ += "\\x{" + std::string(digits) + "}";
      at_ += 6;
      return {};
    }
    if (!Next("\\x{")) {
      const std::string_view digits = in_.substr(at_ + 2, 2);
      if (digits.size() < 2 || digits[0] < '0' || digits[0] > '7' ||
          std::isxdigit(static_cast<unsigned char>(digits[1])) == 0)
        return Refuse("\\x of anything but a character of ASCII with two digits");
      out_ += in_.substr(at_, 4);
      at_ += 4;
      return {};
    }
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) return Corrupt("\\x{ without '}'");
    out_ += in_.substr(at_, end + 1 - at_);
    at_ = end + 1;
    return {};
  }

  Result<void> Property() {
    if (!Next("\\p{") && !Next("\\P{")) return Refuse("\\p without braces");
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) return Corrupt("\\p{ without '}'");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    out_ += in_.substr(at_, 3);
    if (negated) out_ += '^';
    if (IsScript(name)) out_ += "sc:";
    out_ += name;
    out_ += '}';
    at_ = end + 1;
    return {};
  }

  Result<void> Escape() {
    if (at_ + 1 == in_.size()) return Corrupt("'\\' at the end");
    const auto put = [this](std::string_view text) -> Result<void> {
      out_ += text;
      at_ += 2;
      return {};
    };
    const std::string words = std::string(kWordChars) + std::string(kMoreWordChars);
    const std::string word = "[" + words + "]";
    switch (const char c = in_[at_ + 1]) {
      case 's': return put("[" + std::string(kSpaces) + "]");
      case 'S': return put("[^" + std::string(kSpaces) + "]");
      case 'w': return put(word);
      case 'W': return put("[^" + words + "]");
      case 'h': return put("[0-9A-Fa-f]");
      case 'H': return put("[^0-9A-Fa-f]");
      case 'b': return put("(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))");
      case 'B': return put("(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))");
      case 'v': return put("\\x0B");
      case 'R':
      case 'X': return put(in_.substr(at_, 2));
      case 'p':
      case 'P': return Property();
      case 'u':
      case 'x': return CodePoint();
      default: return OtherEscape(c);
    }
  }

  // Those that mean the same in and outside a class.
  Result<void> OtherEscape(char c) {
    constexpr std::string_view kSame = "dDtnrfaeAzZ";
    const bool is_letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    const bool is_back_reference = c >= '1' && c <= '9';
    if (is_letter && !is_back_reference && kSame.find(c) == std::string_view::npos)
      return Refuse(std::string("\\") + c);
    out_ += '\\';
    ++at_;
    if ((c & 0x80) != 0) out_.pop_back();  // an escaped character that is none of ASCII stands for itself
    do out_ += in_[at_++];
    while (at_ < in_.size() && (in_[at_] & 0xC0) == 0x80);
    return {};
  }

  Result<void> ClassEscape() {
    if (at_ + 1 == in_.size()) return Corrupt("'\\' at the end");
    const auto put = [this](std::string_view text) -> Result<void> {
      out_ += text;
      at_ += 2;
      return {};
    };
    switch (const char c = in_[at_ + 1]) {
      case 's': return put(kSpaces);
      case 'S': return put(kNoSpaces);
      case 'w': return put(kWordChars);
      case 'h': return put("0-9A-Fa-f");
      case 'b': return put("\\x08");
      case 'v': return put("\\x0B");
      case 'p':
      case 'P': return Property();
      case 'u':
      case 'x': return CodePoint();
      case 'W':
      case 'H':
      case 'R':
      case 'X':
      case 'A':
      case 'z':
      case 'Z': return Refuse(std::string("\\") + c + " in a class");
      default: return OtherEscape(c);
    }
  }

  // [...], and [...&&[^...]] as a class behind a look ahead.
  Result<void> Class() {
    const size_t begin = out_.size();
    TIDEMILL_TRY_VOID(ClassBody());
    if (!Next("&&")) {
      ++at_;
      out_ += ']';
      return {};
    }
    if (out_[begin + 1] == '^') return Refuse("&& in a class that begins with ^");
    at_ += 2;
    if (!Next("[^")) return Refuse("&& before anything but [^");
    std::string first = out_.substr(begin) + "]";
    out_.resize(begin);
    ++at_;
    out_ += '[';
    TIDEMILL_TRY_VOID(ClassRest());
    if (Next("&&")) return Refuse("&& in &&");
    ++at_;
    if (!Next("]")) return Refuse("anything behind [^...] after &&");
    ++at_;
    // "[^B" without its '^' is what must not follow.
    std::string excluded = "[" + out_.substr(begin + 2) + "]";
    out_.resize(begin);
    out_ += "(?:(?!" + excluded + ")" + first + ")";
    return {};
  }

  Result<void> ClassBody() {
    out_ += in_[at_++];
    return ClassRest();
  }

  // Up to the ']' or '&&' that ends it.
  Result<void> ClassRest() {
    if (Next("^")) out_ += in_[at_++];
    bool is_first = true, after_class = false;
    while (at_ < in_.size()) {
      const bool was_class = std::exchange(after_class, false);
      if (was_class && Next("-")) {  // no range begins at a class
        out_ += "\\-";
        ++at_;
      } else if (Next("[:")) {
        after_class = true;
        const size_t end = std::min(in_.find(":]", at_), in_.size());
        const std::string_view known = PosixClass(in_.substr(at_ + 2, end - at_ - 2));
        if (known.empty()) return Refuse("[ in a class");
        out_ += known;
        at_ = end + 2;
      } else if (Next("[")) {
        return Refuse("[ in a class");
      } else if (Next("&&") || (Next("]") && !is_first)) {
        return {};
      } else if (Next("]")) {
        out_ += "\\]";
        ++at_;
      } else if (Next("\\")) {
        constexpr std::string_view kClasses = "sSwhdDpP";
        after_class = at_ + 1 < in_.size() && kClasses.find(in_[at_ + 1]) != std::string_view::npos;
        TIDEMILL_TRY_VOID(ClassEscape());
      } else {
        // PCRE2 would take "[." and its like for the names of classes.
        if (is_first && (Next(".") || Next(":") || Next("="))) out_ += '\\';
        out_ += in_[at_++];
      }
      is_first = false;
    }
    return Corrupt("'[' without ']'");
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateExpression(std::string_view expression) {
  if (expression.size() > kMaxExpressionBytes) {
    return Error(ErrorCode::kUnsupported, "regular expression " + QuoteName(expression) + ": expected at most " +
                                              std::to_string(kMaxExpressionBytes) + " bytes, found " +
                                              std::to_string(expression.size()));
  }
  return Translator(expression).Run();
}

}  // namespace tidemill
