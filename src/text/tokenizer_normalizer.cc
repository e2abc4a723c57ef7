// The normalizer of a tokenizer.json.
#include <array>
#include <string>
#include <utility>

#include "base/printable_name.h"
#include "text/tokenizer_steps.h"

namespace tidemill {
namespace {

// Standard base64, padded or not.
std::optional<std::string> DecodeBase64(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int num_bits = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else {
      return std::nullopt;
    }
    bits = bits << 6 | value;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(static_cast<uint8_t>(bits >> num_bits));
    bits &= (1u << num_bits) - 1;
  }
  return bytes;
}

NormalizerStep ReplaceAll(std::string expression, std::string content) {
  return {.kind = NormalizerKind::kReplace, .pattern = std::move(expression), .content = std::move(content)};
}

// {"pattern": {"String": ...} or {"Regex": ...}, "content": ...}
Result<NormalizerStep> ReadReplace(const JsonValue& settings) {
  const std::string where = "normalizer: Replace";
  TIDEMILL_TRY(content, GetString(settings, "content", where));
  if (auto text = FindPattern(settings, "String")) {
    return NormalizerStep{.kind = NormalizerKind::kReplace,
                          .pattern = std::move(*text),
                          .is_literal = true,
                          .content = std::move(content)};
  }
  auto expression = FindPattern(settings, "Regex");
  if (!expression) return Unsupported(where + ": pattern: expected a String or a Regex, found another kind");
  return ReplaceAll(std::move(*expression), std::move(content));
}

Result<void> ReadBert(const JsonValue& settings, std::vector<NormalizerStep>& out) {
  const std::string where = "normalizer: BertNormalizer";
  TIDEMILL_TRY(clean_text, GetBool(settings, "clean_text", where, true));
  TIDEMILL_TRY(isolate_han, GetBool(settings, "handle_chinese_chars", where, true));
  TIDEMILL_TRY(lowercase, GetBool(settings, "lowercase", where, true));
  TIDEMILL_TRY(strip_accents, GetBool(settings, "strip_accents", where, lowercase));
  for (NormalizerStep& step : BertSteps({.clean_text = clean_text,
                              .isolate_han = isolate_han,
                              .strip_accents = strip_accents,
                              .lowercase = lowercase}))
    out.push_back(std::move(step));
  return {};
}

Result<void> ReadNormalizerStep(const TokenizerStep& step, std::vector<NormalizerStep>& out) {
  const std::string where = "normalizer: " + step.type;
  if (step.type == "NFC" || step.type == "NFD") {
    out.push_back({.kind = step.type == "NFC" ? NormalizerKind::kNfc : NormalizerKind::kNfd});
  } else if (step.type == "Lowercase") {
    out.push_back({.kind = NormalizerKind::kLowercase});
  } else if (step.type == "StripAccents") {
    out.push_back(ReplaceAll(R"(\p{M})", ""));
  } else if (step.type == "Strip") {
    TIDEMILL_TRY(left, GetBool(step.settings, "strip_left", where, true));
    TIDEMILL_TRY(right, GetBool(step.settings, "strip_right", where, true));
    if (left) out.push_back({.kind = NormalizerKind::kStripLeft});
    if (right) out.push_back({.kind = NormalizerKind::kStripRight});
  } else if (step.type == "Replace") {
    TIDEMILL_TRY(replace, ReadReplace(step.settings));
    out.push_back(std::move(replace));
  } else if (step.type == "Prepend") {
    TIDEMILL_TRY(text, GetString(step.settings, "prepend", where));
    out.push_back({.kind = NormalizerKind::kPrepend, .content = std::move(text)});
  } else if (step.type == "BertNormalizer") {
    return ReadBert(step.settings, out);
  } else if (step.type == "Precompiled") {
    const auto map = FindPart(step.settings, "precompiled_charsmap");
    if (!map) return {};  // nothing is mapped
    auto bytes = map->is_string() ? DecodeBase64(map->text()) : std::nullopt;
    if (!bytes) return Corrupt(where + ": precompiled_charsmap: expected base64, found " + DescribeString(*map));
    out.push_back(
        {.kind = NormalizerKind::kCharsMap, .content = std::move(*bytes), .search = CharsMapSearch::kGraphemes});
  } else {
    return Unsupported(
        "normalizer: expected NFC, NFD, Lowercase, StripAccents, Strip, Replace, Prepend, BertNormalizer or "
        "Precompiled, found " +
        QuoteName(step.type));
  }
  return {};
}

}  // namespace

Result<void> ReadNormalizer(const JsonValue& root, TokenizerSpec& spec) {
  TIDEMILL_TRY(steps, ReadStepList(root, "normalizer", "normalizers"));
  for (const TokenizerStep& step : steps) TIDEMILL_TRY_VOID(ReadNormalizerStep(step, spec.normalizer));
  return {};
}

}  // namespace tidemill
