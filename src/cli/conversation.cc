#include "cli/conversation.h"

#include <utility>

#include "cli/json.h"

namespace tidemill::cli {
namespace {

Error Wrong(std::string_view object, const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, "read the conversation: " + std::string(object) + ": " + what);
}

}  // namespace

std::string MessagesToJson(const std::vector<ChatMessage>& messages) {
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    Json entry = {{"role", message.role}, {"content", message.content}};
    if (!message.more_json.empty()) entry.update(Json::parse(message.more_json));  // from MessagesFromJson
    list.push_back(std::move(entry));
  }
  return list.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::vector<ChatMessage>> MessagesFromJson(std::string_view object, std::string_view json) {
  TIDEMILL_TRY(list, ParseJson("read the conversation: " + std::string(object), json));
  return MessagesFrom(object, *list);
}

Result<std::vector<ChatMessage>> MessagesFrom(std::string_view object, Json& list) {
  if (!list.is_array())
    return Wrong(object, std::string("expected a JSON list of messages, found ") + list.type_name());
  std::vector<ChatMessage> messages;
  for (Json& entry : list) {
    const std::string where = "message " + std::to_string(messages.size()) + ": ";
    if (!entry.is_object()) return Wrong(object, where + "expected an object, found " + entry.type_name());
    ChatMessage message;
    for (auto [key, target] :
         {std::pair<const char*, std::string*>{"role", &message.role}, {"content", &message.content}}) {
      const auto found = entry.find(key);
      if (found == entry.end() || !found->is_string()) {
        return Wrong(object, where + "expected a string \"" + key + "\", found " +
                                 (found == entry.end() ? "none" : found->type_name()));
      }
      *target = found->get<std::string>();
      entry.erase(key);
    }
    if (!entry.empty()) message.more_json = entry.dump();
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace tidemill::cli
