// The messages of a chat, as a file of them looks: a JSON list of {"role", "content"}, which tokenize --chat reads, too.
#ifndef TIDEMILL_CLI_CONVERSATION_H_
#define TIDEMILL_CLI_CONVERSATION_H_

#include <string>
#include <string_view>
#include <vector>

#include "cli/json.h"
#include "tidemill/chat.h"
#include "tidemill/result.h"

namespace tidemill::cli {

std::string MessagesToJson(const std::vector<ChatMessage>& messages);
// kInvalidArgument names `object` and the message that is wrong. Members other than role and content are kept.
Result<std::vector<ChatMessage>> MessagesFromJson(std::string_view object, std::string_view json);
Result<std::vector<ChatMessage>> MessagesFrom(std::string_view object, const JsonValue& list);

// Where the turn that begins at messages[from] ends: at the next message of a user, or at the end.
size_t EndOfTurn(const std::vector<ChatMessage>& messages, size_t from);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_CONVERSATION_H_
