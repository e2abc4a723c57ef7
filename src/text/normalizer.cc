#include "text/normalizer.h"

#include <algorithm>
#include <utility>

#include "text/jinja_unicode.h"
#include "text/nfc.h"
#include "text/utf8.h"
#include "text/white_space.h"

namespace tidemill {
namespace {

bool IsHan(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// What a step makes: parts of its input, and what stands for such parts.
class Output {
 public:
  explicit Output(const MarkedText& in) : in_(in) { out_.text.reserve(in.text.size()); }

  size_t size() const { return out_.text.size(); }
  // Bytes [begin, end) of the input as they are.
  void Copy(size_t begin, size_t end) {
    out_.text.append(in_.text, begin, end - begin);
    if (!in_.marks.empty()) out_.marks.insert(out_.marks.end(), MarkAt(begin), MarkAt(end));
  }
  // `content` for bytes [begin, end). For nothing it is marked where a byte beside it is.
  void Put(std::string_view content, size_t begin, size_t end) {
    out_.text += content;
    if (in_.marks.empty()) return;
    if (begin == end) {
      if (begin > 0) --begin;
      if (end < in_.text.size()) ++end;
    }
    out_.marks.resize(out_.text.size(), std::find(MarkAt(begin), MarkAt(end), true) != MarkAt(end));
  }
  MarkedText Take() { return std::move(out_); }

 private:
  std::vector<bool>::const_iterator MarkAt(size_t i) const {
    return in_.marks.begin() + static_cast<std::ptrdiff_t>(i);
  }

  const MarkedText& in_;
  MarkedText out_;
};

// append(character, its bytes, content) says what stands for each character; bytes that are none stay.
template <typename Append>
MarkedText MapCharacters(const MarkedText& in, const Append& append) {
  Output out(in);
  const std::string_view text = in.text;
  std::string content;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = DecodeUtf8(text.substr(at));
    const bool is_valid = next.status == Utf8Status::kValid;
    const size_t end = at + (is_valid ? next.length : 1);
    content.clear();
    if (is_valid) append(next, text.substr(at, end - at), content);
    out.Put(is_valid ? std::string_view(content) : text.substr(at, 1), at, end);
    at = end;
  }
  return out.Take();
}

// By parts that nothing composes or moves across: ASCII but for the last character of a run, and what follows it.
MarkedText NormalizeForm(const MarkedText& in, std::string (*form)(std::string_view)) {
  if (in.marks.empty()) return {form(in.text), {}};
  Output out(in);
  const std::string_view text = in.text;
  const auto is_ascii = [&](size_t i) { return (text[i] & 0x80) == 0; };
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && !is_ascii(end)) ++end;
    out.Put(form(text.substr(at, end - at)), at, end);
    at = end;
  }
  return out.Take();
}

MarkedText Slice(const MarkedText& in, size_t begin, size_t end) {
  Output out(in);
  out.Copy(begin, end);
  return out.Take();
}

// All of this stops where the output has more than `max_bytes`, which the caller refuses.
MarkedText ReplaceText(const MarkedText& in, const NormalizerStep& spec, size_t max_bytes) {
  Output out(in);
  size_t done = 0;
  for (size_t found = in.text.find(spec.pattern); found != std::string::npos && out.size() <= max_bytes;
       found = in.text.find(spec.pattern, done)) {
    out.Copy(done, found);
    done = found + spec.pattern.size();
    out.Put(spec.content, found, done);
  }
  out.Copy(done, in.text.size());
  return out.Take();
}

struct Search {
  const Regex& regex;
  Regex::Scratch& scratch;
  RegexBudget& budget;
};

// In bytes [begin, end) of `text`, which are valid.
Result<void> ReplaceMatches(std::string_view text, size_t begin, size_t end, const Search& search,
                            std::string_view content, size_t max_bytes, Output& out) {
  const std::string_view part = text.substr(begin, end - begin);
  size_t done = 0;
  for (size_t from = 0; from <= part.size() && out.size() <= max_bytes;) {
    TIDEMILL_TRY(match, search.regex.Find(part, from, search.scratch, search.budget));
    if (!match) break;
    out.Copy(begin + done, begin + match->begin);
    done = match->end;
    out.Put(content, begin + match->begin, begin + match->end);
    from = done;
    if (match->begin < match->end) continue;
    if (done == part.size()) break;  // an empty one: on with the next character
    from += DecodeUtf8(part.substr(done)).length;
  }
  out.Copy(begin + done, end);
  return {};
}

Result<MarkedText> Replace(const MarkedText& in, const Search& search, std::string_view content, size_t max_bytes) {
  Output out(in);
  const std::string_view text = in.text;
  for (size_t at = 0; at < text.size() && out.size() <= max_bytes;) {
    size_t valid = at;
    Utf8Char next;
    while (valid < text.size() && (next = DecodeUtf8(text.substr(valid))).status == Utf8Status::kValid)
      valid += next.length;
    if (valid > at) TIDEMILL_TRY_VOID(ReplaceMatches(text, at, valid, search, content, max_bytes, out));
    at = valid;
    if (at < text.size()) out.Copy(at, at + 1);
    ++at;
  }
  return out.Take();
}

MarkedText Lowercase(const MarkedText& in) {
  return MapCharacters(
      in, [](const Utf8Char& c, std::string_view, std::string& out) { jinja::AppendLower(c.code_point, out); });
}

