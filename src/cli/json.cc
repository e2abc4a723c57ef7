#include "cli/json.h"

#include "cli/files.h"

namespace tidemill::cli {

Result<JsonDocument> ParseJson(std::string_view what, std::string_view text) {
  const JsonDocumentLimits limits{.max_bytes = kMaxInputBytes, .max_values = kMaxInputBytes, .any_root = true};
  Result<JsonDocument> document = JsonDocument::Parse(std::string(what), text, limits);
  if (document.ok() || document.error().code() == ErrorCode::kOutOfMemory) return document;
  return Error(ErrorCode::kInvalidArgument, document.error().message());
}

}  // namespace tidemill::cli
