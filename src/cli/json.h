// JSON on standard output, one object a line; and JSON that somebody else wrote.
#ifndef TIDEMILL_CLI_JSON_H_
#define TIDEMILL_CLI_JSON_H_

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/json_document.h"
#include "tidemill/result.h"

namespace tidemill::cli {

inline std::string JsonLine(const Json& json) { return json.dump() + "\n"; }

// Any value, of at most kMaxInputBytes. kInvalidArgument for what JsonDocument refuses, kOutOfMemory; WHAT stands in front.
Result<JsonDocument> ParseJson(std::string_view what, std::string_view text);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_JSON_H_
