#include "cli/json.h"

#include <set>
#include <vector>

#include "cli/errors.h"

namespace tidemill::cli {

Result<Json> ParseJson(std::string_view what, std::string_view text) {
  const auto wrong = [what](const std::string& found) {
    return Error(ErrorCode::kInvalidArgument, std::string(what) + ": expected JSON, found " + found);
  };
  std::string fault;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto look = [&](int depth, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (depth > kMostJsonNesting && fault.empty()) fault = "more than " + std::to_string(kMostJsonNesting) + " levels";
    if (event == Json::parse_event_t::key && fault.empty() && !keys.back().insert(value.get<std::string>()).second) {
      fault = "the member " + Quoted(value.get<std::string>()) + " twice";
    }
    return fault.empty();
  };
  try {
    Json json = Json::parse(text, look);
    if (!fault.empty()) return wrong(fault);
    return json;
  } catch (const Json::parse_error& error) {
    return wrong(fault.empty() ? "a mistake at byte " + std::to_string(error.byte) : fault);
  } catch (const Json::out_of_range&) {
    return wrong("a number that is too large");
  }
}

}  // namespace tidemill::cli
