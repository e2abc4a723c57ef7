// How a prompt's text becomes ids: through the model's chat template or as it is.
#ifndef TIDEMILL_CLI_PROMPT_FORM_H_
#define TIDEMILL_CLI_PROMPT_FORM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/chat_renderer.h"
#include "cli/flags.h"
#include "tidemill/model.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct PromptForm {
  bool chat = false;
  bool raw = false;
  std::optional<std::string> system;
  ChatTemplateFlags chat_template;

  void AddTo(FlagSet& flags);
  Result<void> Check() const;  // --system is UTF-8, the variables are JSON
};

// Encodes the prompts of one command. By default they are a chat if the model has a template or one was chosen.
class PromptEncoder {
 public:
  // Both are borrowed. Fails at once only for a --chat-template that cannot be used; what else is wrong with the model's template is told
  // where a chat is encoded.
  static Result<PromptEncoder> Create(const Model& model, const PromptForm& form);

  // kInvalidArgument for a system message, or variables of a template, without a chat.
  Result<std::vector<int32_t>> Encode(const std::string& prompt) const;
  // A chat as JSON, as ChatTemplate::RenderJson reads it. It gets no second beginning-of-sequence token.
  Result<std::vector<int32_t>> EncodeJson(std::string_view json) const;

 private:
  PromptEncoder(const Model& model, const PromptForm& form, Result<ChatRenderer> renderer)
      : text_(&model.text()), form_(&form), renderer_(std::move(renderer)) {}

  const ModelText* text_;
  const PromptForm* form_;
  Result<ChatRenderer> renderer_;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_PROMPT_FORM_H_
