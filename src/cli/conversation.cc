#include "cli/conversation.h"

#include <utility>

#include "cli/json.h"

namespace tidemill::cli {
namespace {

Error WrongMessages(std::string_view object, const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, "read the conversation: " + std::string(object) + ": " + what);
}

}  // namespace

std::string MessagesToJson(const std::vector<ChatMessage>& messages) {
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    Json entry = {{"role", message.role}, {"content", message.content}};
    // From MessagesFromJson, so that it is in order.
    if (const auto more = ParseJson("", message.more_json); more.ok()) entry.update(Json(*more));
    list.push_back(std::move(entry));
  }
  return list.dump(1) + "\n";
}

Result<std::vector<ChatMessage>> MessagesFromJson(std::string_view object, std::string_view json) {
  TIDEMILL_TRY(list, ParseJson("read the conversation: " + std::string(object), json));
  return MessagesFrom(object, list);
}

Result<std::vector<ChatMessage>> MessagesFrom(std::string_view object, const JsonValue& list) {
  if (!list.is_array()) return WrongMessages(object, "expected a JSON list of messages, found " + list.Describe());
  std::vector<ChatMessage> messages;
  messages.reserve(list.size());
  for (const JsonValue& entry : list.Elements()) {
    const std::string where = "message " + std::to_string(messages.size()) + ": ";
    if (!entry.is_object()) return WrongMessages(object, where + "expected an object, found " + entry.Describe());
    ChatMessage message;
    for (auto [key, target] :
         {std::pair<const char*, std::string*>{"role", &message.role}, {"content", &message.content}}) {
      const auto found = entry.Member(key);
      if (!found || !found->is_string()) {
        return WrongMessages(
            object, where + "expected a string \"" + key + "\", found " + (found ? found->Describe() : "none"));
      }
      *target = found->text();
    }
    Json more;
    for (const auto& [key, value] : entry.Members()) {
      if (key != "role" && key != "content") more[key] = Json(value);
    }
    if (entry.size() > 2) message.more_json = more.dump();
    messages.push_back(std::move(message));
  }
  return messages;
}

size_t EndOfTurn(const std::vector<ChatMessage>& messages, size_t from) {
  if (from == messages.size()) return from;
  do ++from;
  while (from != messages.size() && messages[from].role != "user");
  return from;
}

}  // namespace tidemill::cli
