// The chat templates of a model's files, by name.
#include <algorithm>
#include <string_view>
#include <utility>

#include "base/printable_name.h"
#include "runtime/model_impl.h"

namespace tidemill {
namespace {

constexpr std::string_view kDefault = "default";

Result<NamedTemplates> ReadGgufTemplates(const GgufFile& gguf) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  NamedTemplates templates;
  for (const std::string_view key : gguf.keys()) {
    if (!key.starts_with(kKey)) continue;
    const std::string_view rest = key.substr(kKey.size());
    if (!rest.empty() && (rest.size() == 1 || rest.front() != '.')) continue;
    TIDEMILL_TRY(source, gguf.GetString(key));
    templates.emplace_back(rest.empty() ? kDefault : rest.substr(1), source);
  }
  return templates;
}

Result<NamedTemplates> ReadFolderTemplates(const ModelFiles& files) {
  NamedTemplates templates;
  // Files of their own go before what tokenizer_config.json has.
  if (files.chat_template().has_value()) templates.emplace_back(kDefault, *files.chat_template());
  for (const auto& [name, source] : files.named_chat_templates()) {
    if (name != kDefault || !files.chat_template().has_value()) templates.emplace_back(name, source);
  }
  constexpr const char* kKey = "chat_template";
  const JsonDocument* config = files.tokenizer_config();
  if (!templates.empty() || config == nullptr || !config->Has(kKey)) return templates;
  if (!config->Find(kKey)->is_array()) {
    TIDEMILL_TRY(source, config->GetString(kKey));
    templates.emplace_back(kDefault, source);
    return templates;
  }
  TIDEMILL_TRY(list, config->GetArray(kKey));
  for (const JsonValue& named : list.Elements()) {
    TIDEMILL_TRY(name, named.GetString("name"));
    TIDEMILL_TRY(source, named.GetString("template"));
    templates.emplace_back(name, source);
  }
  return templates;
}

}  // namespace

Result<NamedTemplates> ReadTemplates(const ModelFiles& files) {
  return files.gguf() != nullptr ? ReadGgufTemplates(*files.gguf()) : ReadFolderTemplates(files);
}

Result<std::optional<std::string>> DefaultTemplate(const NamedTemplates& templates) {
  constexpr size_t kMaxNames = 10;
  std::string names;
  size_t count = 0;
  for (const auto& [name, source] : templates) {
    if (name == kDefault) return std::optional(source);
    if (count++ < kMaxNames) names += (names.empty() ? "" : ", ") + QuoteName(name);
  }
  if (count > kMaxNames) names += ", ...";
  if (names.empty()) return std::optional<std::string>();
  return Error(ErrorCode::kUnsupported, "chat templates: expected one that is named default, found " + names);
}

}  // namespace tidemill
