// What a tokenizer.json says to do with a text before and after the model: normalizer, pre_tokenizer, post_processor, decoder.
// tokenizer_json.h lists what is known.
#ifndef TIDEMILL_TEXT_TOKENIZER_STEPS_H_
#define TIDEMILL_TEXT_TOKENIZER_STEPS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/tokenizer_spec.h"
#include "tidemill/result.h"

namespace tidemill {

// Reads the four parts of `root`, an object, into a spec whose kind is known. Errors: kCorruptFile, kUnsupported by name.
Result<void> ReadSteps(const nlohmann::json& root, TokenizerSpec& spec);

// The part called `key` of `object`; null when it is missing or null.
const nlohmann::json* FindPart(const nlohmann::json& object, std::string_view key);

// kCorruptFile, with `where` in front, when it is missing or no string; when it is there and no bool.
Result<std::string> GetString(const nlohmann::json& object, std::string_view key, std::string_view where);
Result<bool> GetBool(const nlohmann::json& object, std::string_view key, std::string_view where, bool fallback);

// For messages: the string in quotes, or what else it is.
std::string DescribeString(const nlohmann::json& value);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKENIZER_STEPS_H_
