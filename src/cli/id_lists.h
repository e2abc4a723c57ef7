// Token ids from a JSON file: one list, or a list of lists.
#ifndef TIDEMILL_CLI_ID_LISTS_H_
#define TIDEMILL_CLI_ID_LISTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json.h"
#include "tidemill/result.h"

namespace tidemill::cli {

inline constexpr char kReadIds[] = "read the ids";  // what is being done, in an error

struct IdLists {
  bool is_nested = false;
  std::vector<std::vector<int32_t>> lists;  // one, unless nested; none of them is empty
};

// kInvalidArgument names `object` and what is wrong at which place.
Result<IdLists> ParseIdLists(std::string_view object, std::string_view json);
Result<IdLists> IdListsFrom(std::string_view object, const JsonValue& json);
// "-": standard input.
Result<IdLists> ReadIdLists(const std::string& path);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_ID_LISTS_H_
