// JSON on standard output: one object a line, members in the order in which they were added.
#ifndef TIDEMILL_CLI_JSON_H_
#define TIDEMILL_CLI_JSON_H_

#include <nlohmann/json.hpp>
#include <string>

namespace tidemill::cli {

using Json = nlohmann::ordered_json;

// With a newline. Bytes that are not UTF-8 (a file may name a token so) become U+FFFD.
inline std::string JsonLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_JSON_H_
