// JSON on standard output: one object a line, members in the order in which they were added; and JSON that somebody else wrote.
#ifndef TIDEMILL_CLI_JSON_H_
#define TIDEMILL_CLI_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "tidemill/result.h"

namespace tidemill::cli {

using Json = nlohmann::ordered_json;

// With a newline. Bytes that are not UTF-8 (a file may name a token so) become U+FFFD.
inline std::string JsonLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Values within one another; writing a value out again needs stack for each of them.
inline constexpr int kMostJsonNesting = 64;

// What somebody else wrote, however much that is. It is taken apart without memory: the library's destructor wants some, and where there is
// none it ends the program.
class ParsedJson {
 public:
  ParsedJson() = default;
  ParsedJson(ParsedJson&& other) noexcept : json_(std::move(other.json_)) {}
  ParsedJson& operator=(ParsedJson&&) = delete;
  ~ParsedJson();

  Json& operator*() { return json_; }
  Json* operator->() { return &json_; }

 private:
  Json json_;
};

// kInvalidArgument: "WHAT: expected JSON, found a mistake at byte N", a member that stands twice, nesting above kMostJsonNesting. Time in
// proportion to the text, but for names, which are sorted.
Result<ParsedJson> ParseJson(std::string_view what, std::string_view text);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_JSON_H_