MarkedText SpacesForWhite(const MarkedText& in) {
  return MapCharacters(
      in, [](const Utf8Char& c, std::string_view bytes, std::string& out) { out += IsWhiteSpace(c) ? " " : bytes; });
}

MarkedText IsolateHan(const MarkedText& in) {
  return MapCharacters(in, [](const Utf8Char& c, std::string_view bytes, std::string& out) {
    const bool is_han = IsHan(c.code_point);
    if (is_han) out += ' ';
    out += bytes;
    if (is_han) out += ' ';
  });
}

// The map says nothing of what became what: with one mark all is marked.
Result<MarkedText> MapAll(const MarkedText& in, const CharsMap& map, size_t max_bytes, Regex::Scratch& scratch,
                          RegexBudget& budget) {
  TIDEMILL_TRY(mapped, map.Map(in.text, max_bytes, scratch, budget));
  Output out(in);
  if (!mapped.empty()) out.Put(mapped, 0, in.text.size());
  return out.Take();
}

}  // namespace

std::vector<NormalizerStep> BertSteps(const BertNormalizing& settings) {
  std::vector<NormalizerStep> steps;
  const auto remove = [&steps](std::string_view expression) {
    steps.push_back({.kind = NormalizerKind::kReplace, .pattern = std::string(expression)});
  };
  if (settings.clean_text) {
    remove(kBertRemoves);
    steps.push_back({.kind = NormalizerKind::kSpacesForWhite});
  }
  if (settings.isolate_han) steps.push_back({.kind = NormalizerKind::kIsolateHan});
  if (settings.strip_accents) {
    steps.push_back({.kind = NormalizerKind::kNfd});
    remove(R"(\p{Mn})");
  }
  if (settings.lowercase) steps.push_back({.kind = NormalizerKind::kLowercase});
  return steps;
}

Result<Normalizer> Normalizer::Create(std::vector<NormalizerStep> steps) {
  Normalizer made;
  if (steps.size() > kMaxTextSteps) {
    return Error(ErrorCode::kUnsupported, "normalizer: expected at most " + std::to_string(kMaxTextSteps) +
                                              " steps, found " + std::to_string(steps.size()));
  }
  for (NormalizerStep& spec : steps) {
    Step step;
    if (spec.kind == NormalizerKind::kReplace) {
      if (spec.pattern.empty()) {
        return Error(ErrorCode::kUnsupported, "normalizer: Replace: expected a pattern, found an empty one");
      }
      if (!spec.is_literal) {
        TIDEMILL_TRY(regex, Regex::Compile(spec.pattern));
        step.regex = std::move(regex);
      }
    } else if (spec.kind == NormalizerKind::kCharsMap) {
      TIDEMILL_TRY(map, CharsMap::Create(spec.content, spec.search));
      step.map = std::move(map);
      spec.content.clear();
    }
    step.spec = std::move(spec);
    made.steps_.push_back(std::move(step));
  }
  return made;
}

Result<std::string> Normalizer::Normalize(std::string_view text, size_t max_bytes, Regex::Scratch& scratch,
                                          RegexBudget& budget) const {
  TIDEMILL_TRY(normal, Normalize(MarkedText{std::string(text), {}}, max_bytes, scratch, budget));
  return std::move(normal.text);
}

Result<MarkedText> Normalizer::Normalize(MarkedText text, size_t max_bytes, Regex::Scratch& scratch,
                                         RegexBudget& budget) const {
  const size_t given = text.text.size();
  for (const Step& step : steps_) {
    const NormalizerStep& spec = step.spec;
    switch (spec.kind) {
      case NormalizerKind::kNfc: text = NormalizeForm(text, ToNfc); break;
      case NormalizerKind::kNfd: text = NormalizeForm(text, ToNfd); break;
      case NormalizerKind::kLowercase: text = Lowercase(text); break;
      case NormalizerKind::kSpacesForWhite: text = SpacesForWhite(text); break;
      case NormalizerKind::kIsolateHan: text = IsolateHan(text); break;
      case NormalizerKind::kPrepend:
        if (text.text.empty()) break;
        text.text.insert(0, spec.content);
        if (!text.marks.empty()) text.marks.insert(text.marks.begin(), spec.content.size(), false);
        break;
      case NormalizerKind::kStripLeft: text = Slice(text, WhiteSpaceEnd(text.text, 0), text.text.size()); break;
      case NormalizerKind::kStripRight: text = Slice(text, 0, WhiteSpaceBegin(text.text, 0)); break;
      case NormalizerKind::kReplace: {
        if (!step.regex) {
          text = ReplaceText(text, spec, max_bytes);
          break;
        }
        TIDEMILL_TRY(replaced, Replace(text, {*step.regex, scratch, budget}, spec.content, max_bytes));
        text = std::move(replaced);
        break;
      }
      case NormalizerKind::kCharsMap: {
        TIDEMILL_TRY(mapped, MapAll(text, step.map, max_bytes, scratch, budget));
        text = std::move(mapped);
        break;
      }
    }
    if (text.text.size() > max_bytes) {
      return Error(ErrorCode::kInvalidArgument, "normalize a text of " + std::to_string(given) +
                                                    " bytes: expected at most " + std::to_string(max_bytes) +
                                                    " then, found " + std::to_string(text.text.size()));
    }
  }
  return text;
}

}  // namespace tidemill
