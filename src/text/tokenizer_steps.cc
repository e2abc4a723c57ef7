#include "text/tokenizer_steps.h"

#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/printable_name.h"
#include "text/piece_symbols.h"

namespace tidemill {
namespace {

// The regular expressions of word_splitter.h, as files spell them.
struct KnownExpression {
  std::string_view expression;
  std::string_view pre_tokenizer;
};
constexpr auto kExpressions = std::to_array<KnownExpression>({
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "gpt-2"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
});

// One step of a part, after Sequences are taken apart.
struct Step {
  std::string type;
  JsonValue settings;
};

// Appends the steps of `value` to `steps`. `list` is what a Sequence of this part calls its steps.
Result<void> Flatten(const JsonValue& value, std::string_view where, std::string_view list, std::vector<Step>& steps) {
  if (!value.is_object()) return Corrupt(std::string(where) + ": expected an object, found another value");
  TIDEMILL_TRY(type, GetString(value, "type", where));
  if (type != "Sequence") {
    steps.push_back({std::move(type), value});
    return {};
  }
  const auto parts = FindPart(value, list);
  if (!parts || !parts->is_array()) {
    return Corrupt(std::string(where) + ": Sequence: " + std::string(list) + ": expected a list, found none");
  }
  for (const JsonValue& part : parts->Elements())
    TIDEMILL_TRY_VOID(Flatten(part, where, list, steps));  // as deep as a document may be
  return {};
}

Result<std::vector<Step>> ReadPart(const JsonValue& root, std::string_view where, std::string_view list) {
  std::vector<Step> steps;
  if (const auto part = FindPart(root, where)) TIDEMILL_TRY_VOID(Flatten(*part, where, list, steps));
  return steps;
}

// "Digits, ByteLevel"
std::string NameSteps(std::span<const Step> steps) {
  std::string names;
  for (const Step& step : steps) names += (names.empty() ? "" : ", ") + QuoteName(step.type);
  return names.empty() ? "none" : names;
}

// The string of {"<key>": {"<kind>": "..."}}, such as {"pattern": {"Regex": "..."}}; nothing when it is of another kind.
std::optional<std::string> FindPattern(const JsonValue& settings, std::string_view kind) {
  const auto pattern = FindPart(settings, "pattern");
  if (!pattern || !pattern->is_object()) return std::nullopt;
  const auto text = FindPart(*pattern, kind);
  if (!text || !text->is_string()) return std::nullopt;
  return std::string(text->text());
}

bool IsStringEqual(const JsonValue& settings, std::string_view key, std::string_view value) {
  const auto found = FindPart(settings, key);
  return found && IsText(*found, value);
}

bool IsReplace(const Step& step, std::string_view pattern, std::string_view content) {
  return step.type == "Replace" && FindPattern(step.settings, "String") == pattern &&
         IsStringEqual(step.settings, "content", content);
}

Result<void> ReadNormalizer(const JsonValue& root, TokenizerSpec& spec) {
  TIDEMILL_TRY(steps, ReadPart(root, "normalizer", "normalizers"));
  if (spec.kind == VocabularyKind::kByteLevel) {
    if (steps.empty()) return {};
    spec.normalize_nfc = steps.size() == 1 && steps[0].type == "NFC";
    if (spec.normalize_nfc) return {};
    return Unsupported("normalizer: expected none or NFC, found " + NameSteps(steps));
  }
  spec.add_space_prefix =
      steps.size() == 2 && steps[0].type == "Prepend" && IsStringEqual(steps[0].settings, "prepend", kPieceSpaceUtf8);
  if (steps.size() == (spec.add_space_prefix ? 2u : 1u) && IsReplace(steps.back(), " ", kPieceSpaceUtf8)) return {};
  return Unsupported(
      "normalizer: expected Replace of spaces by U+2581 with byte_fallback, after Prepend or not, found " +
      NameSteps(steps));
}

// The name of the rule that a Split's regular expression is.
Result<std::string> ReadSplit(const JsonValue& settings) {
  const std::string where = "pre_tokenizer: Split";
  const std::optional<std::string> expression = FindPattern(settings, "Regex");
  if (!expression) return Unsupported(where + ": pattern: expected a Regex, found another kind");
  TIDEMILL_TRY(behavior, GetString(settings, "behavior", where));
  TIDEMILL_TRY(invert, GetBool(settings, "invert", where, false));
  // The expressions match everything, so to keep the matches alone is to keep all.
  const bool keeps_all = (behavior == "Isolated" && !invert) || (behavior == "Removed" && invert);
  if (!keeps_all) {
    return Unsupported(where + ": expected behavior Isolated, found " + QuoteName(behavior) +
                       (invert ? ", inverted" : ""));
  }
  for (const auto& [known, name] : kExpressions) {
    if (*expression == known) return std::string(name);
  }
  return Unsupported(where + ": regular expression " + QuoteName(*expression) +
                     ": expected one of gpt-2, llama3 or qwen2");
}

Result<void> ReadByteLevelSplit(std::span<const Step> steps, TokenizerSpec& spec) {
  const auto unknown = [&] {
    return Unsupported("pre_tokenizer: expected ByteLevel, after Digits or Split or nothing, found " +
                       NameSteps(steps));
  };
  if (steps.empty() || steps.size() > 2 || steps.back().type != "ByteLevel") return unknown();
  const JsonValue& byte_level = steps.back().settings;
  TIDEMILL_TRY(add_prefix_space, GetBool(byte_level, "add_prefix_space", "pre_tokenizer: ByteLevel", true));
  if (add_prefix_space) {
    return Unsupported("pre_tokenizer: ByteLevel: add_prefix_space: expected false, found true");
  }
  TIDEMILL_TRY(use_regex, GetBool(byte_level, "use_regex", "pre_tokenizer: ByteLevel", true));
  const std::string first = steps.size() == 2 ? steps[0].type : "";
  if (first == "Split") {
    if (use_regex) return Unsupported("pre_tokenizer: ByteLevel after Split: use_regex: expected false, found true");
    TIDEMILL_TRY(name, ReadSplit(steps[0].settings));
    spec.pre_tokenizer = std::move(name);
    return {};
  }
  if (!use_regex) return Unsupported("pre_tokenizer: ByteLevel: use_regex: expected true, found false");
  if (first.empty()) {
    spec.pre_tokenizer = "gpt-2";
    return {};
  }
  if (first != "Digits") return unknown();
  TIDEMILL_TRY(each, GetBool(steps[0].settings, "individual_digits", "pre_tokenizer: Digits", false));
  if (!each) return Unsupported("pre_tokenizer: Digits: individual_digits: expected true, found false");
  spec.pre_tokenizer = "smollm";
  return {};
}

Result<void> ReadPreTokenizer(const JsonValue& root, TokenizerSpec& spec) {
  TIDEMILL_TRY(steps, ReadPart(root, "pre_tokenizer", "pretokenizers"));
  if (spec.kind == VocabularyKind::kByteLevel) return ReadByteLevelSplit(steps, spec);
  if (steps.empty()) return {};
  // A Split at spaces, which the normalizer has replaced, finds none.
  if (steps.size() == 1 && steps[0].type == "Split" && FindPattern(steps[0].settings, "String") == " ") return {};
  return Unsupported("pre_tokenizer: expected none with byte_fallback, found " + NameSteps(steps));
}

// The one id that a token of a template stands for.
Result<int32_t> ReadTemplateToken(const JsonValue& settings, const JsonValue& item) {
  constexpr std::string_view kWhere = "post_processor: TemplateProcessing";
  TIDEMILL_TRY(name, GetString(item, "id", kWhere));
  const auto tokens = FindPart(settings, "special_tokens");
  const auto token = tokens && tokens->is_object() ? FindPart(*tokens, name) : std::nullopt;
  const auto ids = token && token->is_object() ? FindPart(*token, "ids") : std::nullopt;
  std::optional<uint64_t> id;
  for (const JsonValue& element : ids && ids->size() == 1 ? ids->Elements() : std::vector<JsonValue>()) {
    if (const auto whole = element.GetUint("", 0, UINT64_MAX); whole.ok()) id = *whole;
  }
  if (!id) return Unsupported(std::string(kWhere) + ": special token " + QuoteName(name) + ": expected one id");
  if (*id > INT32_MAX) return Corrupt(std::string(kWhere) + ": special token " + QuoteName(name) + ": id out of range");
  return static_cast<int32_t>(*id);
}

Result<void> ReadTemplate(const JsonValue& settings, TokenizerSpec& spec) {
  constexpr std::string_view kWhere = "post_processor: TemplateProcessing";
  const auto items = FindPart(settings, "single");
  if (!items || !items->is_array()) return Corrupt(std::string(kWhere) + ": single: expected a list, found none");
  const Error unknown = Unsupported(std::string(kWhere) +
                                    ": single: expected the text once, with at most one token before it and one after");
  bool has_text = false;
  for (const JsonValue& item : items->Elements()) {
    const auto token = FindPart(item, "SpecialToken");
    if (!token) {
      if (has_text || !item.is_object() || !FindPart(item, "Sequence")) return unknown;
      has_text = true;
      continue;
    }
    if (!token->is_object()) return unknown;
    TIDEMILL_TRY(id, ReadTemplateToken(settings, *token));
    if (has_text ? spec.add_eos : spec.add_bos) return unknown;
    (has_text ? spec.eos_id : spec.bos_id) = id;
    (has_text ? spec.add_eos : spec.add_bos) = true;
  }
  if (!has_text) return unknown;
  return {};
}

Result<void> ReadPostProcessor(const JsonValue& root, TokenizerSpec& spec) {
  TIDEMILL_TRY(steps, ReadPart(root, "post_processor", "processors"));
  bool has_template = false;
  for (const Step& step : steps) {
    if (step.type == "ByteLevel") continue;  // it only moves offsets, which we do not report
    if (step.type != "TemplateProcessing" || has_template) {
      return Unsupported("post_processor: expected ByteLevel and one TemplateProcessing, found " + NameSteps(steps));
    }
    has_template = true;
    TIDEMILL_TRY_VOID(ReadTemplate(step.settings, spec));
  }
  return {};
}

bool StripsOneSpace(const Step& step) {
  const auto is_count = [&](std::string_view key, int count) {
    const auto value = FindPart(step.settings, key);
    return value && IsNumber(*value, count);
  };
  return step.type == "Strip" && IsStringEqual(step.settings, "content", " ") && is_count("start", 1) &&
         is_count("stop", 0);
}

Result<void> CheckDecoder(const JsonValue& root, const TokenizerSpec& spec) {
  TIDEMILL_TRY(steps, ReadPart(root, "decoder", "decoders"));
  if (spec.kind == VocabularyKind::kByteLevel) {
    if (steps.size() == 1 && steps[0].type == "ByteLevel") return {};
    return Unsupported("decoder: expected ByteLevel, found " + NameSteps(steps));
  }
  const size_t num_known = spec.add_space_prefix && !steps.empty() && StripsOneSpace(steps.back()) ? 4 : 3;
  if (steps.size() == num_known && IsReplace(steps[0], kPieceSpaceUtf8, " ") && steps[1].type == "ByteFallback" &&
      steps[2].type == "Fuse") {
    return {};
  }
  return Unsupported(
      "decoder: expected Replace of U+2581 by a space, ByteFallback and Fuse with byte_fallback, found " +
      NameSteps(steps));
}

}  // namespace

std::optional<JsonValue> FindPart(const JsonValue& object, std::string_view key) {
  const auto found = object.Member(key);
  return found && found->is_null() ? std::nullopt : found;
}

Result<std::string> GetString(const JsonValue& object, std::string_view key, std::string_view where) {
  const auto value = FindPart(object, key);
  if (value && value->is_string()) return std::string(value->text());
  return Corrupt(std::string(where) + ": " + std::string(key) + ": expected a string, found " +
                 (!value ? "none" : "another value"));
}

Result<bool> GetBool(const JsonValue& object, std::string_view key, std::string_view where, bool fallback) {
  const auto value = FindPart(object, key);
  if (!value) return fallback;
  if (value->is_bool()) return value->GetBool("");
  return Corrupt(std::string(where) + ": " + std::string(key) + ": expected true or false, found another value");
}

std::string DescribeString(const JsonValue& value) {
  return value.is_string() ? QuoteName(value.text()) : std::string("that is no string");
}

bool IsText(const JsonValue& value, std::string_view text) { return value.is_string() && value.text() == text; }

bool IsNumber(const JsonValue& value, double number) {
  return value.is_number() && value.GetFloat("").value() == number;
}

Result<void> ReadSteps(const JsonValue& root, TokenizerSpec& spec) {
  TIDEMILL_TRY_VOID(ReadNormalizer(root, spec));
  TIDEMILL_TRY_VOID(ReadPreTokenizer(root, spec));
  TIDEMILL_TRY_VOID(ReadPostProcessor(root, spec));
  return CheckDecoder(root, spec);
}

}  // namespace tidemill
