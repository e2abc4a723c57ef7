#include "text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/normalizer.h"
#include "text/utf8.h"

namespace tidemill {
namespace {

constexpr char kMask = '\x01';  // a control character: no letter, number, space or punctuation

// `text` with kMask for each byte that does not belong to a valid character; empty when all do.
std::string MaskInvalid(std::string_view text) {
  if (IsValidUtf8(text)) return {};
  std::string masked(text);
  for (size_t i = 0; i < text.size();) {
    const Utf8Char next = DecodeUtf8(text.substr(i));
    if (next.status == Utf8Status::kValid) {
      i += next.length;
    } else {
      masked[i++] = kMask;
    }
  }
  return masked;
}

// Takes the stretches of a piece in order, matches and what lies between, and appends what `behavior` makes of them.
class Pieces {
 public:
  Pieces(const PreTokenizerStep& step, std::vector<ByteRange>& out)
      : behavior_(step.behavior), invert_(step.invert), first_(out.size()), out_(out) {}

  void Add(size_t begin, size_t end, bool is_match) {
    is_match = is_match != invert_;
    const bool is_first = out_.size() == first_;
    bool joins = false;
    switch (behavior_) {
      case SplitBehavior::kIsolated: break;
      case SplitBehavior::kRemoved:
        if (is_match) return;
        break;
      case SplitBehavior::kContiguous: joins = !is_first && is_match == was_match_; break;
      case SplitBehavior::kMergedWithPrevious: joins = !is_first && is_match && !was_match_; break;
      case SplitBehavior::kMergedWithNext: joins = !is_first && !is_match && was_match_; break;
    }
    was_match_ = is_match;
    if (joins) {
      out_.back().end = end;
    } else {
      out_.push_back({begin, end});
      has_empty_ = has_empty_ || begin == end;
    }
  }

  // Empty ones, which could still grow until now, are no words.
  void Finish() {
    if (!has_empty_) return;
    const auto first = out_.begin() + static_cast<std::ptrdiff_t>(first_);
    out_.erase(std::remove_if(first, out_.end(), [](const ByteRange& range) { return range.begin == range.end; }),
               out_.end());
  }

 private:
  SplitBehavior behavior_;
  bool invert_;
  size_t first_;
  std::vector<ByteRange>& out_;
  bool was_match_ = false;
  bool has_empty_ = false;
};

size_t CharacterEnd(std::string_view text, size_t at) { return at + DecodeUtf8(text.substr(at)).length; }

// Calls on_match(begin, end) for each match in `text`, left to right, as Oniguruma's find_iter gives them: an empty one is not given where
// the one before ended.
template <typename Find, typename OnMatch>
Result<void> ForEachMatch(std::string_view text, const Find& find, const OnMatch& on_match) {
  std::optional<size_t> last_end;
  for (size_t from = 0; from <= text.size();) {
    TIDEMILL_TRY(match, find(from));
    if (!match) break;
    const auto [begin, end] = *match;
    if (begin == end && last_end == begin) {
      if (begin == text.size()) break;
      from = CharacterEnd(text, begin);
      continue;
    }
    on_match(begin, end);
    last_end = end;
    from = end;
  }
  return {};
}

// Appends `text` with `replacement` for each space.
void AppendReplaced(std::string_view text, std::string_view replacement, std::string& out) {
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    out += text.substr(at, space - at);
    if (space < text.size()) out += replacement;
    at = space + 1;
  }
}

// Rewrites each word into new text: append(word, plan, out), where plan(word, is_first) is of the word as it is, not as it is masked.
template <typename Plan, typename Append>
void Rewrite(Words& words, const Plan& plan, const Append& append) {
  std::string text, masked;
  std::vector<ByteRange> list;
  list.reserve(words.list.size());
  text.reserve(words.text.size() + words.list.size());
  for (const ByteRange& word : words.list) {
    const size_t begin = text.size();
    const bool is_first = list.empty();
    const auto part = [&](const std::string& whole) {
      return std::string_view(whole).substr(word.begin, word.end - word.begin);
    };
    const bool planned = plan(part(words.text), is_first);
    append(part(words.text), planned, text);
    if (!words.masked.empty()) append(part(words.masked), planned, masked);
    list.push_back({begin, text.size()});
  }
  words.text = std::move(text);
  words.masked = std::move(masked);
  words.list = std::move(list);
}

}  // namespace

PreTokenizerStep PreTokenizerStep::Split(std::string expression, SplitBehavior behavior) {
  PreTokenizerStep step;
  step.expression = std::move(expression);
  step.behavior = behavior;
  return step;
}

std::vector<PreTokenizerStep> BertWords() {
  return {PreTokenizerStep::Split(R"(\s)", SplitBehavior::kRemoved),
          PreTokenizerStep::Split(std::string(kPunctuationClass))};
}

