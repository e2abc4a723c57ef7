#include "cli/prompt_form.h"

#include <utility>

#include "cli/errors.h"
#include "cli/session.h"
#include "cli/text_source.h"

namespace tidemill::cli {

void PromptForm::AddTo(FlagSet& flags) {
  flags.Switch("--chat", chat, "Through the model's chat template (if it has one)");
  flags.Switch("--raw", raw, "As it is: text that spells a special token becomes that token");
  flags.Excludes("--chat", "--raw");
  flags.Text("--system", system, "TEXT", "A system message before the prompt");
}

Result<void> PromptForm::Check() const {
  return system ? CheckUtf8("read the prompt", "--system", *system) : Result<void>{};
}

Result<std::vector<int32_t>> PromptForm::Encode(const Model& model, const std::string& prompt) const {
  const ModelText& text = model.text();
  const bool is_chat = chat || (!raw && (text.chat_template || !text.chat_template_trouble.empty()));
  if (!is_chat) {
    if (system) return UsageError("--system", "expected a chat, found a prompt without one; leave out one of both");
    return text.tokenizer.Encode(prompt);
  }
  std::vector<ChatMessage> messages;
  if (system) messages.push_back({.role = "system", .content = *system, .more_json = ""});
  messages.push_back({.role = "user", .content = prompt, .more_json = ""});
  return EncodeChat(model, std::move(messages));
}

Result<std::vector<int32_t>> EncodeChat(const Model& model, std::vector<ChatMessage> messages) {
  TIDEMILL_TRY(rendered, RenderChat(model.text(), std::move(messages)));
  return model.text().tokenizer.Encode(rendered, {.add_special = false, .parse_special = true});
}

Result<std::vector<int32_t>> EncodeChatJson(const Model& model, std::string_view json) {
  const ModelText& text = model.text();
  TIDEMILL_TRY_VOID(CheckTemplate(text, "the model", "use tidemill run --raw"));
  TIDEMILL_TRY(rendered, text.chat_template->RenderJson(json, RenderInput(text)));
  return text.tokenizer.Encode(rendered, {.add_special = false, .parse_special = true});
}

}  // namespace tidemill::cli
