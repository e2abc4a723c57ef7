// How a prompt's text becomes ids: through the model's chat template or as it is.
#ifndef TIDEMILL_CLI_PROMPT_FORM_H_
#define TIDEMILL_CLI_PROMPT_FORM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags.h"
#include "tidemill/chat.h"
#include "tidemill/model.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct PromptForm {
  bool chat = false;
  bool raw = false;
  std::optional<std::string> system;

  void AddTo(FlagSet& flags);
  Result<void> Check() const;  // --system is UTF-8

  // By default a chat if the model has a template. kInvalidArgument for a system message without a chat.
  Result<std::vector<int32_t>> Encode(const Model& model, const std::string& prompt) const;
};

// A rendered chat gets no second beginning-of-sequence token.
Result<std::vector<int32_t>> EncodeChat(const Model& model, std::vector<ChatMessage> messages);
// The same of JSON, as ChatTemplate::RenderJson reads it.
Result<std::vector<int32_t>> EncodeChatJson(const Model& model, std::string_view json);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_PROMPT_FORM_H_
