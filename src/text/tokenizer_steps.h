// What a tokenizer.json says to do with a text before and after the model: normalizer, pre_tokenizer, post_processor, decoder.
// tokenizer_json.h lists what is known.
#ifndef TIDEMILL_TEXT_TOKENIZER_STEPS_H_
#define TIDEMILL_TEXT_TOKENIZER_STEPS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_document.h"
#include "text/tokenizer_spec.h"
#include "tidemill/result.h"

namespace tidemill {

inline Error Corrupt(std::string message) { return Error(ErrorCode::kCorruptFile, std::move(message)); }
inline Error Unsupported(std::string message) { return Error(ErrorCode::kUnsupported, std::move(message)); }

// One step of a part, after Sequences are taken apart.
struct TokenizerStep {
  std::string type;
  JsonValue settings;
};

// The steps of the part `where` of `root`, whose Sequences call their steps `list`. kCorruptFile when it has another shape.
Result<std::vector<TokenizerStep>> ReadStepList(const JsonValue& root, std::string_view where, std::string_view list);

// "Digits, ByteLevel"; "none".
std::string NameSteps(std::span<const TokenizerStep> steps);

// Each reads one part of `root` into the spec. Errors: kCorruptFile, kUnsupported by name.
Result<void> ReadNormalizer(const JsonValue& root, TokenizerSpec& spec);
Result<void> ReadPreTokenizer(const JsonValue& root, TokenizerSpec& spec);
Result<void> ReadPostProcessor(const JsonValue& root, TokenizerSpec& spec);
Result<void> ReadDecoder(const JsonValue& root, TokenizerSpec& spec);

// The prepend_scheme of a Metaspace.
Result<PrependScheme> ReadPrependScheme(const JsonValue& settings, std::string_view where);

// The part called `key` of `object`; nothing when it is missing or null.
std::optional<JsonValue> FindPart(const JsonValue& object, std::string_view key);

// The string of {"pattern": {"<kind>": "..."}}; nothing when it is of another kind.
std::optional<std::string> FindPattern(const JsonValue& settings, std::string_view kind);

// kCorruptFile, with `where` in front, when it is missing or no string; when it is there and no bool.
Result<std::string> GetString(const JsonValue& object, std::string_view key, std::string_view where);
Result<bool> GetBool(const JsonValue& object, std::string_view key, std::string_view where, bool fallback);

// Whether it is the string `text`; whether it is a number and this one.
bool IsText(const JsonValue& value, std::string_view text);
bool IsNumber(const JsonValue& value, double number);

// For messages: the string in quotes, or what else it is.
std::string DescribeString(const JsonValue& value);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKENIZER_STEPS_H_