Result<PreTokenizer> PreTokenizer::Create(std::vector<PreTokenizerStep> steps) {
  PreTokenizer made;
  if (steps.size() > kMaxTextSteps) {
    return Error(ErrorCode::kUnsupported, "pre_tokenizer: expected at most " + std::to_string(kMaxTextSteps) +
                                              " steps, found " + std::to_string(steps.size()));
  }
  // Digits, then GPT-2's expression: one rule.
  if (steps.size() == 2 && steps[0].kind == PreTokenizerKind::kSplit && steps[0].expression == R"(\p{N})" &&
      steps[0].behavior == SplitBehavior::kIsolated && !steps[0].invert && !steps[0].is_literal &&
      steps[1].kind == PreTokenizerKind::kSplit && FindWordRule(steps[1].expression) == WordRule::kGpt2) {
    made.rule_ = WordRule::kDigitsThenGpt2;
  }
  for (PreTokenizerStep& step : steps) {
    Step compiled;
    if (step.kind == PreTokenizerKind::kSplit && step.is_literal && step.expression.empty()) {
      return Error(ErrorCode::kUnsupported, "pre_tokenizer: Split: expected some text to split at, found none");
    }
    if (step.kind == PreTokenizerKind::kSplit && !step.is_literal) {
      // The known expressions match everything, so to keep the matches alone is to keep all.
      const bool keeps_all = (step.behavior == SplitBehavior::kIsolated && !step.invert) ||
                             (step.behavior == SplitBehavior::kRemoved && step.invert);
      if (keeps_all) compiled.rule = FindWordRule(step.expression);
      if (!compiled.rule) {
        TIDEMILL_TRY(regex, Regex::Compile(step.expression));
        compiled.regex = std::move(regex);
      }
    }
    made.spells_bytes_ = made.spells_bytes_ || step.kind == PreTokenizerKind::kSpellBytes;
    compiled.spec = std::move(step);
    made.steps_.push_back(std::move(compiled));
  }
  if (made.steps_.size() == 1) made.rule_ = made.steps_[0].rule;
  return made;
}

Result<void> PreTokenizer::Split(std::string_view text, bool begins_input, RegexBudget& budget, Words& words) const {
  words.text = text;
  words.masked = MaskInvalid(text);
  words.list.clear();
  if (!text.empty()) words.list.push_back({0, text.size()});
  std::vector<ByteRange> pieces;
  for (const Step& step : steps_) {
    switch (step.spec.kind) {
      case PreTokenizerKind::kPrefixSpace:
        Rewrite(
            words, [](std::string_view word, bool) { return !word.starts_with(' '); },
            [](std::string_view word, bool wants, std::string& out) {
              if (wants) out += ' ';
              out += word;
            });
        continue;
      case PreTokenizerKind::kSpellBytes:
        words.masked.clear();
        Rewrite(
            words, [](std::string_view, bool) { return true; },
            [](std::string_view word, bool, std::string& out) { out += SpellBytes(word); });
        continue;
      case PreTokenizerKind::kMetaspace:
        Rewrite(
            words,
            [&](std::string_view word, bool is_first) {
              const bool is_meant = step.spec.scheme == PrependScheme::kAlways ||
                                    (step.spec.scheme == PrependScheme::kFirst && begins_input && is_first);
              return is_meant && !word.starts_with(' ') && !word.starts_with(step.spec.replacement);
            },
            [&](std::string_view word, bool wants, std::string& out) {
              if (wants) out += step.spec.replacement;
              AppendReplaced(word, step.spec.replacement, out);
            });
        if (!step.spec.split) continue;
        break;
      case PreTokenizerKind::kSplit: break;
    }
    const std::string_view subject = words.subject();
    pieces.clear();
    for (const ByteRange& word : words.list) {
      const std::string_view piece = subject.substr(word.begin, word.end - word.begin);
      if (step.rule) {
        WordSplitter splitter(*step.rule, piece);
        size_t at = word.begin;
        for (std::string_view next = splitter.Next(); !next.empty(); next = splitter.Next()) {
          pieces.push_back({at, at + next.size()});
          at += next.size();
        }
        continue;
      }
      PreTokenizerStep merged = {};
      merged.behavior = SplitBehavior::kMergedWithNext;
      const bool is_metaspace = step.spec.kind == PreTokenizerKind::kMetaspace;
      Pieces taken(is_metaspace ? merged : step.spec, pieces);
      const std::string_view literal = is_metaspace ? step.spec.replacement : step.spec.expression;
      const auto find = [&](size_t from) -> Result<std::optional<ByteRange>> {
        if (step.regex) return step.regex->Find(piece, from, words.regex, budget);
        const size_t found = literal.empty() ? std::string_view::npos : piece.find(literal, from);
        if (found == std::string_view::npos) return std::optional<ByteRange>();
        return std::optional(ByteRange{found, found + literal.size()});
      };
      size_t done = 0;
      TIDEMILL_TRY_VOID(ForEachMatch(piece, find, [&](size_t begin, size_t end) {
        if (done < begin) taken.Add(word.begin + done, word.begin + begin, false);
        taken.Add(word.begin + begin, word.begin + end, true);
        done = end;
      }));
      if (done < piece.size()) taken.Add(word.begin + done, word.begin + piece.size(), false);
      taken.Finish();
    }
    words.list.swap(pieces);
    // What stood at the start may be gone.
    begins_input = begins_input && !words.list.empty() && words.list.front().begin == 0;
  }
  return {};
}

}  // namespace tidemill
