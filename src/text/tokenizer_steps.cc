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

// Appends the steps of `value` to `steps`. `list` is what a Sequence of this part calls its steps.
Result<void> Flatten(const JsonValue& value, std::string_view where, std::string_view list,
                     std::vector<TokenizerStep>& steps) {
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

bool IsStringEqual(const JsonValue& settings, std::string_view key, std::string_view value) {
  const auto found = FindPart(settings, key);
  return found && IsText(*found, value);
}

bool IsReplace(const TokenizerStep& step, std::string_view pattern, std::string_view content) {
  return step.type == "Replace" && FindPattern(step.settings, "String") == pattern &&
         IsStringEqual(step.settings, "content", content);
}

constexpr size_t kMaxSideTokens = 64;  // before a text, and behind it

// The ids that a token of a template stands for.
Result<std::vector<int32_t>> ReadTemplateToken(const JsonValue& settings, const JsonValue& item) {
  constexpr std::string_view kWhere = "post_processor: TemplateProcessing";
  TIDEMILL_TRY(name, GetString(item, "id", kWhere));
  const auto tokens = FindPart(settings, "special_tokens");
  const auto token = tokens && tokens->is_object() ? FindPart(*tokens, name) : std::nullopt;
  const auto ids = token && token->is_object() ? FindPart(*token, "ids") : std::nullopt;
  const std::string where = std::string(kWhere) + ": special token " + QuoteName(name);
  if (!ids || !ids->is_array() || ids->size() == 0) return Corrupt(where + ": ids: expected a list, found none");
  std::vector<int32_t> read;
  for (const JsonValue& element : ids->Elements()) {
    const auto id = element.GetUint("", 0, INT32_MAX);
    if (!id.ok()) return Corrupt(where + ": ids: expected whole numbers below 2^31, found " + element.Describe());
    read.push_back(static_cast<int32_t>(*id));
  }
  return read;
}

Result<void> ReadTemplate(const JsonValue& settings, TokenizerSpec& spec) {
  constexpr std::string_view kWhere = "post_processor: TemplateProcessing";
  const auto items = FindPart(settings, "single");
  if (!items || !items->is_array()) return Corrupt(std::string(kWhere) + ": single: expected a list, found none");
  const Error unknown = Unsupported(std::string(kWhere) + ": single: expected the text once, and tokens around it");
  bool has_text = false;
  for (const JsonValue& item : items->Elements()) {
    const auto token = FindPart(item, "SpecialToken");
    if (!token) {
      if (has_text || !item.is_object() || !FindPart(item, "Sequence")) return unknown;
      has_text = true;
      continue;
    }
    if (!token->is_object()) return unknown;
    TIDEMILL_TRY(ids, ReadTemplateToken(settings, *token));
    std::vector<int32_t>& side = has_text ? spec.end_ids : spec.begin_ids;
    if (side.size() + ids.size() > kMaxSideTokens) {
      return Unsupported(std::string(kWhere) + ": single: expected at most " + std::to_string(kMaxSideTokens) +
                         " tokens on a side of the text");
    }
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!has_text) return unknown;
  return {};
}

// {"cls": ["<s>", 0], "sep": ["</s>", 2]}: the first goes before the text, the second behind it.
Result<void> ReadPair(const JsonValue& settings, std::string_view where, TokenizerSpec& spec) {
  for (const auto& [key, side] : {std::pair{"cls", &spec.begin_ids}, std::pair{"sep", &spec.end_ids}}) {
    const auto token = FindPart(settings, key);
    const auto parts = token && token->is_array() ? token->Elements() : std::vector<JsonValue>();
    const auto id = parts.size() == 2 ? parts[1].GetUint("", 0, INT32_MAX) : Result<uint64_t>(Corrupt(""));
    if (!id.ok()) {
      return Corrupt(std::string(where) + ": " + key + ": expected a token and its id, found " +
                     (token ? token->Describe() : "none"));
    }
    side->push_back(static_cast<int32_t>(*id));
  }
  return {};
}

bool StripsOneSpace(const TokenizerStep& step) {
  const auto is_count = [&](std::string_view key, int count) {
    const auto value = FindPart(step.settings, key);
    return value && IsNumber(*value, count);
  };
  return step.type == "Strip" && IsStringEqual(step.settings, "content", " ") && is_count("start", 1) &&
         is_count("stop", 0);
}

// Replace of U+2581 by a space, then perhaps ByteFallback, Fuse and Strip of one space.
bool IsPieceDecoder(std::span<const TokenizerStep> steps, bool& strips) {
  if (steps.empty() || !IsReplace(steps[0], kPieceSpaceUtf8, " ")) return false;
  size_t i = 1;
  if (i < steps.size() && steps[i].type == "ByteFallback") ++i;
  const bool fuses = i < steps.size() && steps[i].type == "Fuse";
  if (fuses) ++i;
  strips = fuses && i < steps.size() && StripsOneSpace(steps[i]);  // else each token would be stripped
  return i + (strips ? 1 : 0) == steps.size();
}

}  // namespace

