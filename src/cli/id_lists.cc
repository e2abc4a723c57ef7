#include "cli/id_lists.h"

#include <limits>
#include <utility>

#include "cli/files.h"
#include "cli/json.h"

namespace tidemill::cli {
namespace {

Error WrongList(std::string_view object, const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, std::string(kReadIds) + ": " + std::string(object) + ": " + what);
}

Result<std::vector<int32_t>> ParseList(std::string_view object, const JsonValue& list, const std::string& where) {
  if (list.size() == 0) return WrongList(object, where + "expected at least one id, found an empty list");
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const JsonValue& element : list.Elements()) {
    const auto id = element.GetUint("", 0, std::numeric_limits<int32_t>::max());
    if (!id.ok()) {
      return WrongList(object, where + "expected token ids, found " + element.Describe() + " at index " +
                                   std::to_string(ids.size()));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace

Result<IdLists> ParseIdLists(std::string_view object, std::string_view text) {
  const auto json = ParseJson(std::string(kReadIds) + ": " + std::string(object), text);
  if (!json.ok()) return Error(json.error().code(), json.error().message() + "; write [1, 2, 3]");
  return IdListsFrom(object, *json);
}

Result<IdLists> IdListsFrom(std::string_view object, const JsonValue& json) {
  if (!json.is_array()) return WrongList(object, "expected a JSON list, found " + json.Describe());
  const std::vector<JsonValue> elements = json.Elements();
  IdLists result;
  result.is_nested = !elements.empty() && elements[0].is_array();
  if (!result.is_nested) {
    TIDEMILL_TRY(ids, ParseList(object, json, ""));
    result.lists.push_back(std::move(ids));
    return result;
  }
  for (const JsonValue& list : elements) {
    const std::string where = "list " + std::to_string(result.lists.size()) + ": ";
    if (!list.is_array())
      return WrongList(object, where + "expected a list like those before it, found " + list.Describe());
    TIDEMILL_TRY(ids, ParseList(object, list, where));
    result.lists.push_back(std::move(ids));
  }
  return result;
}

Result<IdLists> ReadIdLists(const std::string& path) {
  TIDEMILL_TRY(text, path == "-" ? ReadStandardInput(kReadIds) : ReadFile(kReadIds, path));
  return ParseIdLists(path == "-" ? "standard input" : path, text);
}

}  // namespace tidemill::cli
