#include "cli/prompt_form.h"

#include <utility>

#include "cli/errors.h"
#include "cli/text_source.h"

namespace tidemill::cli {

void PromptForm::AddTo(FlagSet& flags) {
  flags.Switch("--chat", chat, "Through the model's chat template (if it has one)");
  flags.Switch("--raw", raw, "As it is: text that spells a special token becomes that token");
  flags.Excludes("--chat", "--raw");
  flags.Text("--system", system, "TEXT", "A system message before the prompt");
  chat_template.AddTo(flags);
  flags.Excludes("--chat-template", "--raw");
}

Result<void> PromptForm::Check() const {
  if (system) TIDEMILL_TRY_VOID(CheckUtf8("read the prompt", "--system", *system));
  return chat_template.Check();
}

Result<PromptEncoder> PromptEncoder::Create(const Model& model, const PromptForm& form) {
  auto renderer = ChatRenderer::Create(model.text(), form.chat_template, "the model", "use tidemill run --raw");
  if (!renderer.ok() && form.chat_template.name) return std::move(renderer).error();
  return PromptEncoder(model, form, std::move(renderer));
}

Result<std::vector<int32_t>> PromptEncoder::Encode(const std::string& prompt) const {
  const bool has_template = renderer_.ok() || text_->chat_template || !text_->chat_template_trouble.empty();
  if (!form_->chat && (form_->raw || !has_template)) {
    const char* idle = form_->system ? "--system" : form_->chat_template.kwargs ? "--chat-template-kwargs" : nullptr;
    if (idle != nullptr) return UsageError(idle, "expected a chat, found a prompt without one; leave out one of both");
    return text_->tokenizer.Encode(prompt);
  }
  if (!renderer_.ok()) return renderer_.error();
  std::vector<ChatMessage> messages;
  if (form_->system) messages.push_back({.role = "system", .content = *form_->system, .more_json = ""});
  messages.push_back({.role = "user", .content = prompt, .more_json = ""});
  TIDEMILL_TRY(rendered, renderer_->Render(std::move(messages)));
  return text_->tokenizer.Encode(rendered, {.add_special = false, .parse_special = true});
}

Result<std::vector<int32_t>> PromptEncoder::EncodeJson(std::string_view json) const {
  if (!renderer_.ok()) return renderer_.error();
  TIDEMILL_TRY(rendered, renderer_->RenderJson(json));
  return text_->tokenizer.Encode(rendered, {.add_special = false, .parse_special = true});
}

}  // namespace tidemill::cli
