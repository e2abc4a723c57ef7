// The pre_tokenizer of a tokenizer.json: each kind as splits at the matches of an expression.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/printable_name.h"
#include "text/tokenizer_steps.h"
#include "text/utf8.h"

namespace tidemill {
namespace {

// Characters that Rust's standard library and the crate `regex` put into these classes.
constexpr std::string_view kRustNumeric = R"(\p{N})";
constexpr std::string_view kWordsOrPunctuation =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)";

Result<SplitBehavior> ReadBehavior(std::string_view name, std::string_view where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return Corrupt(std::string(where) +
                 ": behavior: expected Removed, Isolated, MergedWithPrevious, MergedWithNext or "
                 "Contiguous, found " +
                 QuoteName(name));
}

Result<PreTokenizerStep> ReadSplit(const JsonValue& settings) {
  const std::string where = "pre_tokenizer: Split";
  auto expression = FindPattern(settings, "Regex");
  auto text = FindPattern(settings, "String");
  if (!expression && !text) return Unsupported(where + ": pattern: expected a Regex or a String, found another kind");
  TIDEMILL_TRY(name, GetString(settings, "behavior", where));
  TIDEMILL_TRY(behavior, ReadBehavior(name, where));
  TIDEMILL_TRY(invert, GetBool(settings, "invert", where, false));
  PreTokenizerStep step = PreTokenizerStep::Split(std::move(expression ? *expression : *text), behavior);
  step.is_literal = !expression;
  step.invert = invert;
  return step;
}

Result<PreTokenizerStep> ReadMetaspace(const JsonValue& settings) {
  const std::string where = "pre_tokenizer: Metaspace";
  PreTokenizerStep step;
  step.kind = PreTokenizerKind::kMetaspace;
  TIDEMILL_TRY(replacement, GetString(settings, "replacement", where));
  const Utf8Char character = replacement.empty() ? Utf8Char() : DecodeUtf8(replacement);
  if (character.status != Utf8Status::kValid || character.length != replacement.size())
    return Corrupt(where + ": replacement: expected one character, found " + QuoteName(replacement));
  step.replacement = std::move(replacement);
  TIDEMILL_TRY(scheme, ReadPrependScheme(settings, where));
  step.scheme = scheme;
  TIDEMILL_TRY(split, GetBool(settings, "split", where, true));
  step.split = split;
  return step;
}

// ByteLevel, the last step or not.
Result<void> ReadByteLevel(const JsonValue& settings, bool is_last, std::vector<PreTokenizerStep>& out) {
  const std::string where = "pre_tokenizer: ByteLevel";
  TIDEMILL_TRY(add_prefix_space, GetBool(settings, "add_prefix_space", where, true));
  TIDEMILL_TRY(use_regex, GetBool(settings, "use_regex", where, true));
  if (add_prefix_space) out.push_back({.kind = PreTokenizerKind::kPrefixSpace});
  if (use_regex) out.push_back(PreTokenizerStep::Split(std::string(ExpressionOf(WordRule::kGpt2))));
  if (!is_last) out.push_back({.kind = PreTokenizerKind::kSpellBytes});
  return {};
}

Result<void> ReadPreTokenizerStep(const TokenizerStep& step, bool is_last, std::vector<PreTokenizerStep>& out) {
  const std::string where = "pre_tokenizer: " + step.type;
  const auto split = [&out](std::string_view expression, SplitBehavior behavior) {
    out.push_back(PreTokenizerStep::Split(std::string(expression), behavior));
  };
  if (step.type == "ByteLevel") return ReadByteLevel(step.settings, is_last, out);
  if (step.type == "Split") {
    TIDEMILL_TRY(read, ReadSplit(step.settings));
    out.push_back(std::move(read));
  } else if (step.type == "Metaspace") {
    TIDEMILL_TRY(read, ReadMetaspace(step.settings));
    out.push_back(std::move(read));
  } else if (step.type == "Digits") {
    TIDEMILL_TRY(each, GetBool(step.settings, "individual_digits", where, false));
    split(each ? std::string(kRustNumeric) : std::string(kRustNumeric) + "+", SplitBehavior::kIsolated);
  } else if (step.type == "Punctuation") {
    const auto named = FindPart(step.settings, "behavior");
    TIDEMILL_TRY(behavior, ReadBehavior(named && named->is_string() ? named->text() : "Isolated", where));
    split(kPunctuationClass, behavior);
  } else if (step.type == "Whitespace") {
    split(kWordsOrPunctuation, SplitBehavior::kRemoved);
    out.back().invert = true;
  } else if (step.type == "WhitespaceSplit") {
    split(R"(\s)", SplitBehavior::kRemoved);
  } else if (step.type == "BertPreTokenizer") {
    for (PreTokenizerStep& words : BertWords()) out.push_back(std::move(words));
  } else if (step.type == "CharDelimiterSplit") {
    TIDEMILL_TRY(delimiter, GetString(step.settings, "delimiter", where));
    split(delimiter, SplitBehavior::kRemoved);
    out.back().is_literal = true;
  } else {
    return Unsupported(
        "pre_tokenizer: expected BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, "
        "Punctuation, Split, Whitespace or WhitespaceSplit, found " +
        QuoteName(step.type));
  }
  return {};
}

}  // namespace

Result<PrependScheme> ReadPrependScheme(const JsonValue& settings, std::string_view where) {
  TIDEMILL_TRY(add_prefix_space, GetBool(settings, "add_prefix_space", where, true));  // how older files said "never"
  const auto scheme = FindPart(settings, "prepend_scheme");
  if (!add_prefix_space) return PrependScheme::kNever;
  if (!scheme || IsText(*scheme, "always")) return PrependScheme::kAlways;
  if (IsText(*scheme, "first")) return PrependScheme::kFirst;
  if (IsText(*scheme, "never")) return PrependScheme::kNever;
  return Corrupt(std::string(where) + ": prepend_scheme: expected always, first or never, found " +
                 DescribeString(*scheme));
}

Result<void> ReadPreTokenizer(const JsonValue& root, TokenizerSpec& spec) {
  TIDEMILL_TRY(steps, ReadStepList(root, "pre_tokenizer", "pretokenizers"));
  size_t num_byte_level = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].type == "ByteLevel") ++num_byte_level;
    TIDEMILL_TRY_VOID(ReadPreTokenizerStep(steps[i], i + 1 == steps.size(), spec.pre_tokenizer));
  }
  if (num_byte_level == (spec.kind == VocabularyKind::kByteLevel ? 1 : 0)) return {};
  return Unsupported(std::string("pre_tokenizer: expected ByteLevel ") +
                     (spec.kind == VocabularyKind::kByteLevel ? "once" : "with BPE over bytes only") + ", found " +
                     NameSteps(steps));
}

}  // namespace tidemill
