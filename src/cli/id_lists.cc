#include "cli/id_lists.h"

#include <limits>
#include <utility>

#include "cli/files.h"
#include "cli/json.h"

namespace tidemill::cli {
namespace {

constexpr char kDoing[] = "read the ids";

Error Wrong(std::string_view object, const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, std::string(kDoing) + ": " + std::string(object) + ": " + what);
}

Result<std::vector<int32_t>> ParseList(std::string_view object, const Json& list, const std::string& where) {
  if (list.empty()) return Wrong(object, where + "expected at least one id, found an empty list");
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& element : list) {
    const bool is_id =
        element.is_number_unsigned() && element.get<uint64_t>() <= uint64_t{std::numeric_limits<int32_t>::max()};
    if (!is_id) {
      const std::string found =
          element.is_structured() ? element.type_name() : element.dump(-1, ' ', true, Json::error_handler_t::replace);
      return Wrong(object, where + "expected token ids, found " + found.substr(0, 40) + " at index " +
                               std::to_string(ids.size()));
    }
    ids.push_back(element.get<int32_t>());
  }
  return ids;
}

}  // namespace

Result<IdLists> ParseIdLists(std::string_view object, std::string_view text) {
  Result<ParsedJson> json = ParseJson(std::string(kDoing) + ": " + std::string(object), text);
  if (!json.ok()) return Error(json.error().code(), json.error().message() + "; write [1, 2, 3]");
  return IdListsFrom(object, **json);
}

Result<IdLists> IdListsFrom(std::string_view object, const Json& json) {
  if (!json.is_array()) return Wrong(object, std::string("expected a JSON list, found ") + json.type_name());
  IdLists result;
  result.is_nested = !json.empty() && json[0].is_array();
  if (!result.is_nested) {
    TIDEMILL_TRY(ids, ParseList(object, json, ""));
    result.lists.push_back(std::move(ids));
    return result;
  }
  for (const Json& list : json) {
    const std::string where = "list " + std::to_string(result.lists.size()) + ": ";
    if (!list.is_array())
      return Wrong(object, where + "expected a list like those before it, found " + list.type_name());
    TIDEMILL_TRY(ids, ParseList(object, list, where));
    result.lists.push_back(std::move(ids));
  }
  return result;
}

Result<IdLists> ReadIdLists(const std::string& path) {
  TIDEMILL_TRY(text, path == "-" ? ReadStandardInput(kDoing) : ReadFile(kDoing, path));
  return ParseIdLists(path == "-" ? "standard input" : path, text);
}

}  // namespace tidemill::cli
