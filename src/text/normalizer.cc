#include "text/normalizer.h"

#include <algorithm>
#include <utility>

#include "text/jinja_unicode.h"
#include "text/nfc.h"
#include "text/unicode_class.h"
#include "text/utf8.h"

namespace tidemill {
namespace {

bool IsWhite(const Utf8Char& c) { return c.status == Utf8Status::kValid && (ClassesOf(c.code_point) & kSpace) != 0; }

bool IsHan(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// `text` with append(character, its bytes, out) for each character; bytes that are none stay.
template <typename Append>
std::string MapCharacters(std::string_view text, const Append& append) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char next = DecodeUtf8(text);
    const size_t length = next.status == Utf8Status::kValid ? next.length : 1;
    if (next.status == Utf8Status::kValid) {
      append(next, text.substr(0, length), out);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

size_t WhiteAtStart(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const Utf8Char next = DecodeUtf8(text.substr(end));
    if (!IsWhite(next)) break;
    end += next.length;
  }
  return end;
}

// Where the white space at the end begins.
size_t WhiteAtEnd(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t before = begin - 1;
    while (before > 0 && begin - before < 4 && (text[before] & 0xC0) == 0x80) --before;
    const Utf8Char last = DecodeUtf8(text.substr(before, begin - before));
    if (!IsWhite(last) || last.length != begin - before) break;
    begin = before;
  }
  return begin;
}

// All of this stops where `out` has more than `max_bytes`, which the caller refuses.
std::string ReplaceText(std::string_view text, const NormalizerStep& spec, size_t max_bytes) {
  const std::string_view pattern = spec.pattern, content = spec.content;
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0;;) {
    const size_t found = text.find(pattern, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += content;
    if (out.size() > max_bytes) return out;
    at = found + pattern.size();
  }
}

struct Search {
  const Regex& regex;
  Regex::Scratch& scratch;
  RegexBudget& budget;
};

Result<void> ReplaceMatches(std::string_view text, const Search& search, std::string_view content, size_t max_bytes,
                            std::string& out) {
  size_t done = 0;
  for (size_t from = 0; from <= text.size() && out.size() <= max_bytes;) {
    TIDEMILL_TRY(match, search.regex.Find(text, from, search.scratch, search.budget));
    if (!match) break;
    out += text.substr(done, match->begin - done);
    done = match->end;
    if (match->begin < match->end) {
      out += content;
      from = done;
      continue;
    }
    out += content;  // for nothing; then on with the next character
    if (done == text.size()) break;
    from = done + DecodeUtf8(text.substr(done)).length;
  }
  out += text.substr(done);
  return {};
}

Result<std::string> Replace(std::string_view text, const Search& search, std::string_view content, size_t max_bytes) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty() && out.size() <= max_bytes) {
    size_t valid = 0;
    Utf8Char next;
    while (valid < text.size() && (next = DecodeUtf8(text.substr(valid))).status == Utf8Status::kValid)
      valid += next.length;
    if (valid > 0) TIDEMILL_TRY_VOID(ReplaceMatches(text.substr(0, valid), search, content, max_bytes, out));
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += text[0];
    text.remove_prefix(1);
  }
  return out;
}

std::string Lowercase(std::string_view text) {
  return MapCharacters(
      text, [](const Utf8Char& c, std::string_view, std::string& out) { jinja::AppendLower(c.code_point, out); });
}

std::string SpacesForWhite(std::string_view text) {
  return MapCharacters(
      text, [](const Utf8Char& c, std::string_view bytes, std::string& out) { out += IsWhite(c) ? " " : bytes; });
}

std::string IsolateHan(std::string_view text) {
  return MapCharacters(text, [](const Utf8Char& c, std::string_view bytes, std::string& out) {
    const bool is_han = IsHan(c.code_point);
    if (is_han) out += ' ';
    out += bytes;
    if (is_han) out += ' ';
  });
}

}  // namespace

Result<Normalizer> Normalizer::Create(std::vector<NormalizerStep> steps) {
  Normalizer made;
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
  std::string normal(text);
  for (const Step& step : steps_) {
    const NormalizerStep& spec = step.spec;
    switch (spec.kind) {
      case NormalizerKind::kNfc: normal = ToNfc(normal); break;
      case NormalizerKind::kNfd: normal = ToNfd(normal); break;
      case NormalizerKind::kLowercase: normal = Lowercase(normal); break;
      case NormalizerKind::kSpacesForWhite: normal = SpacesForWhite(normal); break;
      case NormalizerKind::kIsolateHan: normal = IsolateHan(normal); break;
      case NormalizerKind::kPrepend:
        if (!normal.empty()) normal.insert(0, spec.content);
        break;
      case NormalizerKind::kStripLeft: normal.erase(0, WhiteAtStart(normal)); break;
      case NormalizerKind::kStripRight: normal.resize(WhiteAtEnd(normal)); break;
      case NormalizerKind::kReplace: {
        if (!step.regex) {
          normal = ReplaceText(normal, spec, max_bytes);
          break;
        }
        TIDEMILL_TRY(replaced, Replace(normal, {*step.regex, scratch, budget}, spec.content, max_bytes));
        normal = std::move(replaced);
        break;
      }
      case NormalizerKind::kCharsMap: {
        TIDEMILL_TRY(mapped, step.map.Map(normal, max_bytes, scratch, budget));
        normal = std::move(mapped);
        break;
      }
    }
    if (normal.size() > max_bytes) {
      return Error(ErrorCode::kInvalidArgument, "normalize a text of " + std::to_string(text.size()) +
                                                    " bytes: expected at most " + std::to_string(max_bytes) +
                                                    " then, found " + std::to_string(normal.size()));
    }
  }
  return normal;
}

}  // namespace tidemill
