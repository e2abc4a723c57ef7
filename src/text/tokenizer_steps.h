// What a tokenizer.json says to do with a text before and after the model: normalizer, pre_tokenizer, post_processor, decoder.
// tokenizer_json.h lists what is known.
#ifndef TIDEMILL_TEXT_TOKENIZER_STEPS_H_
#define TIDEMILL_TEXT_TOKENIZER_STEPS_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json_document.h"
#include "text/tokenizer_spec.h"
#include "tidemill/result.h"

namespace tidemill {

inline Error Corrupt(std::string message) { return Error(ErrorCode::kCorruptFile, std::move(message)); }
inline Error Unsupported(std::string message) { return Error(ErrorCode::kUnsupported, std::move(message)); }

// Reads the four parts of `root`, an object, into a spec whose kind is known. Errors: kCorruptFile, kUnsupported by name.
Result<void> ReadSteps(const JsonValue& root, TokenizerSpec& spec);

// The part called `key` of `object`; nothing when it is missing or null.
std::optional<JsonValue> FindPart(const JsonValue& object, std::string_view key);

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