Result<std::vector<TokenizerStep>> ReadStepList(const JsonValue& root, std::string_view where, std::string_view list) {
  std::vector<TokenizerStep> steps;
  if (const auto part = FindPart(root, where)) TIDEMILL_TRY_VOID(Flatten(*part, where, list, steps));
  return steps;
}

std::string NameSteps(std::span<const TokenizerStep> steps) {
  std::string names;
  for (const TokenizerStep& step : steps) names += (names.empty() ? "" : ", ") + QuoteName(step.type);
  return names.empty() ? "none" : names;
}

std::optional<std::string> FindPattern(const JsonValue& settings, std::string_view kind) {
  const auto pattern = FindPart(settings, "pattern");
  if (!pattern || !pattern->is_object()) return std::nullopt;
  const auto text = FindPart(*pattern, kind);
  if (!text || !text->is_string()) return std::nullopt;
  return std::string(text->text());
}

Result<void> ReadPostProcessor(const JsonValue& root, TokenizerSpec& spec) {
  TIDEMILL_TRY(steps, ReadStepList(root, "post_processor", "processors"));
  bool has_template = false;
  for (const TokenizerStep& step : steps) {
    if (step.type == "ByteLevel") continue;  // it only moves offsets, which we do not report
    const bool is_pair = step.type == "RobertaProcessing" || step.type == "BertProcessing";
    if ((step.type != "TemplateProcessing" && !is_pair) || has_template) {
      return Unsupported(
          "post_processor: expected ByteLevel and one of TemplateProcessing, RobertaProcessing and BertProcessing, "
          "found " +
          NameSteps(steps));
    }
    has_template = true;
    TIDEMILL_TRY_VOID(is_pair ? ReadPair(step.settings, "post_processor: " + step.type, spec)
                              : ReadTemplate(step.settings, spec));
  }
  // One token on a side has a name.
  if (spec.begin_ids.size() == 1) {
    spec.bos_id = spec.begin_ids[0];
    spec.add_bos = true;
    spec.begin_ids.clear();
  }
  if (spec.end_ids.size() == 1) {
    spec.eos_id = spec.end_ids[0];
    spec.add_eos = true;
    spec.end_ids.clear();
  }
  return {};
}

Result<void> ReadDecoder(const JsonValue& root, TokenizerSpec& spec) {
  TIDEMILL_TRY(steps, ReadStepList(root, "decoder", "decoders"));
  const bool is_byte_level = steps.size() == 1 && steps[0].type == "ByteLevel";
  if (is_byte_level != (spec.kind == VocabularyKind::kByteLevel)) {
    return Unsupported(std::string("decoder: expected ") +
                       (is_byte_level ? "ByteLevel in pre_tokenizer, too" : "ByteLevel") + ", found " +
                       (is_byte_level ? "none" : NameSteps(steps)));
  }
  if (is_byte_level) return {};
  bool strips = false;
  if (steps.empty()) {
    spec.spelling = TokenSpelling::kWords;
    spec.leading_space = LeadingSpace::kOneDropped;
  } else if (steps.size() == 1 && steps[0].type == "WordPiece") {
    const auto prefix = FindPart(steps[0].settings, "prefix");
    if (prefix && !IsText(*prefix, spec.prefixes.rest)) {
      return Unsupported("decoder: WordPiece: prefix: expected the model's " + QuoteName(spec.prefixes.rest) +
                         ", found " + DescribeString(*prefix));
    }
    TIDEMILL_TRY(cleans_up, GetBool(steps[0].settings, "cleanup", "decoder: WordPiece", true));
    spec.spelling = TokenSpelling::kWordPieces;
    spec.cleans_up = cleans_up;
    spec.leading_space = LeadingSpace::kOneDropped;
  } else if (steps.size() == 1 && steps[0].type == "Metaspace") {
    if (!IsStringEqual(steps[0].settings, "replacement", kPieceSpaceUtf8)) {
      return Unsupported("decoder: Metaspace: replacement: expected U+2581, found another one");
    }
    TIDEMILL_TRY(scheme, ReadPrependScheme(steps[0].settings, "decoder: Metaspace"));
    spec.spelling = TokenSpelling::kPieceSpaces;
    spec.leading_space = scheme == PrependScheme::kNever ? LeadingSpace::kKept : LeadingSpace::kAllDroppedOfFirstToken;
  } else if (IsPieceDecoder(steps, strips)) {
    spec.spelling = TokenSpelling::kPieceSpaces;
    spec.leading_space = strips ? LeadingSpace::kOneDropped : LeadingSpace::kKept;
  } else {
    return Unsupported(
        "decoder: expected ByteLevel, WordPiece, Metaspace, none, or Replace of U+2581 by a space with ByteFallback, "
        "Fuse and Strip, found " +
        NameSteps(steps));
  }
  return {};
}

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

}  // namespace tidemill
